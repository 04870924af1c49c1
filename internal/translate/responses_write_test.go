package translate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/responsestest"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// asked is a request for a response with these members besides its model, each after a
// comma.
func asked(members string) *responses.Request {
	data := []byte(`{"model":"public"` + members + `}`)
	r := new(responses.Request)
	o, err := rawjson.Index(data, nil, nil)
	if err := errors.Join(err, json.Unmarshal(data, r)); err != nil {
		panic(err) // the requests of these tests are sound
	}
	r.Body = upstream.ObjectBody(o)
	return r
}

// What a request asks of the thoughts.
const (
	summarized = `,"reasoning":{"summary":"auto"}`
	sealedBack = `,"include":["reasoning.encrypted_content"]`
)

// outOf is what the response to a request is written with. The tools besides functions
// are patch, which is custom; echo of the namespace mcp; exec, a custom one of code; and
// tool_search.
func outOf(r *responses.Request) *responseWriter {
	names := new(toolNames)
	for _, t := range []toolName{{"", "patch", customTool}, {"mcp", "echo", functionTool}, {"code", "exec", customTool}, {"", "tool_search", searchTool}} {
		names.add(t)
	}
	return &responseWriter{
		request: r, names: names, id: "resp_7", created: 77, now: func() time.Time { return time.Unix(79, 0) },
		seal: func(thoughts []byte) string { return "<" + string(thoughts) + ">" },
	}
}

func readsChat(to writer) reader { return &chatReader{to: to} }

func readsMessages(to writer) reader { return &messageReader{to: to} }

// responded is what the client of a response gets of a stream.
func responded(r *responses.Request, read func(to writer) reader, body io.Reader) (string, error) {
	s := newAnswerBody(context.Background(), io.NopCloser(body), read, outOf(r), true, new(Options))
	out, err := io.ReadAll(s)
	return string(out), errors.Join(err, s.Close())
}

// respondedWhole is what it gets of a whole answer.
func respondedWhole(r *responses.Request, read func(to writer) reader, body string) (string, error) {
	to := outOf(r)
	to.whole = true
	out, err := io.ReadAll(newAnswerBody(context.Background(), io.NopCloser(strings.NewReader(body)), read, to, false, new(Options)))
	return string(out), err
}

// itemsText is an output in short: its items one after the other, with the ids of calls.
func itemsText(r *responses.Response) string {
	var b strings.Builder
	for i := range r.Output {
		item := &r.Output[i]
		parts, _ := item.Content.Parts()
		var summary []responses.Part
		_ = json.Unmarshal(item.Summary, &summary) // is absent in other items
		switch item.Type {
		case "message":
			fmt.Fprintf(&b, "%s(%s%s)", parts[0].Type, parts[0].Text, parts[0].Refusal)
			for _, list := range []jsontext.Value{parts[0].Annotations, parts[0].Logprobs} {
				if len(list) > len("[]") {
					b.Write(list)
				}
			}
		case "reasoning":
			for _, p := range append(parts, summary...) {
				fmt.Fprintf(&b, "%s(%s)", p.Type, p.Text)
			}
			if item.EncryptedContent != nil {
				b.WriteString(*item.EncryptedContent)
			}
		case "function_call":
			arguments, _ := rawjson.String(item.Arguments)
			fmt.Fprintf(&b, "%s:%s.%s(%s)", item.CallID, item.Namespace, item.Name, arguments)
		case "custom_tool_call":
			fmt.Fprintf(&b, "%s:%s.%s[%s]", item.CallID, item.Namespace, item.Name, item.Input)
		default:
			fmt.Fprintf(&b, "%s:%s(%s)", item.CallID, item.Type, item.Arguments)
		}
		if item.Status != "completed" {
			b.WriteString("!" + item.Status)
		}
	}
	return b.String()
}

// statusText is how a response ended.
func statusText(r *responses.Response) string {
	if r.IncompleteDetails != nil {
		return r.Status + " " + r.IncompleteDetails.Reason
	}
	return r.Status
}

// custom is a chunk with a piece of a call of a custom tool.
func custom(arguments string) string {
	id, name := "", ""
	if strings.HasPrefix(arguments, "+") {
		id, name, arguments = "c", "patch", arguments[1:]
	}
	return callPiece(0, id, name, arguments)
}

