package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// chunks is how many a stream has.
const chunks = 100

// playVendor is a model vendor that answers at once, without a model. The
// arguments are the time between the chunks of a slow stream and, for one that
// speaks TLS, the directory of its certificate and the protocol.
func playVendor(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	every, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	var secure *tls.Config
	if len(args) == 3 {
		if secure, err = tlsConfig(args[1], args[2]); err != nil {
			return err
		}
	}
	return serve(ctx, vendor{every, sixtyFour()}, secure, "", in, out)
}

// vendors are one for each protocol: plain HTTP/1.1 is "", the others have TLS.
type vendors struct {
	origins map[string]string // by protocol
	all     []*process
	dir     string // of the certificate
}

// startVendors also has the processes that are started afterwards trust the
// vendors' certificate.
func startVendors(ctx context.Context, o options) (*vendors, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	v := &vendors{origins: map[string]string{}, dir: dir}
	if err := errors.Join(certify(dir), os.Setenv(certificateVariable, filepath.Join(dir, certificateFile))); err != nil {
		v.stop()
		return nil, err
	}
	for _, protocol := range []string{"", "http/1.1", "h2"} {
		args, scheme := []string{"vendor", o.every.String()}, "http://"
		if protocol != "" {
			args, scheme = append(args, dir, protocol), "https://"
		}
		p, err := start(ctx, o.procs, args...)
		if err != nil {
			v.stop()
			return nil, err
		}
		v.all = append(v.all, p)
		v.origins[protocol] = scheme + p.address
	}
	return v, nil
}

func (v *vendors) stop() {
	for _, p := range v.all {
		p.stop()
	}
	_ = os.RemoveAll(v.dir)
}

type vendor struct {
	every   time.Duration
	vectors string // the answer for embeddings
}

// sixtyFour is the answer to 64 texts: 1,024 numbers each, as vendors spell them.
func sixtyFour() string {
	var b strings.Builder
	b.WriteString(`{"object":"list","data":[`)
	for i := range 64 {
		fmt.Fprintf(&b, `%s{"object":"embedding","index":%d,"embedding":[0.0123456789%s]}`,
			strings.Repeat(",", min(i, 1)), i, strings.Repeat(",-0.02468101", 1023))
	}
	b.WriteString(`],"model":"vendor-model","usage":{"prompt_tokens":1024,"total_tokens":1024}}`)
	return b.String()
}

// ServeHTTP does what words in the request's body say.
func (v vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/images/edits") {
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		whole(w, `{"created":1700000000,"data":[{"b64_json":"aGk="}],"usage":{"input_tokens":120,"output_tokens":16}}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case bytes.Contains(body, []byte("Think about it")):
		time.Sleep(overloadThink)
		whole(w, spoken(r).answer)
	case bytes.Contains(body, []byte("At great length")):
		largeAnswer(w, spoken(r).answer)
	case strings.HasSuffix(r.URL.Path, "/embeddings"):
		whole(w, v.vectors)
	case !bytes.Contains(body, []byte(`"stream":true`)):
		whole(w, spoken(r).answer)
	case bytes.Contains(body, []byte("forever")):
		stream(w, r, spoken(r), time.Second, 1<<20)
	case bytes.Contains(body, []byte("slowly")):
		stream(w, r, spoken(r), v.every, chunks)
	case bytes.Contains(body, []byte("Spare nothing")):
		stream(w, r, &fullWire, 0, chunks)
	default:
		stream(w, r, spoken(r), 0, chunks)
	}
}

// whole writes one document. A proxy that went away is noticed by the load.
func whole(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = io.WriteString(w, text)
}

// stream writes and flushes chunk by chunk.
func stream(w http.ResponseWriter, r *http.Request, say *wire, every time.Duration, count int) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	_, _ = io.WriteString(w, say.first)
	for range count {
		if every > 0 {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(every):
			}
		}
		if _, err := io.WriteString(w, say.chunk); err != nil || control.Flush() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, say.last)
}

// wire is what the vendor says: a whole answer, or the parts of a stream.
type wire struct{ answer, first, chunk, last string }

// spoken is the wire of the path that was asked.
func spoken(r *http.Request) *wire {
	switch {
	case strings.HasSuffix(r.URL.Path, "/messages"):
		return &anthropicWire
	case strings.HasSuffix(r.URL.Path, "/responses"):
		return &responsesWire
	}
	return &openAIWire
}

var openAIWire = wire{
	answer: `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"vendor-model",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"The toll is two pence for the cart and one for each horse."},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":120,"completion_tokens":16,"total_tokens":136}}`,
	chunk: `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"vendor-model",` +
		`"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n",
	last: `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"vendor-model",` +
		`"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":100,"total_tokens":220}}` + "\n\n" + "data: [DONE]\n\n",
}

// fullWire is a stream of chat completions with all that OpenAI sends in a chunk
// (https://platform.openai.com/docs/api-reference/chat-streaming), as the stream of
// responses has it.
var fullWire = wire{
	chunk: `data: {"id":"chatcmpl-BmZ8yUuN0bTq1v0r2Xk5m3s7d9f0a","object":"chat.completion.chunk","created":1700000000,"model":"vendor-model","service_tier":"default","system_fingerprint":"fp_44709d6fcb",` +
		`"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"8Kd2mVxQ0aZ"}` + "\n\n",
	last: openAIWire.last,
}

