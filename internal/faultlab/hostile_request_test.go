package faultlab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strconv"
	"strings"
	"time"
)

// request is what a tenant sends.
type request struct {
	number  int
	class   string
	tenant  int
	key     int // of the tenant's keys
	path    string
	header  map[string]string
	content string
	body    []byte
	copies  int           // that are sent at the same moment
	leaves  time.Duration // the client goes away so long after it began; 0 means never
	after   *request      // it names what is stored of this one, which is sent before
	barred  bool          // it has to get a 400 (or a 402 first), and no vendor may see it
}

// The tenants.
const (
	hostileOne = iota
	hostileTwo
	thirdTenant
	tenants
)

func tenantAccount(tenant int) string { return []string{"hostile-1", "hostile-2", "third"}[tenant] }

// String is the request for a person, cut off.
func (r *request) String() string {
	const most = 300
	body := string(r.body)
	if len(body) > most {
		body = fmt.Sprintf("%s … (%d bytes)", body[:most], len(body))
	}
	return fmt.Sprintf("POST %s %v, copies %d, leaves after %s\n%s", r.path, r.header, r.copies, r.leaves, body)
}

// The words of a prompt by which a vendor knows what to do.
const (
	long     = "LONG"     // says 60,000 tokens, or as many as it may
	hidden   = "HIDDEN"   // thinks 1,000 tokens that it does not show, within its bound
	beside   = "BESIDE"   // counts what it thinks in total_tokens only
	think    = "THINK"    // thinks 3,000 tokens that it shows and that its bound does not limit
	disobey  = "DISOBEY"  // says 500 tokens more than it may
	flagged  = "FLAGME"   // refuses the text: 403
	tooLarge = "TOOLARGE" // refuses the size: 429 with Retry-After
	absurd   = "ABSURD"   // fails: 500
	waste    = "WASTE"    // bills, then fails: 500
	forbids  = "FORBIDME" // refuses what is asked as it does a bad key: a bare 403
	unpaid   = "UNPAID"   // the same as it does an empty account: 402
	breaks   = "BREAKS"   // breaks off in the middle
)

// longest is what a vendor says at the most unless it is bounded.
const longest = 60_000

// newGenerator is the source of a request of a seed.
func newGenerator(seed uint64, number int) *generator {
	d := &generator{source: newSource(seed, number)}
	d.words = d.prompt()
	return d
}

func (d *generator) prompt() string {
	s := "say something about number " + strconv.Itoa(d.IntN(1_000_000))
	if d.chance(550) {
		s += " " + pick(d.source, long, long, hidden, hidden, beside, think, disobey, flagged, tooLarge, absurd, waste, breaks)
	}
	return s
}

// classes are what the hostile tenants play, with what makes a request of each. The
// first is good requests of every endpoint with hostile changes, the others are attacks.
var classes = []struct {
	name string
	make func(d *generator, r *request) *object
}{
	{"changes", (*generator).random},
	{"bounds", (*generator).bounds},
	{"flood", (*generator).flood},
	{"flagged", func(d *generator, r *request) *object { return d.refused(r, 4, flagged) }},
	{"toolarge", func(d *generator, r *request) *object { return d.refused(r, 1, tooLarge) }},
	{"ring", (*generator).ring},
	{"failing", func(d *generator, r *request) *object { return d.refused(r, 4, pick(d.source, absurd, waste, breaks)) }},
	{"names", (*generator).names},
	{"uncounted", (*generator).uncounted},
	{"escapes", (*generator).escapes},
	{"pieces", (*generator).pieces},
	{"parts", (*generator).parts},
	{"keyed", func(d *generator, r *request) *object { // a long prompt, that is counted
		r.header["Idempotency-Key"], r.leaves = fmt.Sprintf("key-%d", r.number), leaving(10)
		return d.chat(r, "").set("messages", turn(strings.Repeat("word ", 20_000)))
	}},
	{"abandoned", func(d *generator, r *request) *object { // whole answers, which are left just before they are there
		r.copies, r.leaves = 5, leaving(19_900)
		return d.chat(r, long)
	}},
	{"hidden", func(d *generator, r *request) *object {
		r.leaves = leaving(d.IntN(400) + 1_050)
		return d.chat(r, hidden).set("stream", raw("true"))
	}},
	{"thoughts", (*generator).thoughts},
	{"extras", (*generator).extras},
	{"beside", func(d *generator, r *request) *object { return d.chat(r, beside) }},
	{"files", (*generator).files},
	{"references", (*generator).references},
	{"expiry", func(d *generator, r *request) *object {
		r.path = videosPath
		return obj("model", betaVideo, "duration", raw("15"), "resolution", "1080p", "input", obj("prompt", d.words), "execution_expires_after", raw(pick(d.source, "1", "5", "60")))
	}},
	{"media", func(d *generator, r *request) *object {
		o := d.chat(r, long)
		r.path = chatPath
		return o.set("messages", turn(arr(obj("type", "text", "text", d.words), obj("type", "image_url", "image_url", obj("url", "https://far.example/a.png")))))
	}},
}