// itemRows are chat streams without their [DONE], and the responses they become.
var itemRows = []struct {
	name, asks string
	stream     []string
	items      string
	status     string
}{
	{"text", "", []string{delta(`"content":"a"`), delta(`"content":"b"`), finish("stop")}, "output_text(ab)", "completed"},
	{"nothing", "", []string{delta(`"role":"assistant","content":""`), finish("stop")}, "", "completed"},
	{"no finish reason", "", []string{delta(`"content":"a"`)}, "output_text(a)", "completed"},
	{"text that is cut", "", []string{delta(`"content":"a"`), finish("length")}, "output_text(a)!incomplete", "incomplete max_output_tokens"},
	{"text that is filtered", "", []string{delta(`"content":"a"`), finish("content_filter")}, "output_text(a)!incomplete", "incomplete content_filter"},
	{"two finish reasons", "", []string{delta(`"content":"a"`), finish("stop"), finish("length")}, "output_text(a)!incomplete", "incomplete max_output_tokens"},
	{"text after the finish reason", "", []string{delta(`"content":"a"`), finish("stop"), delta(`"content":"b"`)}, "output_text(ab)", "completed"},
	{"heartbeats", "", []string{delta(``), `{"id":"","choices":[]}`, delta(`"content":"a"`), delta(`"content":null`), finish("stop")}, "output_text(a)", "completed"},
	{"tokens with their probabilities", "", []string{`{"choices":[{"delta":{"content":" "},"logprobs":{"content":[{"token":" "}]}}]}`, `{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"},` + "\ndata:" + ` {"token":"b"}]}}]}`, delta(`"content":"c"`), `{"choices":[{"delta":{"content":"d"},"logprobs":{"content":[{"token":"d"}]}}]}`, finish("stop")},
		`output_text( acd)[{"token":" "},{"token":"a"},{"token":"b"},{"token":"d"}]`, "completed"},
	{"citations", "", []string{delta(`"content":"a"`), delta(`"annotations":[{"type":"url_citation","url_citation":{"url":"u","title":"t"}},{"type":"x"}]`), delta(`"content":"b","annotations":[{"type":"url_citation","url_citation":{"url":"v"}}]`), finish("stop")},
		`output_text(ab)[{"url":"u","title":"t","type":"url_citation"},{"url":"v","type":"url_citation"}]`, "completed"},
	{"citations of nothing", "", []string{delta(`"annotations":[{"type":"url_citation","url_citation":{"url":"u"}}]`), delta(`"content":"a"`), finish("stop")}, "output_text(a)", "completed"},
	{"a refusal", "", []string{delta(`"refusal":"n"`), delta(`"refusal":"o"`), finish("stop")}, "refusal(no)", "completed"},
	{"text and a refusal", "", []string{delta(`"content":"a"`), delta(`"refusal":"no"`), finish("stop")}, "output_text(a)refusal(no)", "completed"},
	{"escapes", "", []string{delta(`"content":"\"\u00e9\n\ud83d\ude00"`), delta(`"content":"\u0000"`), finish("stop")}, "output_text(\"é\n😀\x00)", "completed"},

	{"thoughts", "", []string{delta(`"reasoning_content":"1"`), delta(`"reasoning":"2"`), delta(`"content":"a"`), finish("stop")}, "reasoning_text(12)output_text(a)", "completed"},
	{"thoughts in a list of blocks", "", []string{delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]`), delta(`"content":[{"type":"text","text":"a"}]`), finish("stop")}, "reasoning_text(hm)output_text(a)", "completed"},
	{"arguments that are an object", "", []string{delta(`"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":{"a":1.0}}}]`), finish("tool_calls")}, `1:.f({"a":1.0})`, "completed"},
	{"thoughts in summary", summarized, []string{delta(`"reasoning_content":"1"`), delta(`"reasoning":"2"`), delta(`"content":"a"`), finish("stop")}, "summary_text(12)output_text(a)", "completed"},
	{"thoughts by the older member", `,"reasoning":{"generate_summary":"auto"}`, []string{delta(`"reasoning":"2"`), finish("stop")}, "summary_text(2)", "completed"},
	{"thoughts that are sealed", sealedBack, []string{delta(`"reasoning_content":"1\"é"`), callPiece(0, "1", "f", `{}`), finish("tool_calls")},
		`reasoning_text(1"é)<{"model":"public","reasoning_content":"1\"é"}>1:.f({})`, "completed"},
	{"thoughts too large to be sealed", sealedBack, []string{delta(`"reasoning_content":"` + strings.Repeat("x", 64<<10) + `"`), finish("stop")}, "reasoning_text(" + strings.Repeat("x", 64<<10) + ")", "completed"},
	{"thoughts in turns", "", []string{delta(`"reasoning":"1"`), delta(`"content":"a"`), delta(`"reasoning":"2"`), callPiece(0, "1", "f", `{}`), delta(`"reasoning":"3"`), finish("stop")},
		"reasoning_text(1)output_text(a)reasoning_text(2)1:.f({})reasoning_text(3)", "completed"},
	{"thoughts that are cut", "", []string{delta(`"reasoning":"1"`), finish("length")}, "reasoning_text(1)!incomplete", "incomplete max_output_tokens"},

	{"one call", "", []string{callPiece(0, "1", "f", `{"a":`), callPiece(0, "", "", `"}"}`), finish("tool_calls")}, `1:.f({"a":"}"})`, "completed"},
	{"a call without arguments", "", []string{callPiece(0, "1", "f", ``), finish("tool_calls")}, `1:.f({})`, "completed"},
	{"blank arguments", "", []string{callPiece(0, "1", "f", " \n"), callPiece(0, "", "", "\t"), finish("tool_calls")}, `1:.f({})`, "completed"},
	{"arguments after white space", "", []string{callPiece(0, "1", "f", " \n"), callPiece(0, "", "", "{} "), finish("tool_calls")}, "1:.f( \n{} )", "completed"},
	{"a tool of a namespace", "", []string{callPiece(0, "1", "mcp__echo", `{}`), finish("tool_calls")}, `1:mcp.echo({})`, "completed"},
	{"a search for tools", "", []string{callPiece(0, "1", "tool_search", `{"q":`), callPiece(0, "", "", `1}`), callPiece(1, "2", "tool_search", `x`), callPiece(2, "3", "tool_search", ``), finish("tool_calls")},
		`1:tool_search_call({"q":1})2:tool_search_call({"_raw":"x"})!incomplete3:tool_search_call({})`, "completed"},
	{"calls one after the other", "", []string{callPiece(0, "1", "f", ""), callPiece(0, "", "", `{}`), callPiece(1, "2", "g", `{"b":`), callPiece(1, "", "", `[]}`), finish("tool_calls")}, `1:.f({})2:.g({"b":[]})`, "completed"},
	{"indexes from 1 with gaps", "", []string{callPiece(1, "1", "f", `{}`), callPiece(5, "2", "g", `{}`), finish("tool_calls")}, `1:.f({})2:.g({})`, "completed"},
	{"calls without an index", "", []string{delta(`"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{"}}]`), delta(`"tool_calls":[{"function":{"arguments":"}"}}]`), delta(`"tool_calls":[{"id":"2","function":{"name":"g","arguments":"{}"}}]`), finish("stop")}, `1:.f({})2:.g({})`, "completed"},
	{"interleaved calls", "", []string{callPiece(0, "1", "f", `{"a`), callPiece(1, "2", "g", `{"b`), callPiece(0, "", "", `":1`), callPiece(2, "3", "h", `{}`), callPiece(1, "", "", `":2}`), callPiece(0, "", "", `}`), finish("tool_calls")},
		`1:.f({"a":1})2:.g({"b":2})3:.h({})`, "completed"},
	{"text around calls", "", []string{delta(`"content":"a"`), callPiece(0, "1", "f", `{}`), delta(`"content":"b"`), callPiece(1, "2", "g", `{}`), finish("tool_calls")}, `output_text(a)1:.f({})output_text(b)2:.g({})`, "completed"},
	{"white space beside calls", "", []string{delta(`"content":"\n"`), callPiece(0, "1", "f", `{}`), delta(`"content":" \n"`), callPiece(1, "2", "g", `{}`), delta(`"content":"\t"`), finish("tool_calls")}, `1:.f({})2:.g({})`, "completed"},
	{"white space before text", "", []string{delta(`"content":"\n"`), delta(`"content":" a"`), finish("stop")}, "output_text(\n a)", "completed"},
	{"nothing but white space", "", []string{delta(`"content":"\n"`), finish("stop")}, "output_text(\n)", "completed"},
	{"the name after the id", "", []string{callPiece(0, "1", "", ``), delta(`"content":"a"`), callPiece(0, "", "f", `{}`), finish("tool_calls")}, `1:.f({})output_text(a)`, "completed"},
	{"the older form", "", []string{delta(`"function_call":{"name":"f","arguments":"{}"}`), finish("function_call")}, `call_d37724f41f943b88fdbb87ef:.f({})`, "completed"},
	{"one id for three calls", "", []string{callPiece(0, "c_2", "f", `{}`), callPiece(1, "c", "f", `{}`), callPiece(2, "c", "f", `{}`), callPiece(3, "c", "f", `{}`), finish("tool_calls")}, `c_2:.f({})c:.f({})c_3:.f({})c_4:.f({})`, "completed"},

	{"a custom tool", "", []string{custom(`+{"in`), custom(`put" : "a`), custom(`b\`), custom(`n\ud8`), custom(`3d\ude00\"}" }`), finish("tool_calls")}, "c:.patch[ab\n😀\"}]", "completed"},
	{"a custom tool of a namespace", "", []string{callPiece(0, "1", "code__exec", `{"input":"x"}`), finish("tool_calls")}, "1:code.exec[x]", "completed"},
	{"an input with what JSON does not allow", "", []string{custom("+{\"input\":\"a\nb\\d\\ud800x\\udc00\\u12g\"}"), finish("tool_calls")}, "c:.patch[a\nb\\d\ufffdx\ufffd\\u12g]", "completed"},
	{"an input that is empty", "", []string{custom(`+{"input":""}`), finish("tool_calls")}, "c:.patch[]", "completed"},
	{"no input", "", []string{custom(`+`), finish("tool_calls")}, "c:.patch[]", "completed"},
	{"an input and more", "", []string{custom(`+{"input":"a","b":1}`), finish("tool_calls")}, "c:.patch[a]", "completed"},
	{"another object", "", []string{custom(`+{"inp": "a"`), custom(`}`), finish("tool_calls")}, `c:.patch[{"inp": "a"}]`, "completed"},
	{"an input of another type", "", []string{custom(`+{"input": 5}`), finish("tool_calls")}, `c:.patch[{"input": 5}]`, "completed"},
	{"an input as it is", "", []string{custom(`+*** Begin`), custom(` "Patch"`), finish("tool_calls")}, `c:.patch[*** Begin "Patch"]`, "completed"},

	{"arguments that are cut", "", []string{delta(`"content":"a"`), callPiece(0, "1", "f", `{"a":`), finish("length")}, `output_text(a)`, "incomplete max_output_tokens"},
	{"arguments that are filtered", "", []string{callPiece(0, "1", "f", `{"a":`), finish("content_filter")}, ``, "incomplete content_filter"},
	{"arguments that are cut without a word", "", []string{callPiece(0, "1", "f", `{"a":"b`), finish("tool_calls")}, ``, "incomplete max_output_tokens"},
	{"arguments that are cut before they begin", "", []string{callPiece(0, "1", "f", `{}`), callPiece(1, "2", "g", ``), finish("length")}, `1:.f({})`, "incomplete max_output_tokens"},
	{"arguments that are cut before a vendor of messages sent any", "", []string{callPiece(0, "1", "f", `{}`), finish("length")}, ``, "incomplete max_output_tokens"},
	{"an answer that is cut after a call", "", []string{callPiece(0, "1", "f", `{"a":1}`), finish("length")}, `1:.f({"a":1})`, "incomplete max_output_tokens"},
	{"an input that is cut", "", []string{custom(`+{"input":"rm -r /tmp`), finish("tool_calls")}, ``, "incomplete max_output_tokens"},
	{"an input that is cut before it begins", "", []string{custom(`+{"inp`), finish("tool_calls")}, ``, "incomplete max_output_tokens"},
	{"another object that is cut", "", []string{custom(`+{"cmd":"rm -r /tmp`), finish("tool_calls")}, ``, "incomplete max_output_tokens"},
	{"an input as it is that is cut", "", []string{custom(`+*** Begin`), finish("length")}, ``, "incomplete max_output_tokens"},
	{"a search that is cut", "", []string{callPiece(0, "1", "tool_search", `{"q":`), finish("length")}, ``, "incomplete max_output_tokens"},
	{"what follows a call that is cut", "", []string{callPiece(0, "1", "f", `{`), callPiece(1, "2", "g", `{}`), delta(`"content":"t"`), finish("length")}, ``, "incomplete max_output_tokens"},
	{"arguments that are no JSON", "", []string{callPiece(0, "1", "f", `{a}`), callPiece(1, "2", "g", `{}`), finish("tool_calls")}, `1:.f({a})!incomplete2:.g({})`, "completed"},
}

func TestPiecesInAnyOrderMakeItemsInOrder(t *testing.T) {
	for _, row := range itemRows {
		t.Run(row.name, func(t *testing.T) {
			stream := chunks(append(row.stream, counts, done)...)
			out, err := responded(asked(row.asks), readsChat, strings.NewReader(stream))
			if err := errors.Join(err, responsestest.Check([]byte(out), responsestest.Vendor)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			again, err := responded(asked(row.asks), readsChat, iotest.OneByteReader(strings.NewReader(stream)))
			if err := errors.Join(err, responsestest.Check([]byte(again), responsestest.Vendor)); err != nil {
				t.Errorf("byte by byte: %v\n%s", err, again)
			}
			for _, events := range []string{out, again} {
				r, err := responsestest.Accumulate([]byte(events))
				if err != nil {
					t.Fatal(err)
				}
				if got, status := itemsText(r), statusText(r); got != row.items || status != row.status {
					t.Errorf("got  %s, %s\nwant %s, %s", got, status, row.items, row.status)
				}
			}
		})
	}
}

func TestAChatStreamBecomesEventsOfAResponse(t *testing.T) {
	r := asked(summarized + sealedBack + `,"instructions":"Be\u0020brief.","temperature":0.10,"metadata":{ "a" : "b" },
		"tools":[{"type":"function","name":"f"},
			{"type":"custom","name":"patch"}],"text":{"verbosity":"low"},"max_output_tokens":null`)
	out, err := responded(r, readsChat, strings.NewReader(chunks(delta(`"role":"assistant"`), delta(`"reasoning_content":"h"`), delta(`"reasoning_content":"m"`),
		delta(`"content":"\n"`), delta(`"content":"Hi"`), callPiece(0, "c1", "mcp__echo", ""), callPiece(0, "", "", `{"a"`), callPiece(0, "", "", `: 1}`),
		callPiece(1, "c2", "patch", `{"input":"a\`), callPiece(1, "", "", `nb"}`), callPiece(2, "c3", "tool_search", `{"q":1}`), delta(`"refusal":"no"`), finish("tool_calls"), counts, done)))
	if err := errors.Join(err, responsestest.Check([]byte(out), responsestest.Vendor)); err != nil {
		t.Fatal(err)
	}
	capabilitytest.Golden(t, *update, "response_of_chat_stream.golden", []byte(out))
}

func TestAStreamOfAMessageBecomesEventsOfAResponse(t *testing.T) {
	out, err := responded(asked(sealedBack), readsMessages, iotest.OneByteReader(strings.NewReader(richStream()))) // how much comes together does not matter
	if err := errors.Join(err, responsestest.Check([]byte(out), responsestest.Vendor)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	capabilitytest.Golden(t, *update, "response_of_message_stream.golden", []byte(out))
}

func TestAWholeMessageIsWhatItsStreamAddsUpTo(t *testing.T) {
	whole, err := respondedWhole(asked(sealedBack), readsMessages, vendorAnswer(`"content":`+richContent()+`,"stop_reason":"tool_use",`+vendorUsage))
	stream, streamErr := responded(asked(sealedBack), readsMessages, strings.NewReader(richStream()))
	if err := errors.Join(err, streamErr); err != nil {
		t.Fatal(err)
	}
	sameResponse(t, whole, stream)
}

// sameResponse checks that a stream adds up to a whole response.
func sameResponse(t interface {
	Helper()
	Fatalf(string, ...any)
}, whole, stream string) {
	t.Helper()
	r, err := responsestest.Accumulate([]byte(stream))
	if err != nil {
		t.Fatalf("%v\n%s", err, stream)
	}
	got, want := r.Raw.Clone(), jsontext.Value(whole)
	if err := errors.Join(got.Canonicalize(), want.Canonicalize()); err != nil || string(got) != string(want) {
		t.Fatalf("%v\ngot  %s\nwant %s", err, got, want)
	}
}

// TestAWholeCompletionIsWhatItsStreamAddsUpTo makes answers of any parts, and streams of
// them in any pieces, of which those of calls are mixed where each has whole arguments.
func TestAWholeCompletionIsWhatItsStreamAddsUpTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab \n\t\"\\{}[]é😀\x00")), 0, 8, -1)
		arguments := rapid.OneOf(
			rapid.Map(text, func(s string) string { return `{"input":` + quoted(s) + `}` }),
			rapid.SampledFrom([]string{`{}`, `{"a": [1, {}]}`, ` {"input" : "\ud83d\ude00\u0041\\"}`}),
		)
		mixed := rapid.Bool().Draw(t, "mixed")
		if !mixed {
			arguments = rapid.OneOf(arguments, text, rapid.SampledFrom([]string{"", " ", `{"input":"a`, `{"a":`, `{"input":"\ud8`, `null`, `"x"`}))
		}
		members := map[string]string{}
		var payloads []string
		for _, name := range []string{"reasoning_content", "content", "refusal"} {
			if members[name] = rapid.OneOf(rapid.Just(""), text).Draw(t, name); members[name] != "" {
				for _, piece := range cut(t, members[name]) {
					payloads = append(payloads, delta(quoted(name)+":"+quoted(piece)))
				}
			}
		}
		var calls []string
		open := map[int][]string{}
		for i := range rapid.IntRange(0, 4).Draw(t, "calls") {
			id := rapid.SampledFrom([]string{"", "1", "c"}).Draw(t, "id")
			name := rapid.SampledFrom([]string{"f", "patch", "mcp__echo", "code__exec", "tool_search"}).Draw(t, "name")
			all := arguments.Draw(t, "arguments")
			calls = append(calls, `{"id":`+quoted(id)+`,"function":{"name":`+quoted(name)+`,"arguments":`+quoted(all)+`}}`)
			open[i] = []string{delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%s,"function":{"name":%s}}]`, i+1, quoted(id), quoted(name)))}
			for _, piece := range cut(t, all) {
				open[i] = append(open[i], delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":%s}}]`, i+1, quoted(piece))))
			}
			payloads = append(payloads, open[i][0])
			if open[i] = open[i][1:]; !mixed {
				payloads = append(payloads, open[i]...)
				delete(open, i)
			}
		}
		for len(open) > 0 {
			i := rapid.SampledFrom(slices.Sorted(maps.Keys(open))).Draw(t, "next")
			if len(open[i]) == 0 {
				delete(open, i)
				continue
			}
			payloads, open[i] = append(payloads, open[i][0]), open[i][1:]
		}
		reason := rapid.SampledFrom([]string{"stop", "tool_calls", "length", "content_filter"}).Draw(t, "reason")
		asks := rapid.SampledFrom([]string{"", summarized + sealedBack}).Draw(t, "asks")
		whole, err := respondedWhole(asked(asks), readsChat, fmt.Sprintf(`{"id":"chatcmpl-7","choices":[{"message":{"reasoning_content":%s,"content":%s,"refusal":%s,"tool_calls":[%s]},"finish_reason":%q}],%s`,
			quoted(members["reasoning_content"]), quoted(members["content"]), quoted(members["refusal"]), strings.Join(calls, ","), reason, counts[strings.Index(counts, `"usage"`):]))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := responded(asked(asks), readsChat, strings.NewReader(chunks(append(payloads, finish(reason), counts, done)...)))
		if err != nil {
			t.Fatal(err)
		}
		sameResponse(t, whole, stream)
	})
}

