package faultlab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// bill is what a vendor bills for one call.
type bill struct {
	model     string
	key       string // of the operator's, with which it was made
	what      []string
	total     billing.Money
	tolerance Tolerance
}

// vendors are all vendors: one HTTP server, which is another vendor under each
// host name. They read requests leniently, and record what they bill by the gateway's
// request ids, which the gateway is made to send along.
type vendors struct {
	mu    sync.Mutex
	bills map[string][]*bill
	tasks map[string]*task
	huge  bool // a call of this round had media that counted far above their bound

	largest int // bytes of a request
}

func newVendors() *vendors { return &vendors{bills: map[string][]*bill{}, tasks: map[string]*task{}} }

// correlation is the header that carries the gateway's request id.
const correlation = "X-Lab-Request"

// of are the bills of a request.
func (v *vendors) of(id string) []*bill {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bills[id]
}

// forget drops the bills of a request that was compared.
func (v *vendors) forget(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.bills, id)
}

// vendorCall is one call at a vendor, from its request to what it costs.
type vendorCall struct {
	v    *vendors
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	bill *bill
}

// ServeHTTP lets the vendor of the host answer.
func (v *vendors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c := &vendorCall{v: v, w: w, r: r, body: body, bill: &bill{key: r.Header.Get("Authorization")}}
	if r.Method == http.MethodPost {
		v.mu.Lock()
		v.largest = max(v.largest, len(body))
		id := r.Header.Get(correlation)
		v.bills[id] = append(v.bills[id], c.bill)
		v.mu.Unlock()
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/chat/completions"):
		c.chat()
	case strings.HasSuffix(path, "/messages"):
		c.messages()
	case strings.HasSuffix(path, "/count_tokens"):
		c.count()
	case strings.HasSuffix(path, "/images/generations"):
		c.picture()
	case strings.HasSuffix(path, "/images/edits"):
		c.edit()
	case strings.HasSuffix(path, "/embeddings"):
		c.vectors()
	case strings.HasSuffix(path, "/audio/speech"):
		c.speech()
	case strings.HasSuffix(path, "/multimodal-generation/generation"):
		c.alpha()
	case strings.HasSuffix(path, "/video-synthesis"):
		c.beta()
	case strings.HasSuffix(path, "/contents/generations/tasks"):
		c.gamma()
	case r.Method == http.MethodGet:
		c.progress(path[strings.LastIndexByte(path, '/')+1:])
	default:
		c.fail(http.StatusNotFound, "not_found", "no such path")
	}
}

// costs puts units on the bill.
func (c *vendorCall) costs(unit billing.Unit, variant string, n int64) billing.Money {
	sum := cost(c.bill.model, unit, variant, n)
	c.owes(fmt.Sprintf("%d %s%s", n, unit, variant), sum)
	return sum
}

// owes puts a sum on the bill.
func (c *vendorCall) owes(what string, sum billing.Money) {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	c.bill.what = append(c.bill.what, what)
	c.bill.total += sum
}

// bears notes what the operator bears by rule.
func (c *vendorCall) bears(t Tolerance) {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	c.bill.tolerance.add(t)
}

// wait waits; false if the gateway has gone before.
func (c *vendorCall) wait(d time.Duration) bool { return wait(c.r.Context(), d) }

// read reads the body as a lenient program does.
func (c *vendorCall) read(into any) bool {
	if err := json.Unmarshal(c.body, into); err != nil {
		c.fail(http.StatusBadRequest, "invalid_request_error", err.Error())
		return false
	}
	return true
}

// fail answers with an error, of which every vendor's reader finds the words.
func (c *vendorCall) fail(status int, code, message string) {
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		h.Set("Retry-After", "30")
	}
	c.w.WriteHeader(status)
	fmt.Fprintf(c.w, `{"type":"error","code":%q,"message":%q,"error":{"type":%q,"code":%q,"message":%q}}`, code, message, code, code, message)
}

// refuses answers what a prompt asks for that is no answer; true if it did.
func (c *vendorCall) refuses(prompt string, least func()) bool {
	switch {
	case !c.wait(30 * time.Millisecond):
		least()
	case strings.Contains(prompt, flagged):
		c.fail(http.StatusForbidden, "content_policy_violation", "Your input was flagged by moderation.")
	case strings.Contains(prompt, tooLarge):
		c.fail(http.StatusTooManyRequests, "tokens", "Request too large on tokens per min: Limit 30000, Requested 90000.")
	case strings.Contains(prompt, forbids):
		c.refusesBarely(http.StatusForbidden)
	case strings.Contains(prompt, unpaid):
		c.refusesBarely(http.StatusPaymentRequired)
	case strings.Contains(prompt, absurd):
		c.fail(http.StatusInternalServerError, "server_error", "The server had an error.")
	case strings.Contains(prompt, waste):
		least()
		c.wasted()
		c.fail(http.StatusInternalServerError, "server_error", "The server had an error after its work.")
	default:
		return false
	}
	return true
}

// refusesBarely refuses with nothing but a status.
func (c *vendorCall) refusesBarely(status int) { c.fail(status, "", http.StatusText(status)) }

// wasted notes that all of the bill is for a failed attempt.
func (c *vendorCall) wasted() {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	c.bill.tolerance = Tolerance{Waste: c.bill.total}
}

// answer is a whole answer.
func (c *vendorCall) answer(format string, args ...any) {
	c.w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(c.w, format, args...)
}