var anthropicWire = wire{
	answer: `{"id":"msg_1","type":"message","role":"assistant","model":"vendor-model",` +
		`"content":[{"type":"text","text":"The toll is two pence for the cart and one for each horse."}],` +
		`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":120,"output_tokens":16}}`,
	first: event("message_start", `"message":{"id":"msg_1","type":"message","role":"assistant","model":"vendor-model","content":[],`+
		`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":120,"output_tokens":1}}`) +
		event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`),
	chunk: event("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":" word"}`),
	last: event("content_block_stop", `"index":0`) +
		event("message_delta", `"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":100}`) +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
}

// responsesWire has less of what a response repeats of its request than OpenAI's. The
// numbers of its deltas do not count, which costs a proxy as much as if they did.
var responsesWire = wire{
	answer: responseIn("completed", strings.Replace(responseMessage(), responseText(), "The toll is two pence for the cart and one for each horse.", 1),
		`{"input_tokens":120,"input_tokens_details":{"cached_tokens":0},"output_tokens":16,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":136}`),
	first: event("response.created", `"sequence_number":0,"response":`+responseIn("in_progress", "", "null")) +
		event("response.in_progress", `"sequence_number":1,"response":`+responseIn("in_progress", "", "null")) +
		event("response.output_item.added", `"sequence_number":2,"output_index":0,"item":{"type":"message","id":"msg_1","status":"in_progress","role":"assistant","content":[]}`) +
		event("response.content_part.added", `"sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`),
	chunk: event("response.output_text.delta", `"item_id":"msg_1","output_index":0,"content_index":0,"delta":" word","logprobs":[],"sequence_number":17,"obfuscation":"8Kd2mVxQ0aZ"`),
	last: event("response.output_text.done", `"sequence_number":104,"item_id":"msg_1","output_index":0,"content_index":0,"text":"`+responseText()+`","logprobs":[]`) +
		event("response.content_part.done", `"sequence_number":105,"item_id":"msg_1","output_index":0,"content_index":0,"part":`+responsePart()) +
		event("response.output_item.done", `"sequence_number":106,"output_index":0,"item":`+responseMessage()) +
		event("response.completed", `"sequence_number":107,"response":`+responseIn("completed", responseMessage(),
			`{"input_tokens":120,"input_tokens_details":{"cached_tokens":0},"output_tokens":100,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":220}`)),
}

// responseText is what a response says.
func responseText() string { return strings.Repeat(" word", chunks) }

// responsePart is the part of a response that says it.
func responsePart() string {
	return `{"type":"output_text","text":"` + responseText() + `","annotations":[],"logprobs":[]}`
}

// responseMessage is the message that has the part.
func responseMessage() string {
	return `{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[` + responsePart() + `]}`
}

// responseIn is a response in a state.
func responseIn(status, output, usage string) string {
	return `{"id":"resp_1","object":"response","created_at":1700000000,"status":"` + status + `","error":null,"incomplete_details":null,"instructions":null,` +
		`"max_output_tokens":200,"model":"vendor-model","output":[` + output + `],"parallel_tool_calls":true,"previous_response_id":null,"store":false,` +
		`"temperature":0.5,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled","usage":` + usage + `,"user":null,"metadata":{}}`
}

// event is one that says its own name, as Anthropic's and those of responses do.
func event(name, rest string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"," + rest + "}\n\n"
}