// hostile is a request of a class; of an empty one, half of the requests are of the
// first class and half of attacks, which come in groups.
func hostile(seed uint64, number int, class string) *request {
	d := newGenerator(seed, number)
	which := classes[0]
	const together = 8
	if class == "" && d.chance(500) {
		which = pick(newGenerator(seed, -2-number/together).source, classes[1:]...)
	}
	for _, c := range classes {
		if c.name == class {
			which = c
		}
	}
	r := &request{
		number: number, class: which.name, tenant: d.IntN(thirdTenant), key: d.IntN(3), copies: 1, header: map[string]string{}, path: chatPath,
		content: "application/json",
	}
	if o := which.make(d, r); r.body == nil {
		r.body = []byte(text(o))
	}
	return r
}

// leaving is a time that is none of a vendor's.
func leaving(ms int) time.Duration { return time.Duration(ms)*time.Millisecond + time.Microsecond/2 }

// turn is a conversation of one message.
func turn(content any) *list { return arr(obj("role", "user", "content", content)) }

// much is a long input.
var much = strings.Repeat("word ", 40_000)

// chat is a plain request whose vendor gets a word, on one of the endpoints.
func (d *generator) chat(r *request, word string) *object {
	d.words = "say " + strconv.Itoa(d.IntN(1_000_000)) + " " + word
	o := obj("model", pick(d.source, plainChat, renamedChat, nativeChat), "messages", turn(d.words))
	if d.chance(250) {
		r.path = messagesPath
		o.set("max_tokens", raw("4000"))
	}
	return o
}

// bounds are small bounds that some vendor does not see or does not obey.
func (d *generator) bounds(r *request) *object {
	o := d.chat(r, pick(d.source, long, long, think)).set("max_tokens", raw("1"))
	switch d.IntN(4) {
	case 0, 1: // of two bounds each reader picks its own
		r.path = chatPath
		o.set("model", pick(d.source, plainChat, renamedChat)).set("max_completion_tokens", raw("30000"))
	case 2: // which the channel leaves out
		o.set("model", droppedChat)
	default: // which does not limit thinking
		o.set("messages", turn("say "+think))
	}
	if d.chance(400) {
		o.set("stream", raw("true"))
	}
	return o
}

// flood are many long answers at the same moment, none of them bounded.
func (d *generator) flood(r *request) *object {
	d.words = "say " + strconv.Itoa(d.IntN(1_000_000)) + " " + long
	o := obj("model", pick(d.source, renamedChat, renamedChat, nativeChat, droppedChat), "messages", turn(d.words))
	r.copies, r.key = 20+d.IntN(20), pick(d.source, 0, 0, r.key)
	switch d.IntN(5) {
	case 0:
		o.set("n", raw("2"))
	case 1:
		o.set("stream", raw("true"))
	case 2:
		o.set("max_completion_tokens", raw(pick(d.source, "50000", "2147483647")))
	}
	return o
}

// refused are requests whose refusal says nothing of the vendor's account.
func (d *generator) refused(r *request, copies int, word string) *object {
	r.copies = copies
	if d.chance(250) {
		r.path = imagesPath
		return obj("model", pieceImage, "prompt", "show "+word)
	}
	return d.chat(r, word)
}

// ring are refusals of what is asked that look like those of a key, at a channel with
// several.
func (d *generator) ring(r *request) *object {
	r.copies = 4
	r.header["X-Session-Id"] = pick(d.source, "", "a", "b", "c", "d") // each has its own order of the keys
	return d.chat(r, pick(d.source, forbids, unpaid)).set("model", ringChat)
}

