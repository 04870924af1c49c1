package translate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
)

// chunks is a chat stream of these payloads.
func chunks(payloads ...string) string {
	var b strings.Builder
	for _, p := range payloads {
		fmt.Fprintf(&b, "data: %s\n\n", p)
	}
	return b.String()
}

// delta is a chunk with a delta.
func delta(members string) string {
	return `{"id":"chatcmpl-7","choices":[{"index":0,"delta":{` + members + `},"finish_reason":null}]}`
}

// callPiece is a chunk with a piece of a tool call.
func callPiece(index int, id, name, arguments string) string {
	return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%q,"function":{"name":%q,"arguments":%q}}]`, index, id, name, arguments))
}

// finish is the chunk that says why the model stopped.
func finish(reason string) string {
	return `{"id":"chatcmpl-7","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

const (
	done   = "[DONE]"
	counts = `{"id":"chatcmpl-7","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}`
)

// streamed translates a stream to its end.
func streamed(r *messages.Request, body io.Reader) (string, error) {
	s := fromChatStream(r, io.NopCloser(body))
	out, err := io.ReadAll(s)
	return string(out), errors.Join(err, s.Close())
}

func TestAStreamOfChunksBecomesAStreamOfEvents(t *testing.T) {
	got, err := streamed(thinker(), strings.NewReader(chunks(delta(`"role":"assistant"`), delta(`"reasoning_content":"h"`), delta(`"reasoning_content":"m"`),
		delta(`"content":"Hi"`), callPiece(0, "c1", "f", ""), callPiece(0, "", "", `{"a"`), callPiece(0, "", "", `: 1}`), finish("tool_calls"), counts, done)))
	if err != nil {
		t.Fatal(err)
	}
	capabilitytest.Golden(t, *update, "backfromchat_stream.golden", []byte(got))
}

// streamRows are streams without their [DONE], and what a client makes of them.
var streamRows = []struct {
	name    string
	stream  []string
	content string
	reason  string
}{
	{"text", []string{delta(`"content":"a"`), delta(`"content":"b"`), finish("stop")}, "text(ab)", "end_turn"},
	{"nothing", []string{delta(`"role":"assistant","content":""`), finish("stop")}, "", "end_turn"},
	{"a stream without a finish reason", []string{delta(`"content":"a"`)}, "text(a)", "end_turn"},
	{"heartbeats", []string{delta(``), `{"id":"","choices":[]}`, `{"choices":[{"delta":null}]}`, delta(`"content":"a"`), delta(`"content":null`), finish("length"), delta(``)}, "text(a)", "max_tokens"},
	{"thoughts and text in turns", []string{delta(`"reasoning":"1"`), delta(`"content":"a"`), delta(`"reasoning_content":"2"`), delta(`"content":"b"`), finish("stop")},
		"thinking(1)text(a)thinking(2)text(b)", "end_turn"},
	{"a thought and text in one chunk", []string{delta(`"content":"a","reasoning_content":"1"`), finish("stop")}, "thinking(1)text(a)", "end_turn"},
	{"a refusal", []string{delta(`"refusal":"n"`), delta(`"refusal":"o"`), finish("stop")}, "text(no)", "refusal"},
	{"text after the finish reason", []string{delta(`"content":"a"`), finish("stop"), delta(`"content":"b"`)}, "text(a)text(b)", "end_turn"},
	{"another candidate", []string{delta(`"content":"a"`), `{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"length"}]}`, finish("stop")}, "text(a)", "end_turn"},

	{"one call", []string{callPiece(0, "1", "f", `{"a":`), callPiece(0, "", "", `"}"}`), finish("tool_calls")}, `1:f({"a":"}"})`, "tool_use"},
	{"a call that is finished by stop", []string{callPiece(0, "1", "f", `{}`), finish("stop")}, `1:f({})`, "tool_use"},
	{"a call without arguments", []string{callPiece(0, "1", "f", ``), finish("tool_calls")}, `1:f({})`, "tool_use"},
	{"a call that is cut by max_tokens", []string{callPiece(0, "1", "f", `{"a":`), finish("length")}, `1:f({"a":)`, "max_tokens"},
	{"calls one after the other", []string{callPiece(0, "1", "f", ""), callPiece(0, "", "", `{}`), callPiece(1, "2", "g", `{"b":`), callPiece(1, "", "", `[]}`), finish("tool_calls")},
		`1:f({})2:g({"b":[]})`, "tool_use"},
	{"interleaved calls", []string{callPiece(0, "1", "f", `{"a`), callPiece(1, "2", "g", `{"b`), callPiece(0, "", "", `":1`), callPiece(2, "3", "h", `{}`), callPiece(1, "", "", `":2}`), callPiece(0, "", "", `}`), finish("tool_calls")},
		`1:f({"a":1})2:g({"b":2})3:h({})`, "tool_use"},
	{"a quote and a bracket in a string", []string{callPiece(0, "1", "f", `{"a":"\"}`), callPiece(1, "2", "g", `{}`), callPiece(0, "", "", `b"}`), finish("tool_calls")}, `1:f({"a":"\"}b"})2:g({})`, "tool_use"},
	{"calls that wait for each other to the end", []string{callPiece(0, "1", "f", `{`), callPiece(1, "2", "g", `{`), delta(`"content":"t"`), callPiece(1, "", "", `}`), finish("length")},
		`1:f({)2:g({})text(t)`, "max_tokens"},
	{"two calls in one chunk", []string{delta(`"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"2","function":{"name":"g","arguments":"{}"}}]`), finish("tool_calls")},
		`1:f({})2:g({})`, "tool_use"},
	{"text around calls", []string{delta(`"content":"a"`), callPiece(0, "1", "f", `{}`), delta(`"content":"b"`), callPiece(1, "2", "g", `{}`), finish("tool_calls")},
		`text(a)1:f({})text(b)2:g({})`, "tool_use"},
	{"the id and the name in every piece", []string{callPiece(0, "1", "f", `{"a"`), callPiece(0, "1", "f", `:1}`), callPiece(1, "2", "g", `{}`), finish("tool_calls")}, `1:f({"a":1})2:g({})`, "tool_use"},
	{"the name after the id", []string{callPiece(0, "1", "", ``), delta(`"content":"a"`), callPiece(0, "", "f", `{}`), finish("tool_calls")}, `1:f({})text(a)`, "tool_use"},
	{"all calls numbered 0", []string{callPiece(0, "1", "f", `{}`), callPiece(0, "2", "f", `{}`), finish("tool_calls")}, `1:f({})2:f({})`, "tool_use"},
	{"all calls numbered 0 and without an id", []string{callPiece(0, "", "f", `{}`), callPiece(0, "", "f", `{}`), finish("tool_calls")}, `toolu_7_0:f({})toolu_7_1:f({})`, "tool_use"},
	{"calls without a number", []string{delta(`"tool_calls":[{"function":{"name":"f","arguments":"{"}}]`), delta(`"tool_calls":[{"function":{"arguments":"}"}}]`), delta(`"tool_calls":[{"function":{"name":"g","arguments":"{}"}}]`), finish("stop")},
		`toolu_7_0:f({})toolu_7_1:g({})`, "tool_use"},
	{"blank arguments after whole ones", []string{callPiece(0, "1", "f", `{}`), callPiece(1, "2", "g", `{}`), callPiece(0, "", "", "\n"), finish("stop")}, `1:f({})2:g({})`, "tool_use"},
	{"the older form", []string{delta(`"function_call":{"name":"f","arguments":""}`), delta(`"function_call":{"arguments":"{}"}`), finish("function_call")}, `toolu_7_0:f({})`, "tool_use"},
}

func TestPiecesInAnyOrderMakeBlocksInOrder(t *testing.T) {
	for _, row := range streamRows {
		whole := chunks(append(row.stream, done)...)
		for name, body := range map[string]io.Reader{"at once": strings.NewReader(whole), "byte by byte": iotest.OneByteReader(strings.NewReader(whole))} {
			out, err := streamed(thinker(), body)
			if err != nil {
				t.Errorf("%s %s: %v", row.name, name, err)
				continue
			}
			c, err := follow([]byte(out))
			if err != nil || !c.over {
				t.Errorf("%s %s: %v\n%s", row.name, name, err, out)
				continue
			}
			if got := blocksText(c.message.Content); got != row.content || *c.message.StopReason != row.reason {
				t.Errorf("%s %s: %s, %s; want %s, %s", row.name, name, got, *c.message.StopReason, row.content, row.reason)
			}
			if c.message.ID != "msg_7" || c.message.Model != "public" || c.message.Role != "assistant" || c.message.Type != "message" {
				t.Errorf("%s %s: %+v", row.name, name, c.message)
			}
		}
	}
}

func TestAStreamShowsThinkingOnlyToWhoAsksForIt(t *testing.T) {
	body := chunks(delta(`"reasoning_content":"r"`), delta(`"content":"a"`), finish("stop"), done)
	for want, r := range map[string]*messages.Request{"text(a)": {Model: "public"}, "thinking(r)text(a)": thinker()} {
		out, err := streamed(r, strings.NewReader(body))
		c, wrong := follow([]byte(out))
		if got := blocksText(c.message.Content); err != nil || wrong != nil || got != want {
			t.Errorf("%s, %v, %v; want %s", got, err, wrong, want)
		}
	}
}

func TestTheLastEventHasTheWholeUsage(t *testing.T) {
	const want = `{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":3,"output_tokens_details":{"thinking_tokens":1}}`
	for name, stream := range map[string]string{
		"after the finish reason":  chunks(delta(`"content":"a"`), finish("stop"), counts, done),
		"without [DONE]":           chunks(delta(`"content":"a"`), finish("stop"), counts),
		"before the finish reason": chunks(delta(`"content":"a"`), counts, finish("stop"), done),
		"in the choice": chunks(`{"id":"chatcmpl-7","choices":[{"delta":{"content":"a"},"finish_reason":"stop",
			"usage":{"prompt_tokens":5,"completion_tokens":3,"cached_tokens":4,"completion_tokens_details":{"reasoning_tokens":1}}}]}`, done),
		"twice": chunks(`{"id":"chatcmpl-7","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, finish("stop"), counts, done),
	} {
		out, err := streamed(thinker(), strings.NewReader(strings.ReplaceAll(stream, "\n\t\t\t", "")))
		c, wrong := follow([]byte(out))
		if err != nil || wrong != nil || !c.over || string(c.usage) != want {
			t.Errorf("%s: %v, %v, %s", name, err, wrong, c.usage)
		}
	}
	out, err := streamed(thinker(), strings.NewReader(chunks(delta(`"content":"a"`), finish("stop"), done)))
	if c, wrong := follow([]byte(out)); err != nil || wrong != nil || string(c.usage) != "{}" {
		t.Errorf("not reported: %v, %v, %s", err, wrong, c.usage)
	}
}

func TestAStreamThatGoesWrongEndsInAnError(t *testing.T) {
	const a = "text(a)"
	for _, row := range []struct{ name, stream, content string }{
		{"an empty body", "", ""},
		{"only [DONE]", chunks(done), ""},
		{"cut after text", chunks(delta(`"content":"a"`)), a},
		{"cut after the finish reason", chunks(delta(`"content":"a"`), finish("stop")), a},
		{"an error frame", chunks(delta(`"content":"a"`), `{"error":{"message":"secret words","code":"x"}}`), a},
		{"an error first", chunks(`{"error":{"message":"secret words"}}`), ""},
		{"an error event", chunks(delta(`"content":"a"`)) + "event: error\ndata: {\"message\":\"secret words\"}\n\n" + chunks(finish("stop"), counts, done), a},
		{"a chunk that is no JSON", chunks(delta(`"content":"a"`), `{"choices":`), a},
		{"a chunk of another form", chunks(delta(`"content":"a"`), `{"choices":{}}`), a},
		{"a chunk that is no object", chunks(delta(`"content":"a"`), `[]`), a},
		{"a call without a name", chunks(delta(`"content":"a"`), callPiece(0, "1", "", "{}"), finish("stop"), done), a},
		{"a call that goes on after its end", chunks(callPiece(0, "1", "f", "{}"), callPiece(1, "2", "g", "{"), callPiece(0, "1", "", "{}"), done), "1:f({})2:g({)"},
	} {
		out, err := streamed(thinker(), strings.NewReader(row.stream))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.BadGateway || strings.Contains(err.Error(), "secret words") {
			t.Errorf("%s: %v", row.name, err)
		}
		c, wrong := follow([]byte(out))
		if got := blocksText(c.message.Content); wrong != nil || c.over || got != row.content {
			t.Errorf("%s: %v, %s", row.name, wrong, out)
		}
	}
}

func TestAnErrorOfTheBodyComesAfterWhatWasRead(t *testing.T) {
	broken := errors.New("broken")
	body := io.MultiReader(strings.NewReader(chunks(delta(`"content":"a"`))), iotest.ErrReader(broken))
	out, err := streamed(thinker(), body)
	if c, wrong := follow([]byte(out)); !errors.Is(err, broken) || wrong != nil || blocksText(c.message.Content) != "text(a)" {
		t.Errorf("%v, %v: %s", err, wrong, out)
	}
}

func TestAStreamThatIsCutAnywhereIsNeverTakenForAWholeOne(t *testing.T) {
	whole := chunks(delta(`"reasoning_content":"h"`), delta(`"content":"a"`), callPiece(0, "1", "f", `{"a":1}`), finish("tool_calls"), counts, done)
	last := strings.Index(whole, counts) + len(counts) // from here on it is known that nothing is missing
	for n := range len(whole) {
		out, err := streamed(thinker(), strings.NewReader(whole[:n]))
		c, wrong := follow([]byte(out))
		if wrong != nil || (err == nil) != c.over || c.over != (n >= last) {
			t.Fatalf("cut after %d of %d bytes: %v, %v, over: %t", n, len(whole), err, wrong, c.over)
		}
	}
}

func TestWhatWaitsForItsTurnIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(chunks(callPiece(0, "1", "f", "{")))
	for range 9 {
		b.WriteString(chunks(callPiece(1, "2", "g", strings.Repeat("x", 1<<20))))
	}
	if _, err := streamed(thinker(), strings.NewReader(b.String()+chunks(finish("stop"), done))); !fault.Is(err, fault.BadGateway) {
		t.Errorf("many bytes: %v", err)
	}
	if _, err := streamed(thinker(), strings.NewReader(chunks(delta(`"content":"`+strings.Repeat("x", 9<<20)+`"`), done))); !fault.Is(err, fault.BadGateway) {
		t.Errorf("a large event: %v", err)
	}
	b.Reset()
	for i := range 6 { // never more than 2 MiB at a time
		b.WriteString(chunks(callPiece(2*i, "a", "f", "{"), callPiece(2*i+1, "b", "g", `{"x":"`+strings.Repeat("x", 2<<20)), callPiece(2*i, "", "", "}"), callPiece(2*i+1, "", "", `"}`)))
	}
	if _, err := streamed(thinker(), strings.NewReader(b.String()+chunks(finish("stop"), done))); err != nil {
		t.Errorf("many bytes one after the other: %v", err)
	}
	b.Reset()
	for i := range 1025 {
		b.WriteString(chunks(callPiece(i, fmt.Sprint(i), "f", "{}")))
	}
	if _, err := streamed(thinker(), strings.NewReader(b.String()+chunks(finish("stop"), done))); !fault.Is(err, fault.BadGateway) {
		t.Errorf("many calls: %v", err)
	}
}

func TestEveryChunkIsHandedOnAtOnce(t *testing.T) {
	from, to := io.Pipe()
	s := fromChatStream(thinker(), from)
	buf := make([]byte, 64<<10)
	for _, step := range []struct{ chunk, want string }{
		{chunks(`{"id":"chatcmpl-7","choices":[]}`), "message_start"},
		{chunks(delta(`"content":"a"`)), "text_delta"},
		{chunks(delta(``)) + chunks(delta(`"content":"b"`)), "text_delta"},
		{chunks(finish("stop")), "content_block_stop"},
		{chunks(counts), "message_stop"},
	} {
		go func() { _, _ = io.WriteString(to, step.chunk) }()
		n, err := s.Read(buf)
		if err != nil || !strings.Contains(string(buf[:n]), step.want) {
			t.Fatalf("%s: %q, %v", step.chunk, buf[:n], err)
		}
	}
	go func() {
		_, _ = io.WriteString(to, chunks(done))
		_ = to.Close()
	}()
	if n, err := s.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("after the end: %q, %v", buf[:n], err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestClosingAStreamEndsAReadThatWaits(t *testing.T) {
	from, to := io.Pipe()
	s := fromChatStream(thinker(), from)
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(s)
		read <- err
	}()
	if _, err := io.WriteString(to, "data: {"); err != nil { // returns when it was read
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the read ends with %v", err)
	}
}

func TestASmallBufferLosesNothing(t *testing.T) {
	body := chunks(delta(`"content":"a"`), finish("stop"), counts, done)
	want, err := streamed(thinker(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(iotest.OneByteReader(fromChatStream(thinker(), io.NopCloser(strings.NewReader(body)))))
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if n, err := fromChatStream(thinker(), io.NopCloser(strings.NewReader(body))).Read(nil); n != 0 || err != nil {
		t.Errorf("no buffer at all: %d, %v", n, err)
	}
}

func TestTheGatewayReadsATranslatedStreamLikeAnyOther(t *testing.T) {
	for tail, estimated := range map[string]bool{chunks(counts, done): false, chunks(done): true} {
		r := thinker()
		events := sse.NewReader(fromChatStream(r, io.NopCloser(strings.NewReader(chunks(delta(`"content":"four words of text"`), finish("stop"))+tail))), 0)
		tap := (&messagesapi.Request{Request: r}).NewTap(messagesapi.TapOptions{})
		for complete := false; !complete; {
			e, err := events.Next()
			if err == nil {
				_, complete, err = tap.Event(nil, e.Name, e.Data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		u := tap.Usage()
		if u.Estimated != estimated || u.Output < 3 || !estimated && (u.Input != 1 || u.CachedInput != 4 || u.Output != 3) {
			t.Errorf("estimated: %t, want %t: %+v", u.Estimated, estimated, u)
		}
	}
}

// told is what a client makes of a stream of a message.
type told struct {
	message messages.Response // as message_start has it, with the content that followed
	started bool
	open    bool // a block is open
	stopped bool // message_delta came
	over    bool // message_stop came
	usage   jsontext.Value
}

// follow reads events as a strict client does: it fails at the first that is out
// of order.
func follow(stream []byte) (told, error) {
	var c told
	events := sse.NewReader(bytes.NewReader(stream), 0)
	defer events.Release()
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err == nil {
			err = c.take(e.Name, e.Data)
		}
		if err != nil {
			return c, err
		}
	}
}

// heard is any event.
type heard struct {
	Type    string            `json:"type"`
	Index   int               `json:"index"`
	Message messages.Response `json:"message"`
	Block   messages.Block    `json:"content_block"`
	Delta   struct {
		Type       string  `json:"type"`
		Text       string  `json:"text"`
		Thinking   string  `json:"thinking"`
		Signature  string  `json:"signature"`
		Partial    string  `json:"partial_json"`
		StopReason *string `json:"stop_reason"`
	} `json:"delta"`
	Usage jsontext.Value `json:"usage"`
}

func (c *told) take(name string, data []byte) error {
	var e heard
	if err := json.Unmarshal(data, &e, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	wrong := fmt.Errorf("out of order: %s", data)
	switch {
	case e.Type != name || c.over:
		return wrong
	case e.Type == "message_start" && !c.started:
		c.started, c.message = true, e.Message
		if len(e.Message.Content) > 0 || e.Message.StopReason != nil {
			return wrong
		}
	case !c.started:
		return wrong
	case e.Type == hiddenEvent: // for the tap
	case e.Type == "content_block_start" && !c.open && !c.stopped && e.Index == len(c.message.Content):
		c.open, c.message.Content = true, append(c.message.Content, e.Block)
		c.message.Content[e.Index].Input = nil
	case e.Type == "content_block_delta" && c.open && e.Index == len(c.message.Content)-1:
		return addTo(&c.message.Content[e.Index], &e)
	case e.Type == "content_block_stop" && c.open && e.Index == len(c.message.Content)-1:
		c.open = false
		b := &c.message.Content[e.Index]
		if b.Type == "thinking" && *b.Signature == "" {
			return fmt.Errorf("unsigned: %s", data)
		}
		if b.Type == "tool_use" && b.Input == nil {
			b.Input = jsontext.Value("{}")
		}
	case e.Type == "message_delta" && !c.open && !c.stopped && e.Delta.StopReason != nil:
		c.stopped, c.message.StopReason, c.usage = true, e.Delta.StopReason, e.Usage
	case e.Type == "message_stop" && c.stopped:
		c.over = true
	default:
		return wrong
	}
	return nil
}

// addTo puts a delta to the open block.
func addTo(b *messages.Block, e *heard) error {
	switch b.Type + " " + e.Delta.Type {
	case "text text_delta":
		b.Text += e.Delta.Text
	case "thinking thinking_delta":
		b.Thinking += e.Delta.Thinking
	case "thinking signature_delta":
		b.Signature = &e.Delta.Signature
	case "tool_use input_json_delta":
		b.Input = append(b.Input, e.Delta.Partial...)
	default:
		return fmt.Errorf("a %s in a block of %s", e.Delta.Type, b.Type)
	}
	return nil
}

// blocksText is content in short: its blocks one after the other.
func blocksText(blocks []messages.Block) string {
	var b bytes.Buffer
	for i := range blocks {
		switch block := &blocks[i]; block.Type {
		case "text":
			fmt.Fprintf(&b, "text(%s)", block.Text)
		case "thinking":
			fmt.Fprintf(&b, "thinking(%s)", block.Thinking)
		case "tool_use":
			fmt.Fprintf(&b, "%s:%s(%s)", block.ID, block.Name, block.Input)
		default:
			fmt.Fprintf(&b, "?%s", block.Type)
		}
	}
	return b.String()
}
