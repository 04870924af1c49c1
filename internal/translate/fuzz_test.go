package translate

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
)

// FuzzAChatAnswerIsWellFormedOrFails: whatever a chat upstream sends, a whole answer is
// one message, events are in order, and only a whole message ends without an error.
func FuzzAChatAnswerIsWellFormedOrFails(f *testing.F) {
	for _, row := range streamRows {
		f.Add(chunks(append(row.stream, done)...))
		f.Add(chunks(append(row.stream, counts)...))
	}
	for _, row := range answerRows {
		f.Add(`{"id":"a","choices":[{"message":` + row.message + `,"finish_reason":` + row.finish + `}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
	}
	f.Add(`data: {"error":{"message":"x"}}` + "\n\n")
	f.Add("event: error\ndata: {}\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		for _, r := range []*messages.Request{thinker(), plain()} {
			out, err := streamed(r, strings.NewReader(body))
			c, wrong := follow([]byte(out))
			if wrong != nil || c.over != (err == nil) || err != nil && !fault.Is(err, fault.BadGateway) {
				t.Fatalf("over: %t, %v, %v\n%s", c.over, err, wrong, out)
			}
			message, err := whole(r, body)
			o, wrong := rawjson.Index(message, nil, nil)
			switch {
			case err != nil && fault.Is(err, fault.BadGateway):
			case err != nil || wrong != nil || string(o.Raw("type")) != `"message"` || string(o.Raw("model")) != `"public"` || o.Raw("content")[0] != '[':
				t.Fatalf("%s, %v", message, err)
			}
		}
	})
}

// FuzzToChatStream: whatever an upstream of messages sends, chunks are what chat's own
// reader takes, and only a whole stream ends with the terminator.
func FuzzToChatStream(f *testing.F) {
	f.Add([]byte(richStream()))
	f.Add([]byte(vendorEvents(vendorStart, vendorStop)))
	f.Add([]byte(vendorEvents(vendorStart, blockStart("0", `{"type":"tool_use","id":"a","name":"b","input":{"a":1}}`), vendorEnd)))
	f.Add([]byte("data: {\"type\":\"message_start\",\ndata: \"message\":{\"id\":\"\"}}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		got, err := chunksOf(bytes.NewReader(stream))
		again, err2 := chunksOf(iotest.OneByteReader(bytes.NewReader(stream)))
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
		tap := (&chatop.Request{Request: plainChat()}).NewTap(operation.AnswerOptions{NewID: func(string) string { return "own" }})
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

// FuzzARequestIsTranslatedOrRefused: a request that its own rules allow is translated
// or refused, in both directions.
func FuzzARequestIsTranslatedOrRefused(f *testing.F) {
	for _, way := range requestTranslations[:3] {
		for _, from := range paired(f, way.name, "from") {
			f.Add([]byte(from))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := messagesop.Parse(body); err == nil && r.Validate() == nil {
			c, _, err := messagesToChat(r.Request)
			if err != nil && !fault.Is(err, fault.InvalidRequest) || err == nil && c.Model != r.Model {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		if c, err := chatop.Parse(body); err == nil && c.Validate() == nil {
			r, _, err := chatToMessages(c.Request, 4096, "")
			if err != nil && !fault.Is(err, fault.InvalidRequest) || err == nil && r.Model != c.Model {
				t.Fatalf("%+v, %v", r, err)
			}
			o, _, err := chatToResponses(c.Request, true)
			if err != nil && !fault.Is(err, fault.InvalidRequest) || err == nil && (o.Model != c.Model || string(o.Body.Raw("store")) != "false") {
				t.Fatalf("%+v, %v", o, err)
			}
		}
	})
}

// FuzzAnUpstreamOfResponses: whatever an upstream of responses sends, the chunks and events
// that are made of it are in order, byte by byte the same. Only a whole response ends without
// an error. The same holds for its whole answers.
func FuzzAnUpstreamOfResponses(f *testing.F) {
	for _, row := range responseRows {
		response := vendorResponse(row.output, row.members)
		f.Add(response)
		for _, n := range []int{1, 100} {
			f.Add(vendorEvents(responseEvents(f, response, n)...))
		}
	}
	f.Add(vendorEvents(`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}`, `{"type":"error"}`))
	f.Add(vendorEvents(`{"type":"response.created"}`, `{"type":"response.completed","response":{"output":[{}]}}`))
	f.Fuzz(func(t *testing.T, body string) {
		got, err := fromResponses(plainChat(), true, strings.NewReader(body))
		again, err2 := fromResponses(plainChat(), true, iotest.OneByteReader(strings.NewReader(body)))
		if got != again || (err == nil) != (err2 == nil) {
			t.Fatalf("at once %q, %v; byte by byte %q, %v", got, err, again, err2)
		}
		if complete := strings.HasSuffix(got, sse.Done); complete != (err == nil) || err != nil && !fault.Is(err, fault.BadGateway) {
			t.Fatalf("%q ends with %v", got, err)
		}
		accumulatedChat(t, got)
		got, err = fromResponses(thinker(), true, strings.NewReader(body))
		c, wrong := follow([]byte(got))
		if wrong != nil || c.over != (err == nil) || err != nil && !fault.Is(err, fault.BadGateway) {
			t.Fatalf("over: %t, %v, %v\n%s", c.over, err, wrong, got)
		}
		for _, request := range []any{plainChat(), thinker()} {
			got, err := fromResponses(request, false, strings.NewReader(body))
			if _, wrong := rawjson.Index([]byte(got), nil, nil); err == nil && wrong != nil || err != nil && !fault.Is(err, fault.BadGateway) {
				t.Fatalf("%s, %v", got, err)
			}
		}
	})
}

// FuzzSignedThoughts: what is read of a signature is written again as the same.
func FuzzSignedThoughts(f *testing.F) {
	f.Add("héa", "t3.3.sigr4.datat1.0.")
	f.Add("", "t0.1.s")
	f.Add("a", "t5.0.")
	f.Fuzz(func(t *testing.T, text, pieces string) {
		blocks, ok := thinkingBlocks(text, pieces)
		if !ok || !utf8.ValidString(text) || !utf8.ValidString(pieces) { // both are strings of JSON
			return
		}
		var again []byte
		joined := ""
		for _, b := range blocks {
			joined += b.Thinking
			p := &piece{kind: redacted, text: rawjson.Quote(nil, b.Data)}
			if b.Type == "thinking" {
				p = &piece{kind: signed, size: len(b.Thinking), text: rawjson.Quote(nil, *b.Signature)}
			}
			again = appendSigned(again, p)
		}
		restored, ok := thinkingBlocks(joined, string(again))
		if joined != text || !ok || !reflect.DeepEqual(restored, blocks) {
			t.Errorf("%q, %q: %v and then %v", text, pieces, blocks, restored)
		}
	})
}

// FuzzARequestForAResponseIsTranslatedOrRefused: what becomes of it obeys chat's rules,
// answers every call next to it, and has each tool once and under a name that leads back.
func FuzzARequestForAResponseIsTranslatedOrRefused(f *testing.F) {
	for _, from := range paired(f, "responses_to_chat", "from") {
		f.Add([]byte(from))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := asResponse(body)
		if err != nil {
			return
		}
		c, names, _, err := responsesToChat(r, openMarked)
		if err != nil {
			if fault := fault.From(err); fault.HTTPStatus() != 400 || fault.Param == "" || len(fault.Message) > 4096 {
				t.Fatalf("%d, %v", fault.HTTPStatus(), err)
			}
			return
		}
		list := slices.Clone(c.Messages)
		for i := range list {
			list[i].ToolCalls = slices.Clone(list[i].ToolCalls)
			for j := range list[i].ToolCalls {
				list[i].ToolCalls[j].Function.Arguments = "{}" // are the client's own
			}
		}
		if err := errors.Join(c.Validate(), strictChat(list)); err != nil {
			t.Fatalf("%v\n%s", err, c.Source())
		}
		functions, err := c.Functions()
		seen := map[string]bool{}
		for _, f := range functions {
			if _, known := names.original(f.Name); !known || seen[f.Name] {
				t.Fatalf("the function %q: known %t, seen %t", f.Name, known, seen[f.Name])
			}
			seen[f.Name] = true
		}
		if err != nil || len(functions) == 0 && (c.ToolChoice != nil || c.Tools != nil || c.Field("parallel_tool_calls") != nil) {
			t.Fatalf("%v\n%s", err, c.Source())
		}
	})
}

// FuzzCustomInput: the input of arguments that are {"input":"…"} is that string, wherever
// they are cut in pieces, and what is taken of any others can stand in JSON.
func FuzzCustomInput(f *testing.F) {
	f.Add(`{"input":"a"}`, 3, 4)
	f.Add(` { "input" : "\\\"\u0041\ud83d\ude00é" } `, 15, 30)
	f.Add("{\"input\":\"\n\\d\\ud83d\\u12\\udc00\\", 12, 16)
	f.Add(`{"input":"a","input":"b"}`, 0, 0)
	f.Add(`{"in":1}`, 2, 2)
	f.Fuzz(func(t *testing.T, arguments string, i, j int) {
		if !utf8.ValidString(arguments) { // JSON has no others
			return
		}
		var in, at1 customInput
		in.read(arguments)
		for rest, n := arguments, 0; rest != ""; n++ {
			cut := min(len(rest), max(1, []int{i, j, len(rest)}[min(n, 2)]))
			for !utf8.RuneStart((rest + "a")[cut]) {
				cut++
			}
			at1.read(rest[:cut])
			rest = rest[cut:]
		}
		if string(in.text) != string(at1.text) || in.closed != at1.closed || in.other != at1.other {
			t.Fatalf("at once %q, %t, %t; in pieces %q, %t, %t", in.text, in.closed, in.other, at1.text, at1.closed, at1.other)
		}
		if !jsontext.Value(quotedText(in.text)).IsValid() {
			t.Fatalf("%q cannot stand in JSON", in.text)
		}
		var wrapped struct {
			Input *string `json:"input"`
		}
		err := json.Unmarshal([]byte(arguments), &wrapped, json.RejectUnknownMembers(true))
		if err != nil || wrapped.Input == nil || in.other && strings.Contains(arguments, `\u`) {
			return // the name is written with escapes
		}
		var got string
		if err := json.Unmarshal(quotedText(in.text), &got); err != nil || !in.closed || got != *wrapped.Input {
			t.Fatalf("got %q, %t, %v, want %q", in.text, in.closed, err, *wrapped.Input)
		}
	})
}