// thoughts is reasoning of a model that is known to hide it, whose client disconnects at any
// moment: before the first event, within the answer, or with its last word.
func (d *generator) thoughts(r *request) *object {
	r.path, r.leaves = chatPath, leaving(d.IntN(3_000)+10)
	o := obj("model", hidingChat, "max_tokens", raw("3000"), "messages", turn("say "+hidden))
	if d.chance(700) {
		o.set("stream", raw("true"))
	}
	if d.chance(300) {
		r.header["Idempotency-Key"] = "thoughts-" + strconv.Itoa(r.number)
	}
	return o
}

// names are members that only a reader sees that does not mind the case.
func (d *generator) names(r *request) *object {
	o := d.chat(r, "")
	switch d.IntN(5) {
	case 0, 1:
		o.add(pick(d.source, "MESSAGES", "Messages", "messageS"), turn(much))
		if d.chance(600) {
			o.set("stream", raw("true")).set("stream_options", obj("include_usage", raw("true")))
			o.add("STREAM_OPTIONS", obj("include_usage", raw("false")))
		}
	case 2:
		o.set("stream", raw("true")).set("messages", turn("say "+hidden))
		o.set("stream_options", obj("include_usage", raw("true"), "INCLUDE_USAGE", raw("false")))
	case 3:
		o.add(pick(d.source, "Tools", "TOOLS", "System", "PROMPT", "Response_Format", "Functions"), turn(much))
		o.set("stream", raw("true"))
		r.leaves = leaving(150)
	default:
		o.set("max_tokens", raw("10"))
		o.add(pick(d.source, "Max_Tokens", "MAX_TOKENS", "Max_Completion_Tokens", "N"), raw("50"))
	}
	return o
}

// uncounted is a long input in a place where an estimate may not look; the client
// leaves before the vendor reports it.
func (d *generator) uncounted(r *request) *object {
	o := d.chat(r, "").set("model", pick(d.source, plainChat, renamedChat)).set("stream", raw("true"))
	r.path, r.leaves = chatPath, leaving(pick(d.source, 30, 150))
	schema := obj("type", "object", "properties", obj("a", obj("type", "string", "description", much)))
	tool := obj("name", "f", "description", much)
	ask := obj("role", "user", "content", d.words)
	switch d.IntN(5) {
	case 0:
		return o.set("messages", arr(ask, obj("role", "assistant", "content", "a", "reasoning_content", much), ask))
	case 1:
		return o.set("messages", arr(obj("role", "system", "tools", arr(obj("type", "function", "function", tool))), ask))
	case 2:
		return o.set("response_format", obj("type", "json_schema", "json_schema", obj("name", "a", "schema", schema)))
	case 3:
		return o.set("functions", arr(tool))
	}
	r.path = messagesPath
	return obj("model", nativeChat, "max_tokens", raw("500"), "stream", raw("true"), "messages", arr(ask), "output_config", obj("format", obj("type", "json_schema", "schema", schema)))
}

// escapes is a long text beside a picture whose letters are written as escapes.
func (d *generator) escapes(r *request) *object {
	o := d.chat(r, "").set("model", pick(d.source, plainChat, renamedChat)).set("stream", raw("true"))
	r.path, r.leaves = chatPath, leaving(pick(d.source, 30, 150))
	url := raw(`"data:image/png;base64,` + strings.Repeat(`\u0041`, 100_000) + `"`)
	return o.set("messages", turn(arr(obj("type", "text", "text", much), obj("type", "image_url", "image_url", obj("url", url)))))
}

// pieces is what is sold by the unit, of a client that leaves before it comes.
func (d *generator) pieces(r *request) *object {
	r.leaves = leaving(pick(d.source, 10, 60, 150))
	r.path = imagesPath
	switch d.IntN(4) {
	case 0:
		return obj("model", alphaImage, "input", obj("messages", turn(arr(obj("text", d.words)))))
	case 1:
		r.path = speechPath
		return obj("model", pick(d.source, alphaSpeech, otherSpeech), "input", strings.Repeat("word ", 100), "response_format", "wav")
	case 2:
		r.header["Idempotency-Key"] = "pieces-" + strconv.Itoa(r.number)
	}
	return obj("model", pieceImage, "prompt", "show", "n", raw(pick(d.source, "1", "4")))
}