func TestThoughtsThatOnlyTheirVendorReadsAreSealed(t *testing.T) {
	redacted := []string{vendorStart, blockStart("0", `{"type":"redacted_thinking","data":"xx"}`), blockEnd("0"), blockStart("1", `{"type":"text","text":"a"}`), blockEnd("1"), vendorEnd, vendorStop}
	for asks, want := range map[string]string{
		"":         "output_text(a)",
		sealedBack: `<{"model":"public","reasoning_content":"","reasoning_signature":"r2.xx"}>output_text(a)`,
	} {
		out, err := responded(asked(asks), readsMessages, strings.NewReader(vendorEvents(redacted...)))
		r, wrong := responsestest.Accumulate([]byte(out))
		if err := errors.Join(err, wrong); err != nil {
			t.Fatal(err)
		}
		if got := itemsText(r); got != want {
			t.Errorf("%q: got %s, want %s", asks, got, want)
		}
	}
}

func TestThoughtsAreSealedForNoOneWithoutASeal(t *testing.T) {
	o := outOf(asked(sealedBack))
	o.seal = nil
	s := newAnswerBody(context.Background(), io.NopCloser(strings.NewReader(chunks(delta(`"reasoning":"1"`), finish("stop"), done))), readsChat, o, true, new(Options))
	out, err := io.ReadAll(s)
	if err != nil || strings.Contains(string(out), "encrypted_content") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAVendorsSignOfLifeIsAnEventThatClientsKnow(t *testing.T) {
	out, err := responded(asked(""), readsMessages, strings.NewReader(vendorEvents(vendorStart, vendorPing, vendorEnd, vendorStop)))
	if err := errors.Join(err, responsestest.Check([]byte(out), responsestest.Vendor)); err != nil || !strings.Contains(out, `data: {"type":"keepalive","sequence_number":2}`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTheUsageOfAResponseIsWholeOrAbsent(t *testing.T) {
	for name, row := range map[string]struct{ usage, want string }{
		"all":         {`{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}}`, `{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":12}`},
		"no details":  {`{"prompt_tokens":9,"completion_tokens":3}`, `{"input_tokens":9,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":12}`},
		"half of it":  {`{"completion_tokens":3}`, `null`},
		"none":        {`null`, `null`},
		"not counted": {`{"prompt_tokens":"x"}`, `null`},
	} {
		got, err := respondedWhole(asked(""), readsChat, `{"id":"chatcmpl-7","choices":[{"message":{"content":"a"}}],"usage":`+row.usage+`}`)
		if usage := string(rawjson.Lookup([]byte(got), "usage")); err != nil || usage != row.want {
			t.Errorf("%s: %s, %v; want %s", name, usage, err, row.want)
		}
	}
}

func TestAResponseRepeatsItsRequest(t *testing.T) {
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	inGo := &responses.Request{Model: "public", Instructions: responses.Text("hi"), PreviousResponseID: "resp_1"}
	for name, row := range map[string]struct {
		request      *responses.Request
		member, want string
	}{
		"as it is written":              {asked(`,"instructions":"\u0061","tools":[{"type":"custom", "name":"p"}]`), "instructions", `"\u0061"`},
		"in one line":                   {asked(",\"metadata\":{\n\"a\" : 1.0}"), "metadata", `{"a":1.0}`},
		"what clients want of tools":    {asked(`,"tools":[{"type":"custom","name":"p"},{"type":"function","name":"f","strict":true}]`), "tools", `[{"type":"custom","name":"p"},{"type":"function","name":"f","strict":true,"description":null,"parameters":null}]`},
		"what clients want of text":     {asked(`,"text":{"verbosity":"low"}`), "text", `{"verbosity":"low","format":{"type":"text"}}`},
		"what clients want of thoughts": {asked(""), "reasoning", `{"effort":null,"summary":null}`},
		"a member that is absent":       {asked(""), "temperature", `1`},
		"a member that is null":         {asked(`,"tool_choice":null`), "tool_choice", `"auto"`},
		"one that is too large":         {asked(`,"instructions":` + long), "instructions", `null`},
		"a request in Go":               {inGo, "instructions", `"hi"`},
		"its chain":                     {inGo, "previous_response_id", `"resp_1"`},
		"the public model":              {asked(""), "model", `"public"`},
		"that it is not kept":           {asked(`,"store":true`), "store", `false`},
		"the times":                     {asked(""), "completed_at", `79`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := respondedWhole(row.request, readsChat, `{"id":"chatcmpl-7","choices":[{"message":{"content":"a"}}]}`)
			if m := string(rawjson.Lookup([]byte(got), row.member)); err != nil || m != row.want {
				t.Errorf("got %s, %v, want %s", m, err, row.want)
			}
		})
	}
}

func TestAResponseThatGoesWrongEndsInAnErrorAfterWhatCame(t *testing.T) {
	held := strings.Repeat("x", 1<<20)
	var interleaved, endless []string
	for range 6 {
		interleaved = append(interleaved, callPiece(0, "1", "f", `{"a":"`), callPiece(1, "2", "g", `{"b":"`+held))
	}
	for range 7 {
		endless = append(endless, delta(`"content":"`+held+`"`))
	}
	for name, row := range map[string]struct {
		stream string
		ends   string
	}{
		"a cut in a call":            {chunks(callPiece(0, "1", "f", `{"a":`)), "response.function_call_arguments.delta"},
		"a cut before the finish":    {chunks(delta(`"content":"a"`)), "response.output_text.delta"},
		"an error":                   {chunks(delta(`"content":"a"`), `{"error":{"message":"x"}}`), "response.output_text.delta"},
		"no JSON":                    {chunks(delta(`"content":"a"`), `{`), "response.output_text.delta"},
		"a call without a name":      {chunks(callPiece(0, "1", "", `{}`), done), "response.in_progress"},
		"calls that keep others out": {chunks(append(interleaved, done)...), "response.function_call_arguments.delta"},
		"more than an event holds":   {chunks(append(endless, done)...), "response.output_text.delta"},
		"nothing":                    {chunks(done), ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := responded(asked(""), readsChat, strings.NewReader(row.stream))
			if !fault.Is(err, fault.BadGateway) {
				t.Errorf("it ends with %v", err)
			}
			if err := responsestest.Check([]byte(out), responsestest.Cut); err != nil {
				t.Error(err)
			}
			last := out[strings.LastIndex(out, "event: ")+1:]
			if name, _, _ := strings.Cut(strings.TrimPrefix(last, "vent: "), "\n"); name != row.ends {
				t.Errorf("the last event is %q, want %q", name, row.ends)
			}
		})
	}
}

// TestEventsAreInOrderWhateverAVendorOfChatSends has chunks in any order. Calls come with and
// without an index, an id and a name in any of their pieces, mixed with each other and with
// text. Finish reasons, counts, errors and an end come anywhere.
func TestEventsAreInOrderWhateverAVendorOfChatSends(t *testing.T) {
	chunk := rapid.Custom(func(t *rapid.T) string {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		switch rapid.IntRange(0, 19).Draw(t, "kind") {
		case 0, 1:
			return delta(`"content":` + pick("text", `""`, `"\n"`, `" "`, `"a"`, `"\u00e9\""`, `null`))
		case 2:
			return delta(`"reasoning_content":` + pick("thought", `""`, `"\n"`, `"hm"`))
		case 3:
			return delta(`"refusal":` + pick("refusal", `"no"`, `null`))
		case 4:
			return finish(pick("reason", "stop", "length", "tool_calls", "content_filter", "other"))
		case 5:
			return pick("rare", counts, `{"choices":[]}`, delta(``), delta(`"annotations":[{"url_citation":{"url":"u"}}]`), done, `{"error":{"message":"x"}}`, `{`,
				delta(`"function_call":{"name":"f","arguments":"{"}`), delta(`"content":"a","reasoning":"b","tool_calls":[{"function":{"name":"f"}},{"index":3,"id":"9"}]`))
		}
		return delta(`"tool_calls":[{` + pick("index", ``, `"index":0,`, `"index":1,`, `"index":2,`, `"index":7,`) + pick("id", ``, ``, `"id":"",`, `"id":"1",`, `"id":"2",`) +
			`"function":{` + pick("name", ``, ``, ``, `"name":"f",`, `"name":"patch",`, `"name":"tool_search",`, `"name":"code__exec",`) +
			`"arguments":` + pick("arguments", `""`, `"{}"`, `"{"`, `"}"`, `"{\"input\":\""`, `"\"}"`, `"\\"`, `"\\ud83d"`, `" "`, `"x"`, `"[1]"`) + `}}]`)
	})
	ended := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		stream := chunks(append(rapid.SliceOfN(chunk, 0, 12).Draw(t, "chunks"), rapid.SampledFrom([]string{finish("stop"), done, `{`}).Draw(t, "end"))...)
		out, err := responded(asked(sealedBack), readsChat, strings.NewReader(stream))
		end := responsestest.Vendor
		if err != nil {
			end = responsestest.Cut
		}
		if wrong := responsestest.Check([]byte(out), end); wrong != nil || err != nil && !fault.Is(err, fault.BadGateway) {
			t.Fatalf("%v, %v\n%s\n%s", err, wrong, stream, out)
		}
		client, meter := throughTheTap(t, out, err)
		if wrong := responsestest.Check(client, responsestest.Done); wrong != nil {
			t.Fatalf("%v, and the client %v\n%s", err, wrong, client)
		}
		apart, cut := responded(asked(sealedBack), readsChat, iotest.OneByteReader(strings.NewReader(stream)))
		if _, want := throughTheTap(t, apart, cut); meter.DeliveredText != want.DeliveredText || meter.Usage() != want.Usage() || (err == nil) != (cut == nil) {
			t.Fatalf("together %+v, %+v, %v; apart %+v, %+v, %v\n%s", meter.DeliveredText, meter.Usage(), err, want.DeliveredText, want.Usage(), cut, stream)
		}
		ended[err == nil]++
	})
	if !testing.Short() && (ended[true] == 0 || ended[false] == 0) { // twenty tries can all fail
		t.Errorf("whole and failed: %v", ended)
	}
}

