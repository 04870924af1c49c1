package responses_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/responsestest"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// everything is a response with an item of each kind that has pieces, and one that has
// none.
func everything() *responses.Response {
	sealed := "th1.AAAA"
	return &responses.Response{
		ID: "resp_1", Object: "response", CreatedAt: 1, Status: "completed", Model: "m",
		Output: []responses.Item{
			{Type: "reasoning", ID: "rs_1", Summary: jsontext.Value(`[{"type":"summary_text","text":"Short."}]`), EncryptedContent: &sealed, Status: "completed"},
			{Type: "reasoning", ID: "rs_2", Content: responses.Parts(responses.Part{Type: "reasoning_text", Text: "Long."}), Status: "completed"},
			{Type: "message", ID: "msg_1", Role: "assistant", Status: "completed", Content: responses.Parts(
				responses.Part{Type: "output_text", Text: "one"}, responses.Part{Type: "output_text"}, responses.Part{Type: "refusal", Refusal: "no"})},
			{Type: "function_call", ID: "fc_1", CallID: "call_1", Name: "f", Namespace: "ns", Arguments: jsontext.Value(`"{\"a\":1}"`), Status: "completed"},
			{Type: "custom_tool_call", ID: "ctc_1", CallID: "call_2", Name: "g", Input: "in", Status: "completed"},
			{Type: "tool_search_call", ID: "tsc_1", CallID: "call_3", Execution: "client", Arguments: jsontext.Value(`{"q":"x"}`), Status: "completed"},
		},
		Usage: &responses.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7},
	}
}

// stream is what a call for a stream of an upstream gets.
func stream(t *testing.T, up upstream.Upstream) ([]byte, error) {
	t.Helper()
	reply, err := up.Do(t.Context(), &upstream.Call{Op: upstream.Responses, Stream: true, Body: upstream.BytesBody([]byte(`{"model":"m","input":"x"}`))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	return io.ReadAll(reply.Body)
}

func TestAWholeResponseIsCutIntoEventsInTheirOrder(t *testing.T) {
	for _, status := range []string{"completed", "incomplete"} {
		r := everything()
		if r.Status = status; status == "incomplete" {
			r.IncompleteDetails = &responses.Incomplete{Reason: "max_output_tokens"}
		}
		data, err := stream(t, responses.Serve(func(context.Context, *responses.Request) (*responses.Response, error) { return r, nil }))
		if err != nil {
			t.Fatal(err)
		}
		if err := responsestest.Check(data, responsestest.Vendor); err != nil {
			t.Errorf("%s: %v\n%s", status, err, data)
		}
		got, err := responses.NewStream("req_1", &source{data: data}).Response()
		if err != nil || got.ID != r.ID || got.Status != status || len(got.Output) != len(r.Output) || got.Text() != "one" || got.Usage.TotalTokens != 7 || got.RequestID != "req_1" || got.Raw == nil || got.Charge != 9 {
			t.Errorf("%s: %+v, %v", status, got, err)
		}
	}
}

// source is a stream that was received.
type source struct {
	data []byte
	read int
	io.Closer
}

func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s.data[s.read:])
	if s.read += n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *source) Close() error                     { return nil }
func (s *source) Receipt() (billing.Receipt, bool) { return billing.Receipt{Charge: 9}, true }

func TestAStreamThatBreaksOffHasWhatIsWhole(t *testing.T) {
	const created = `data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1,"status":"in_progress","error":null,"incomplete_details":null,"model":"m","output":[],"usage":null}}` + "\n\n"
	const item = `data: {"type":"response.output_item.done","sequence_number":1,"output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"one"}]}}` + "\n\n"
	const broken = `data: {"type":"error","sequence_number":2,"error":{"type":"api_error","code":"BadGateway","message":"It broke off.","param":null}}` + "\n\n"
	for text, want := range map[string]string{broken: "", created + broken: "", created + item + broken: "one"} {
		r, err := responses.NewStream("", &source{data: []byte(text)}).Response()
		if !fault.Is(err, fault.BadGateway) || fault.From(err).Message != "It broke off." || (r == nil) != (text == broken) || r != nil && r.Text() != want {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
}

func TestAnEventOfAnUnknownTypeKeepsEverything(t *testing.T) {
	const data = `{"type":"response.web_search_call.searching","sequence_number":7,"delta":{"a":1},"output_index":2}`
	events := 0
	for e, err := range responses.NewStream("", &source{data: []byte("data: " + data + "\n\ndata: [DONE]\n\n")}).Events() {
		events++
		if err != nil || e.SequenceNumber != 7 || string(e.Raw) != data || string(e.Extra) != `{"delta":{"a":1},"output_index":2}` {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if events != 1 {
		t.Errorf("got %d events, want 1", events)
	}
}

func TestAModelInGoStreamsItsOwnEvents(t *testing.T) {
	up := responses.ServeStream(nil, func(context.Context, *responses.Request) iter.Seq2[*responses.Event, error] {
		return func(yield func(*responses.Event, error) bool) {
			_ = yield(&responses.Event{Type: "response.output_text.delta", Delta: "x"}, nil) && yield(nil, errors.New("secret"))
		}
	})
	data, err := stream(t, up)
	if want := "event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":0,"output_index":0,"content_index":0,"delta":"x","logprobs":[]}` + "\n\n"; string(data) != want || !fault.Is(err, fault.InternalError) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestEventsKeepTheirMembers(t *testing.T) {
	for _, data := range []string{
		`{"type":"response.output_text.done","sequence_number":3,"item_id":"m","output_index":0,"content_index":1,"text":"","logprobs":[],"x":1.0}`,
		`{"type":"response.function_call_arguments.done","sequence_number":3,"item_id":"f","output_index":0,"name":"n","arguments":"{}"}`,
		`{"type":"response.reasoning_summary_part.added","sequence_number":3,"item_id":"r","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}`,
		`{"type":"keepalive","sequence_number":3}`,
	} {
		var e responses.Event
		if err := e.UnmarshalJSON([]byte(data)); err != nil {
			t.Fatal(err)
		}
		out, err := e.MarshalJSON()
		if err != nil || string(out) != data || !slices.Equal(e.Raw, jsontext.Value(data)) {
			t.Errorf("%s, %v, want %s", out, err, data)
		}
	}
}

func TestArgumentsAreTextInEveryCall(t *testing.T) {
	for arguments, want := range map[string]string{`"{\"a\":\"\u00e9\"}"`: `{"a":"é"}`, `{"a":1.0}`: `{"a":1.0}`, `""`: "", "null": "", "": ""} {
		item := responses.Item{Arguments: jsontext.Value(arguments)}
		if got := item.ArgumentsText(); got != want {
			t.Errorf("%s is %s", arguments, got)
		}
	}
}