// parts is what the gateway cuts into several calls: of one part the vendor
// refuses or fails, or the client disconnects between them.
func (d *generator) parts(r *request) *object {
	word := pick(d.source, "", "", flagged, absurd, waste)
	if word == "" {
		r.leaves = leaving(pick(d.source, 10, 60, 150, 320, 700))
	}
	if d.chance(400) {
		r.path = speechPath
		return obj("model", pick(d.source, alphaSpeech, otherSpeech), "input", strings.Repeat("Some words. ", 2_000)+word, "response_format", "wav")
	}
	r.path = vectorsPath
	texts := arr()
	for range 500 {
		texts.items = append(texts.items, strings.Repeat("word ", 40))
	}
	texts.items = append(texts.items, "the last "+word)
	return obj("model", plainVector, "input", texts)
}

// extras are members that cost money at some vendor and have no unit here, or choose
// another model or another account.
var extras = map[string][]string{
	messagesPath: {
		`"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5}]`,
		`"tools":[{"type":"code_execution_20250522","name":"code_execution"}]`,
		`"system":[{"type":"text","text":"` + strings.Repeat("word ", 4_000) + `","cache_control":{"type":"ephemeral","ttl":"1h"}}]`,
		`"speed":"fast"`,
		`"mcp_servers":[{"type":"url","url":"https://tools.example/","name":"a"}]`,
		`"service_tier":"priority"`,
		"", // of a context of a million, by a header
	},
	chatPath: {
		`"service_tier":"priority"`, `"web_search_options":{}`, `"modalities":["text","audio"],"audio":{"voice":"alloy","format":"wav"}`,
		`"models":["` + dearChat + `"]`, `"plugins":[{"id":"web"}]`, `"provider":{"order":["dearest"],"sort":"throughput"}`,
		`"api_base":"https://thief.example/v1"`, `"base_url":"https://thief.example/v1"`, `"fallbacks":["` + dearChat + `"]`,
	},
}

func (d *generator) extras(r *request) *object {
	d.chat(r, "")
	model, bound := plainChat, ""
	if r.path == messagesPath || d.chance(300) {
		r.path, model, bound = messagesPath, nativeChat, `"max_tokens":500,`
	}
	extra, prompt := pick(d.source, extras[r.path]...), d.words
	if extra == "" {
		r.header["Anthropic-Beta"], prompt = "context-1m-2025-08-07", strings.Repeat("word ", 20_000)
		extra = `"stream":false`
	}
	r.body = fmt.Appendf(nil, `{"model":%q,%s"messages":[{"role":"user","content":%q}],%s}`, model, bound, prompt, extra)
	return nil
}

// files are names of files in the vendors' accounts, which all customers share.
func (d *generator) files(r *request) *object {
	d.chat(r, "")
	r.path, r.barred = pick(d.source, chatPath, messagesPath), true
	name := obj()
	name.add(pick(d.source, "file_id", "File_ID"), "file-of-another")
	if d.chance(300) {
		name.members[0].quote = escaped("file_id")
	}
	var part *object
	switch {
	case r.path == chatPath && d.chance(500):
		kind := pick(d.source, "image_url", "video_url")
		part = obj("type", kind, kind, obj("url", "ms://file-of-another"))
	case r.path == chatPath:
		part = obj("type", "file", "file", name)
	case d.chance(300):
		part = name.set("type", "container_upload")
	default:
		part = obj("type", pick(d.source, "document", "image"), "source", name.set("type", "file"))
		if d.chance(300) {
			part = obj("type", "tool_result", "tool_use_id", "t", "content", arr(part))
		}
	}
	o := obj("model", pick(d.source, plainChat, renamedChat, nativeChat), "max_tokens", raw("500"), "messages", turn(arr(obj("type", "text", "text", d.words), part)))
	if d.chance(300) {
		o.set("stream", raw("true"))
	}
	return o
}

// storedItem and storedResponse stand for the ids that the request before has in its answer.
const storedItem, storedResponse = "STORED_ITEM", "STORED_RESPONSE"