// throughTheTap is what a client gets of a translated stream that ended with err, and the
// tap with what it has counted.
func throughTheTap(t *rapid.T, stream string, err error) (client []byte, tap *responsesop.Tap) {
	tap = (&responsesop.Request{Request: asked("")}).NewTap(operation.AnswerOptions{NewID: func(string) string { return "resp_own" }}).(*responsesop.Tap)
	events := sse.NewReader(strings.NewReader(stream), 0)
	defer events.Release()
	for done := false; ; {
		e, end := events.Next()
		if errors.Is(end, io.EOF) && done == (err == nil) {
			break
		}
		if end == nil {
			client, done, end = tap.Event(client, e.Name, e.Data)
		}
		if end != nil {
			t.Fatalf("%v, done: %t\n%s", end, done, stream)
		}
	}
	if err != nil {
		return tap.AppendError(client, fault.From(err)), tap
	}
	return append(client, tap.Terminator()...), tap
}

// TestTextThatCameTogetherLeavesInOneEvent: what one read gives of a text is one delta, up
// to a bound; nothing waits for another read, nor is lost with an answer that is cut.
func TestTextThatCameTogetherLeavesInOneEvent(t *testing.T) {
	long, large := strings.Repeat("x", 300), strings.Repeat("y", 4<<10) // after which the reader has room for all
	says := func(text string) string { return chunks(delta(`"content":"` + text + `"`)) }
	for _, c := range []struct {
		name   string
		reads  []string
		deltas []string
	}{
		{"one read", []string{says("a") + says("b") + says("c")}, []string{"abc"}},
		{"a read each", []string{says("a"), says("b") + says("c")}, []string{"a", "bc"}},
		{"more than is gathered", []string{says(large), says(long) + says(long) + says("c")}, []string{large, long + long, "c"}},
		{"half a chunk more", []string{says("a") + says("b") + says("c")[:9], says("c")[9:]}, []string{"ab", "c"}},
		{"other text between", []string{says("a") + chunks(delta(`"refusal":"no"`)) + says("b") + says("c")}, []string{"a", "no", "bc"}},
		{"what is no chunk", []string{says("a") + says("b") + "data: {\n\n" + says("c")}, []string{"ab"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reads []io.Reader
			for _, read := range c.reads {
				reads = append(reads, strings.NewReader(read))
			}
			out, err := responded(asked(""), readsChat, io.MultiReader(reads...))
			if !fault.Is(err, fault.BadGateway) {
				t.Fatal(err)
			}
			var got []string
			for _, line := range strings.Split(out, "\n") {
				if o, err := rawjson.Index([]byte(strings.TrimPrefix(line, "data: ")), nil, nil); err == nil && o.Raw("delta") != nil {
					text, _ := rawjson.String(o.Raw("delta"))
					got = append(got, text)
				}
			}
			if !slices.Equal(got, c.deltas) {
				t.Errorf("deltas %q, want %q", got, c.deltas)
			}
		})
	}
}