// event is one event of a stream.
func (c *vendorCall) event(name, format string, args ...any) bool {
	if name != "" {
		fmt.Fprintf(c.w, "event: %s\n", name)
	}
	_, err := fmt.Fprintf(c.w, "data: "+format+"\n\n", args...)
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
	return err == nil
}

// content is what a prompt holds.
type content struct {
	characters, images, others int64
	far                        bool // it has a medium that counts far above its bound
	text                       strings.Builder
}

// tokens are four characters each, beside the media.
func (t *content) tokens() int64 {
	return t.characters/4 + t.images*1_500 + t.others*20_000
}

// reads adds what a JSON value says. The names of members are text where they are
// the caller's own, as in the schema of a tool.
func (t *content) reads(data json.RawMessage, names bool) {
	var v any
	if json.Unmarshal(data, &v) == nil {
		t.walk(v, names)
	}
}

func (t *content) walk(v any, names bool) {
	switch v := v.(type) {
	case string:
		t.characters += int64(len(v))
		const most = 1 << 10 // words to do something for are short
		t.text.WriteString(v[:min(len(v), most)] + " ")
	case []any:
		for _, item := range v {
			t.walk(item, names)
		}
	case map[string]any:
		switch kind, _ := v["type"].(string); kind {
		case "image_url", "image":
			t.images++
			t.far = t.far || strings.Contains(fmt.Sprint(v), "far.example")
			return
		case "video_url", "audio_url", "input_audio", "file", "document":
			t.others++
			return
		}
		for name, value := range v {
			switch {
			case names:
				t.characters += int64(len(name))
			case name == "role" || name == "type":
				continue
			}
			t.walk(value, names || name == "tools" || name == "input_schema" || name == "parameters")
		}
	}
}

// pipes is a listener of connections without a network, and dials them.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept gives the other end of a connection that was dialled.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and every later dial.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr is of no use.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "hostile", Net: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// The models of the lab. Those of the demo cost what they cost there.
const (
	plainChat   = "sim-chat"
	renamedChat = "delta-k3" // its channel renames max_tokens
	droppedChat = "drop-chat"
	nativeChat  = "native-chat" // speaks Anthropic's wire
	hidingChat  = "hiding-chat" // reasons and does not show it, as the gateway knows
	dearChat    = "dear-chat"
	cheapChat   = "cheap-chat" // of which any account can pay for as much as may be sent
	ringChat    = "ring-chat"  // its channel has several keys
	tokenImage  = "imagegen-2"
	pieceImage  = "picture-1"
	alphaImage  = "alpha-image-2.0"
	alphaSpeech = "alpha3-tts-flash"
	otherSpeech = "voice-1"
	betaVideo   = "beta2.6-t2v"
	gammaVideo  = "gamma-2-0-260128"
	plainVector = "text-embedding-v4"
	otherVector = "voyage-3"
)

// hostilePrices are what the vendors bill, of a million tokens or characters, one
// picture or one second.
var hostilePrices = map[string]row{
	plainChat:   {{Unit: billing.Input, Amount: "0.10"}, {Unit: billing.Output, Amount: "0.40"}},
	renamedChat: {{Unit: billing.Input, Amount: "0.60"}, {Unit: billing.CachedInput, Amount: "0.15"}, {Unit: billing.Output, Amount: "2.50"}},
	droppedChat: {{Unit: billing.Input, Amount: "1.00"}, {Unit: billing.Output, Amount: "10.00"}},
	nativeChat: {
		{Unit: billing.Input, Amount: "3.00"}, {Unit: billing.CachedInput, Amount: "0.30"}, {Unit: billing.CacheWrite, Amount: "3.75"},
		{Unit: billing.Output, Amount: "15.00"},
	},
	hidingChat:  {{Unit: billing.Input, Amount: "1.00"}, {Unit: billing.Output, Amount: "10.00"}},
	dearChat:    {{Unit: billing.Input, Amount: "30.00"}, {Unit: billing.Output, Amount: "120.00"}},
	cheapChat:   {{Unit: billing.Input, Amount: "0.001"}, {Unit: billing.Output, Amount: "0.001"}},
	ringChat:    {{Unit: billing.Input, Amount: "1.00"}, {Unit: billing.Output, Amount: "10.00"}},
	tokenImage:  {{Unit: billing.Input, Amount: "5.00"}, {Unit: billing.ImageInput, Amount: "8.00"}, {Unit: billing.ImageOutput, Amount: "32.00"}},
	pieceImage:  {{Unit: billing.Image, Amount: "0.02"}},
	alphaImage:  {{Unit: billing.Image, Amount: "0.035"}},
	alphaSpeech: {{Unit: billing.Character, Amount: "10.00"}},
	otherSpeech: {{Unit: billing.Character, Amount: "15.00"}},
	betaVideo:   {{Unit: billing.Second, Variant: "720p", Amount: "0.10"}, {Unit: billing.Second, Variant: "1080p", Amount: "0.15"}},
	gammaVideo:  {{Unit: billing.Output, Amount: "7.00"}},
	plainVector: {{Unit: billing.Input, Amount: "0.07"}},
	otherVector: {{Unit: billing.Input, Amount: "0.06"}},
}

// cost is what so many units of a model cost at its vendor; what has no price is
// dear.
func cost(model string, unit billing.Unit, variant string, n int64) billing.Money {
	for _, r := range hostilePrices[model] {
		if r.Unit == unit && r.Variant == variant {
			sum, err := tally{unit: n}.cost(row{r})
			if err == nil {
				return billing.Money(sum)
			}
		}
	}
	return billing.Money(n) * billing.One
}