// references are names of what is stored of a long answer: its item, up to hundreds of
// times, and conversations that go on from it.
func (d *generator) references(r *request) *object {
	d.words = "say " + strconv.Itoa(d.IntN(1_000_000)) + " "
	r.path = responsesPath
	ask := func(bound, say string, after *request) *request {
		o := obj("model", plainChat, "max_output_tokens", raw(bound), "store", raw("true"), "input", turn(say))
		if after != nil {
			o.set("previous_response_id", storedResponse)
		}
		return &request{number: r.number, class: r.class, tenant: r.tenant, key: r.key, path: r.path, content: r.content, body: []byte(text(o)), copies: 1, after: after}
	}
	r.after = ask("30000", "say "+long, nil)
	for range d.IntN(3) {
		r.after = ask("50", d.words, r.after)
	}
	input := turn(d.words)
	for range pick(d.source, 0, 5, 20, 400) {
		input.items = append(input.items, obj("type", "item_reference", "id", storedItem))
	}
	o := obj("model", pick(d.source, plainChat, cheapChat, nativeChat), "max_output_tokens", raw("500"), "input", input)
	if d.chance(500) {
		o.set("previous_response_id", storedResponse)
	}
	if d.chance(500) {
		o.set("stream", raw("true"))
		r.leaves = leaving(pick(d.source, 30, 150, 20_000))
	}
	return o
}

