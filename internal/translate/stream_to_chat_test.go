package translate

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// vendorEvents writes a stream out of its events' data.
func vendorEvents(events ...string) string {
	var b []byte
	for _, e := range events {
		var kind struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal([]byte(e), &kind) // a test may want what is no JSON
		b = sse.AppendEvent(b, kind.Type, []byte(e))
	}
	return string(b)
}

const (
	vendorStart = `{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"vendor-large","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":6,"output_tokens":1}}}`
	vendorPing  = `{"type":"ping"}`
	vendorEnd   = `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":5,"output_tokens_details":{"thinking_tokens":2}}}`
	vendorStop  = `{"type":"message_stop"}`
)

func blockStart(index, block string) string {
	return `{"type":"content_block_start","index":` + index + `,"content_block":` + block + `}`
}

func blockDelta(index, delta string) string {
	return `{"type":"content_block_delta","index":` + index + `,"delta":` + delta + `}`
}

func blockEnd(index string) string { return `{"type":"content_block_stop","index":` + index + `}` }

// richStream has everything that a stream can have.
func richStream() string {
	return vendorEvents(vendorStart, vendorPing,
		blockStart("0", `{"type":"thinking","thinking":"","signature":""}`),
		blockDelta("0", `{"type":"thinking_delta","thinking":"h\u00e9 "}`), blockDelta("0", `{"type":"thinking_delta","thinking":"\"so\""}`),
		blockDelta("0", `{"type":"signature_delta","signature":"s1"}`), blockEnd("0"),
		blockStart("1", `{"type":"redacted_thinking","data":"xx"}`), blockEnd("1"),
		blockStart("2", `{"type":"text","text":""}`), vendorPing,
		blockDelta("2", `{"type":"text_delta","text":"let "}`), blockDelta("2", `{"type":"text_delta","text":"me\n"}`),
		blockDelta("2", `{"type":"citations_delta","citation":{}}`), blockDelta("2", `{"type":"new_delta"}`), blockEnd("2"),
		blockStart("3", `{"type":"tool_use","id":"t1","name":"f","input":{}}`),
		blockDelta("3", `{"type":"input_json_delta","partial_json":""}`), blockDelta("3", `{"type":"input_json_delta","partial_json":"{\"a\":"}`),
		blockDelta("3", `{"type":"input_json_delta","partial_json":"[1,2]}"}`), blockEnd("3"),
		blockStart("4", `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), blockDelta("4", `{"type":"input_json_delta","partial_json":"{}"}`), blockEnd("4"),
		blockStart("5", `{"type":"tool_use","id":"t2","name":"g","input":{}}`), blockDelta("5", `{"type":"input_json_delta","partial_json":""}`), blockEnd("5"),
		`{"type":"news"}`, vendorEnd, vendorStop)
}

func richContent() string {
	return `[{"type":"thinking","thinking":"hé \"so\"","signature":"s1"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"let me\n"},{"type":"tool_use","id":"t1","name":"f","input":{"a":[1,2]}},{"type":"tool_use","id":"t2","name":"g","input":{}}]`
}

// richChunks is what a client of chat gets of it.
func richChunks() string {
	chunk := func(choice string) string {
		return `data: {"id":"chatcmpl-01","object":"chat.completion.chunk","created":77,"model":"m","choices":[` + choice + `}` + "\n\n"
	}
	delta := func(members string) string {
		return chunk(`{"index":0,"delta":{` + members + `},"finish_reason":null}]`)
	}
	return chunk(`{"index":0,"delta":{"role":"assistant"},"finish_reason":null,"usage":{"prompt_tokens":20,"prompt_tokens_details":{"cached_tokens":6,"cache_write_tokens":4}}}]`) +
		delta(``) + delta(`"reasoning_content":"h\u00e9 "`) + delta(`"reasoning_content":"\"so\""`) + delta(`"reasoning_signature":"t8.2.s1"`) + delta(`"reasoning_signature":"r2.xx"`) +
		delta(``) + delta(`"content":"let "`) + delta(`"content":"me\n"`) +
		delta(`"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]`) +
		delta(`"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]`) + delta(`"tool_calls":[{"index":0,"function":{"arguments":"[1,2]}"}}]`) +
		delta(`"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"g","arguments":""}}]`) + delta(`"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]`) +
		chunk(`{"index":0,"delta":{},"finish_reason":"tool_calls"}]`) + chunk(`],`+chatUsage) + sse.Done
}

// chunksOf reads a whole translated stream.
func chunksOf(t testing.TB, src io.Reader) (string, error) {
	t.Helper()
	got, err := io.ReadAll(toChatStream(plainChat(t), io.NopCloser(src), 77))
	return string(got), err
}

func TestAStreamOfAMessageBecomesOneOfChunks(t *testing.T) {
	for name, src := range map[string]io.Reader{
		"at once":      strings.NewReader(richStream()),
		"byte by byte": iotest.OneByteReader(strings.NewReader(richStream())),
	} {
		got, err := chunksOf(t, src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(richChunks(), got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestAStreamThatIsCutAnywhereEndsInAnError(t *testing.T) {
	whole := richStream()
	complete := strings.LastIndex(whole, vendorStop) + len(vendorStop) // what follows is the blank line
	for n := range len(whole) {
		got, err := chunksOf(t, strings.NewReader(whole[:n]))
		if n < complete && (!fault.Is(err, fault.BadGateway) || strings.Contains(got, "[DONE]")) {
			t.Fatalf("cut at %d: %v after %q", n, err, got)
		}
		if n >= complete && err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if !strings.HasPrefix(richChunks(), got) {
			t.Fatalf("cut at %d: %q", n, got)
		}
	}
}

func TestAStreamThatIsNoMessageEndsInAnErrorAfterWhatCame(t *testing.T) {
	text := blockStart("0", `{"type":"text","text":"a"}`)
	for name, bad := range map[string]string{
		"an error":             `{"type":"error","error":{"type":"overloaded_error","message":"sk-secret"}}`,
		"an error by name":     "\nevent: error\ndata: {\"message\":\"sk-secret\"}\n\n",
		"no JSON":              `{"type":`,
		"a terminator of chat": `[DONE]`,
		"a second message":     vendorStart,
		"no index":             `{"type":"content_block_start","content_block":{"type":"text"}}`,
		"no block":             `{"type":"content_block_start","index":1}`,
		"no such block":        blockDelta("1", `{"type":"text_delta","text":"b"}`),
		"no delta":             `{"type":"content_block_delta","index":0}`,
		"a call without id":    blockStart("1", `{"type":"tool_use","name":"f"}`),
		"a call without name":  blockStart("1", `{"type":"tool_use","id":"t1"}`),
	} {
		stream := vendorEvents(vendorStart, text)
		if strings.HasPrefix(bad, "\n") {
			stream += bad
		} else {
			stream += vendorEvents(bad)
		}
		got, err := chunksOf(t, strings.NewReader(stream+vendorEvents(vendorEnd, vendorStop)))
		if !fault.Is(err, fault.BadGateway) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.HasSuffix(got, `{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`+"\n\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAStreamWithoutABeginningIsABadGateway(t *testing.T) {
	for name, stream := range map[string]string{
		"empty":      "",
		"content":    vendorEvents(blockStart("0", `{"type":"text","text":"a"}`), vendorStop),
		"no message": vendorEvents(`{"type":"message_start"}`, vendorStop),
		"end":        vendorEvents(vendorStop),
	} {
		if got, err := chunksOf(t, strings.NewReader(stream)); !fault.Is(err, fault.BadGateway) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestTheTransportsOwnErrorIsPassedOn(t *testing.T) {
	gone := errors.New("gone")
	_, err := chunksOf(t, io.MultiReader(strings.NewReader(vendorEvents(vendorStart)), iotest.ErrReader(gone)))
	if !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

func TestWhatFollowsACompleteMessageIsIgnored(t *testing.T) {
	got, err := chunksOf(t, strings.NewReader(richStream()+vendorEvents(vendorStart, `{"type":`)+"data: x"))
	if err != nil || got != richChunks() {
		t.Errorf("%v after %q", err, got)
	}
	_, err = chunksOf(t, io.MultiReader(strings.NewReader(richStream()), iotest.ErrReader(errors.New("late"))))
	if err != nil {
		t.Errorf("an error after the end: %v", err)
	}
}

func TestAPingMakesAnEmptyChunkWhileTheMessageIsOpen(t *testing.T) {
	w := &chunkWriter{model: "m", created: 77}
	r := &messageReader{to: w}
	made := func(event string) string {
		t.Helper()
		w.out = w.out[:0]
		if _, err := r.event("", []byte(event)); err != nil {
			t.Fatal(err)
		}
		return string(w.out)
	}
	if got := made(vendorPing); got != "" {
		t.Errorf("before the message begins: %q", got)
	}
	made(vendorStart)
	const want = `data: {"id":"chatcmpl-01","object":"chat.completion.chunk","created":77,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":null}]}` + "\n\n"
	for range 3 {
		if got := made(vendorPing); got != want {
			t.Errorf("within it: %q", got)
		}
	}
	made(vendorEnd)
	if got := made(vendorPing); got != "" {
		t.Errorf("after the finish reason: %q", got)
	}
}

func TestEveryEventIsHandedOnBeforeTheNextOneCame(t *testing.T) {
	src, upstream := io.Pipe()
	s := toChatStream(plainChat(t), src, 77)
	defer func() { _ = s.Close() }()
	alone := &chunkWriter{model: "m", created: 77} // says what an event makes
	r := &messageReader{to: alone}
	makes := func(data string) error {
		_, err := r.event("", []byte(data))
		return err
	}
	buf, waiting, reads := make([]byte, 64<<10), "", 0
	for _, event := range strings.SplitAfter(richStream(), "\n\n") {
		waiting += event
		_, data, _ := strings.Cut(event, "data: ")
		if alone.out = alone.out[:0]; event != "" && makes(data) != nil || len(alone.out) == 0 {
			continue // it goes with the next one
		}
		written := make(chan error, 1)
		go func() {
			_, err := io.WriteString(upstream, waiting)
			written <- err
		}()
		n, err := s.Read(buf) // nothing more is written before it returns
		if err != nil || string(buf[:n]) != string(alone.out) {
			t.Fatalf("%s made %q, %v", waiting, buf[:n], err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		waiting, reads = "", reads+1
	}
	if want := strings.Count(richChunks(), "data: ") - 1; reads != want { // the last event makes two
		t.Errorf("%d reads, want %d", reads, want)
	}
}

func TestTheGatewayReadsTheWholeUsageOfATranslatedStream(t *testing.T) {
	r := plainChat(t)
	tap := (&chatapi.Request{Request: r}).NewTap(chatapi.TapOptions{NewID: func() string { return "own" }})
	events := sse.NewReader(toChatStream(r, io.NopCloser(strings.NewReader(richStream())), 77), 0)
	defer events.Release()
	for n := 0; ; n++ {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := tap.Event(nil, e.Name, e.Data); err != nil {
			t.Fatal(err)
		}
		if u := tap.Usage(); n == 0 && (u.Input != 10 || u.CachedInput != 6 || u.CacheWrite != 4 || u.Output != 0) {
			t.Errorf("a client that leaves at once owes %+v", u)
		}
	}
	if got, want := tap.Usage(), (billing.Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Reasoning: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestALaterSmallerCountDoesNotTakeAwayFromAnEarlierOne(t *testing.T) {
	got, err := chunksOf(t, strings.NewReader(vendorEvents(vendorStart, vendorEnd,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"cache_read_input_tokens":null,"output_tokens":3}}`, vendorStop)))
	if err != nil || !strings.Contains(got, chatUsage) || strings.Count(got, `"finish_reason":"`) != 1 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAPromptThatIsCountedAtTheEndAloneIsCounted(t *testing.T) {
	got, err := chunksOf(t, strings.NewReader(vendorEvents(
		`{"type":"message_start","message":{"id":"msg_01","usage":{"input_tokens":0,"output_tokens":0}}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":7,"output_tokens":2}}`, vendorStop)))
	want := `"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}`
	if err != nil || strings.Count(got, `"usage":`) != 1 || !strings.Contains(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAStreamWithoutUsageLeavesItToTheGateway(t *testing.T) {
	got, err := chunksOf(t, strings.NewReader(vendorEvents(`{"type":"message_start","message":{"id":"msg_01","usage":{"output_tokens":1}}}`, vendorStop)))
	if err != nil || strings.Contains(got, "usage") || !strings.HasSuffix(got, `"finish_reason":"stop"}]}`+"\n\n"+sse.Done) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAStreamCanBeSentBackAsItCame(t *testing.T) {
	text, err := chunksOf(t, strings.NewReader(richStream()))
	if err != nil {
		t.Fatal(err)
	}
	sentBack(t, accumulatedChat(t, text), richContent())
}

// accumulatedChat adds the deltas of a stream up, as clients do: text to text, by
// its member's name.
func accumulatedChat(t testing.TB, stream string) chat.Message {
	t.Helper()
	m := chat.Message{Role: "assistant"}
	content, signature := "", ""
	for _, e := range strings.Split(strings.TrimSuffix(stream, sse.Done), "\n\n") {
		if e == "" {
			continue
		}
		var c chat.Chunk
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &c); err != nil {
			t.Fatalf("%q: %v", e, err)
		}
		for _, choice := range c.Choices {
			content += choice.Delta.Content.String()
			m.ReasoningContent += choice.Delta.ReasoningContent
			signature += extraText(choice.Delta.Extra, reasoningSignature)
			for _, piece := range choice.Delta.ToolCalls {
				if int(*piece.Index) == len(m.ToolCalls) {
					m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: piece.ID, Type: piece.Type, Function: chat.CalledFunction{Name: piece.Function.Name}})
				}
				m.ToolCalls[*piece.Index].Function.Arguments += piece.Function.Arguments
			}
		}
	}
	m.Content = chat.Text(content)
	if signature != "" {
		quoted, err := json.Marshal(map[string]string{reasoningSignature: signature})
		if err != nil {
			t.Fatal(err)
		}
		m.Extra = quoted
	}
	return m
}

// extraText is a text among members without a field.
func extraText(extra jsontext.Value, name string) string {
	members := make(map[string]string)
	_ = json.Unmarshal(extra, &members) // there may be none
	return members[name]
}

func FuzzToChatStream(f *testing.F) {
	f.Add([]byte(richStream()))
	f.Add([]byte(vendorEvents(vendorStart, vendorStop)))
	f.Add([]byte(vendorEvents(vendorStart, blockStart("0", `{"type":"tool_use","id":"a","name":"b","input":{"a":1}}`), vendorEnd)))
	f.Add([]byte("data: {\"type\":\"message_start\",\ndata: \"message\":{\"id\":\"\"}}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		got, err := chunksOf(t, bytes.NewReader(stream))
		again, err2 := chunksOf(t, iotest.OneByteReader(bytes.NewReader(stream)))
		if got != again || (err == nil) != (err2 == nil) {
			t.Errorf("at once %q, %v; byte by byte %q, %v", got, err, again, err2)
		}
		if complete := strings.HasSuffix(got, sse.Done); complete != (err == nil) || strings.Count(got, "[DONE]\n\n") > 1 {
			t.Errorf("%q ends with %v", got, err)
		}
		if err != nil && !fault.Is(err, fault.BadGateway) {
			t.Errorf("%v", err)
		}
		accumulatedChat(t, got)
		tap := (&chatapi.Request{Request: plainChat(t)}).NewTap(chatapi.TapOptions{NewID: func() string { return "own" }})
		for _, e := range strings.Split(got, "\n\n") {
			if e == "" {
				continue
			}
			if _, _, err := tap.Event(nil, "", []byte(strings.TrimPrefix(e, "data: "))); err != nil {
				t.Errorf("%q: %v", e, err)
			}
		}
	})
}