// FuzzAResponseIsWellFormedOrFails: whatever an upstream sends, its events are in order,
// and only a whole answer ends without an error.
func FuzzAResponseIsWellFormedOrFails(f *testing.F) {
	for _, row := range itemRows {
		f.Add(chunks(append(row.stream, counts, done)...))
		f.Add(chunks(row.stream...))
	}
	for _, row := range answerRows {
		f.Add(`{"id":"a","choices":[{"message":` + row.message + `,"finish_reason":` + row.finish + `}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
	}
	f.Add(richStream())
	f.Add(`data:{"choices":[{"delta":{"content":"0"},"delta":{"annotations":[{"url_citation":{"":"","":""}}]}}]}`)
	f.Add(vendorAnswer(`"content":` + richContent() + `,"stop_reason":"tool_use",` + vendorUsage))
	f.Fuzz(func(t *testing.T, body string) {
		for _, read := range []func(to writer) reader{readsChat, readsMessages} {
			for _, asks := range []string{"", summarized + sealedBack} {
				out, err := responded(asked(asks), read, strings.NewReader(body))
				end := responsestest.Vendor
				if err != nil {
					end = responsestest.Cut
				}
				if wrong := responsestest.Check([]byte(out), end); wrong != nil || err != nil && !fault.Is(err, fault.BadGateway) {
					t.Fatalf("%v, %v\n%s", err, wrong, out)
				}
				if complete := strings.Contains(out, "event: response.completed\n") || strings.Contains(out, "event: response.incomplete\n"); complete != (err == nil) {
					t.Fatalf("%v\n%s", err, out)
				}
				whole, err := respondedWhole(asked(asks), read, body)
				o, wrong := rawjson.Index([]byte(whole), nil, nil)
				if err != nil && !fault.Is(err, fault.BadGateway) || err == nil && (wrong != nil || string(o.Raw("object")) != `"response"`) {
					t.Fatalf("%s, %v, %v", whole, err, wrong)
				}
			}
		}
	})
}

// BenchmarkAStream is what a stream of 200 pieces of chat costs as each wire.
func BenchmarkAStream(b *testing.B) {
	var text []string
	for range 200 {
		text = append(text, delta(`"content":" a word or two"`))
	}
	stream := chunks(append(text, finish("stop"), counts, done)...)
	request := asked("")
	for name, to := range map[string]func() writer{
		"message":  func() writer { return &messageWriter{} },
		"chat":     func() writer { return &chunkWriter{model: "public"} },
		"response": func() writer { return outOf(request) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := newAnswerBody(context.Background(), io.NopCloser(strings.NewReader(stream)), readsChat, to(), true, new(Options))
				if _, err := io.Copy(io.Discard, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