// random is a good request of any endpoint with hostile changes.
func (d *generator) random(r *request) *object {
	e := &endpoints[d.IntN(len(endpoints))]
	r.path = e.path
	o := d.body(e)
	for range d.IntN(3) {
		d.change(o)
	}
	if d.chance(200) {
		r.header["Idempotency-Key"] = fmt.Sprintf("shared-%d", d.IntN(8))
	}
	if d.chance(100) {
		r.header["Anthropic-Beta"] = pick(d.source, "interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "", "a,b")
	}
	if d.chance(350) {
		r.leaves = leaving(pick(d.source, 1, 10, 60, 150, 320, 1_000, 3_000, 10_000))
	}
	if d.chance(150) {
		r.copies = 2 + d.IntN(8)
	}
	if e.form {
		r.body, r.content = d.form(o)
	}
	return o
}

// change makes one hostile change somewhere in a request.
func (d *generator) change(o *object) {
	where := pick(d.source, objects(o)...)
	if d.chance(500) || len(where.members) == 0 {
		where = o
	}
	i := d.IntN(len(where.members))
	m := &where.members[i]
	switch d.IntN(15) {
	case 0:
		where.remove(m.name)
	case 1:
		m.value = raw("null")
	case 2:
		m.value = pick[any](d.source, raw("true"), raw("0"), raw("-1"), raw("1e400"), raw("1.0"), raw("1e0"), raw("9223372036854775808"), raw(`""`), arr(), obj(), "x", raw(`"\ud800"`), raw("NaN"))
	case 3: // twice
		where.add(m.name, pick[any](d.source, m.value, raw("50"), d.words+" "+long))
	case 4: // in other letters
		where.add(otherCase(d, m.name), pick[any](d.source, m.value, raw("50"), raw("true")))
	case 5: // escaped
		m.quote = escaped(m.name)
	case 6: // escaped, and twice
		where.add(m.name, raw("50"))
		where.members[len(where.members)-1].quote = escaped(m.name)
	case 7:
		m.value = raw(strings.Repeat(`{"a":[`, 40) + "1" + strings.Repeat("]}", 40))
	case 8:
		where.add(pick(d.source, "", "x", "\x00", "__proto__", "n ", "max_tokens\u0000"), pick[any](d.source, raw("1"), "x"))
	case 9:
		o.set("max_tokens", raw(pick(d.source, "1", "7", "30000", "60000")))
		o.set("max_completion_tokens", raw(pick(d.source, "1", "7", "30000", "60000")))
	case 10:
		o.set("stream", raw(pick(d.source, "true", "false", "null")))
		o.set("stream_options", pick[any](d.source, raw("null"), obj(), obj("include_usage", raw("false")), obj("include_usage", raw("true"), "include_obfuscation", raw("false"))))
	case 11:
		o.set("messages", arr(obj("role", "user", "content", arr(obj("type", "text", "text", d.words), d.medium()))))
	case 12:
		o.set("tools", arr(obj("type", "function", "function", obj("name", "f", "parameters", obj("type", "object", "description", strings.Repeat("deep ", 2_000))))))
	case 13:
		o.set("n", raw(pick(d.source, "1", "2", "5", "128", "129", "0", "-1")))
	default:
		o.set("service_tier", pick(d.source, "auto", "default", "flex", "priority"))
	}
}

// medium is a block that no reader of text counts.
func (d *generator) medium() *object {
	return pick(d.source,
		obj("type", "image_url", "image_url", obj("url", "https://media.example/a.png")),
		obj("type", "image_url", "image_url", obj("url", "data:image/png;base64,"+pixel)),
		obj("type", "video_url", "video_url", obj("url", "https://media.example/a.mp4")),
		obj("type", "input_audio", "input_audio", obj("data", pixel, "format", "wav")),
		obj("type", "file", "file", obj("file_data", "data:application/pdf;base64,"+pixel)))
}

// otherCase is a name in other letters.
func otherCase(d *generator, name string) string {
	return pick(d.source, strings.ToUpper(name), strings.ReplaceAll(name, "s", "\u017f"), strings.ReplaceAll(name, "k", "\u212a"), strings.ToUpper(name[:min(1, len(name))])+name[min(1, len(name)):])
}

// escaped is a name as JSON whose first letter is an escape.
func escaped(name string) string {
	if name == "" {
		return `""`
	}
	return fmt.Sprintf(`"\u%04x%s"`, name[0], strings.Trim(text(name[1:]), `"`))
}

// form is an object as multipart/form-data.
func (d *generator) form(o *object) (body []byte, content string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.SetBoundary("boundary-of-the-form")
	for i := range o.members {
		m := &o.members[i]
		if name := strings.TrimSuffix(m.name, "[]"); name == "image" || name == "mask" {
			if part, err := w.CreateFormFile(m.name, "a.png"); err == nil {
				_, _ = part.Write([]byte(picture))
			}
			continue
		}
		s, ok := m.value.(string)
		if !ok {
			s = text(m.value)
		}
		_ = w.WriteField(m.name, s) // a buffer takes everything
	}
	_ = w.Close()
	return b.Bytes(), w.FormDataContentType()
}

// goodRequest is a request of the tenant that does nothing wrong.
func goodRequest(number int) *request {
	say := "say something good " + strconv.Itoa(number)
	kinds := []struct {
		path string
		body *object
	}{
		{chatPath, obj("model", plainChat, "messages", turn(say), "max_completion_tokens", raw("200"))},
		{chatPath, obj("model", renamedChat, "messages", turn(say), "stream", raw("true"))},
		{messagesPath, obj("model", nativeChat, "messages", turn(say), "max_tokens", raw("300"))},
		{vectorsPath, obj("model", plainVector, "input", arr(say, "b"))},
		{chatPath, obj("model", ringChat, "messages", turn(say))},
		{imagesPath, obj("model", pieceImage, "prompt", say)},
		{speechPath, obj("model", alphaSpeech, "input", say, "response_format", "wav")},
		{messagesPath, obj("model", plainChat, "messages", turn(say), "max_tokens", raw("300"), "stream", raw("true"))},
		{imagesPath, obj("model", alphaImage, "input", obj("messages", turn(arr(obj("text", say)))))},
		{messagesPath, obj("model", ringChat, "messages", turn(say), "max_tokens", raw("300"), "stream", raw("true"))},
		{videosPath, obj("model", betaVideo, "input", obj("prompt", say))},
	}
	k := kinds[number%len(kinds)]
	return &request{
		number: number, class: "third tenant", tenant: thirdTenant, copies: 1, content: "application/json",
		header: map[string]string{"X-Session-Id": "good-" + strconv.Itoa(number)}, // has a key of its own of a ring
		path:   k.path, body: []byte(text(k.body)),
	}
}

// form is a form as a vendor reads it: the last of several fields counts.
type form struct {
	fields map[string]string
	files  int64
}

func readForm(contentType string, body []byte) (form, error) {
	f := form{fields: map[string]string{}}
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return f, err
	}
	r := multipart.NewReader(bytes.NewReader(body), parameters["boundary"])
	for {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		if p.FileName() != "" {
			f.files++
			continue
		}
		data, err := io.ReadAll(p)
		if err != nil {
			return f, err
		}
		f.fields[p.FormName()] = string(data)
	}
}
