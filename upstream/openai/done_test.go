package openai

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

func TestAStreamWithoutTheTerminatorIsCompleteWhereEveryCandidateIs(t *testing.T) {
	chunk := func(choices string) string { return `data: {"choices":[` + choices + "]}\n\n" }
	word, stop := chunk(`{"index":0,"delta":{"content":"hi"},"finish_reason":null}`), chunk(`{"index":0,"delta":{},"finish_reason":"stop"}`)
	second := chunk(`{"index":1,"delta":{},"finish_reason":"length"}`)
	usage := `data: {"choices":[],"usage":{"prompt_tokens":1}}` + "\n\n"
	for _, row := range []struct {
		name, stream string
		n            string
		complete     bool // without a terminator of the vendor's
	}{
		{"a finish_reason", word + stop, "", true},
		{"a finish_reason, and usage", word + stop + usage, "", true},
		{"lines that end in CRLF", strings.ReplaceAll(word+stop, "\n", "\r\n"), "", true},
		{"lines that end in CR", strings.ReplaceAll(word+stop, "\n", "\r"), "", true},
		{"the last event has no blank line", strings.TrimRight(word+stop, "\n"), "", true},
		{"data on two lines", word + "data: {\"choices\":[\ndata: {\"finish_reason\":\"stop\"}]}\n\n", "", true},
		{"data on two lines that end in CRLF", word + "data: {\"choices\":[\r\ndata: {\"finish_reason\":\"stop\"}]}\r\n\r\n", "", true},
		{"comments", ": PROCESSING\n\n" + word + ": PROCESSING\n\n" + stop, "", true},
		{"a byte order mark", "\xef\xbb\xbf" + stop, "", true},
		{"both of two candidates", word + stop + second, "2", true},
		{"one of two candidates", word + stop, "2", false},
		{"none", word, "", false},
		{"a finish_reason that is empty", word + chunk(`{"index":0,"finish_reason":""}`), "", false},
		{"a finish_reason that is no string", word + chunk(`{"index":0,"finish_reason":false}`), "", false},
		{"a finish_reason without an index", word + chunk(`{"finish_reason":"stop"}`), "", true},
		{"a candidate that was not asked for", word + chunk(`{"index":7,"finish_reason":"stop"}`), "", false},
		{"one of two candidates, and one that was not asked for", word + stop + chunk(`{"index":2,"finish_reason":"stop"}`), "2", false},
		{"a negative index", word + chunk(`{"index":-1,"finish_reason":"stop"}`), "", false},
		{"an index that is none", word + chunk(`{"index":"0","finish_reason":"stop"}`), "", false},
		{"nothing at all", "", "", false},
		{"half an event at the end", word + stop + `data: {"choices":[],"us`, "", false},
		{"the vendor's terminator", word + stop + "data: [DONE]\n\n", "", false},
		{"the vendor's terminator without a blank line", word + stop + "data: [DONE]", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "with the end": iotest.DataErrReader,
			} {
				call := &upstream.Call{Body: vendortest.Body(t, `{}`)}
				if row.n != "" {
					call.Body = call.Body.Set("n", []byte(row.n))
				}
				reply := completed(call, &upstream.Reply{Body: io.NopCloser(wrap(strings.NewReader(row.stream)))})
				got, err := io.ReadAll(iotest.OneByteReader(reply.Body))
				want := row.stream
				if row.complete {
					want += terminator
				}
				if err != nil || string(got) != want {
					t.Errorf("%s: got %q, error %v, want %q", name, got, err, want)
				}
			}
		})
	}
}

func TestAStreamThatIsCutIsNotComplete(t *testing.T) {
	stop := "data: {\"choices\":[{\"index\":0,\"finish_reason\":\"stop\"}]}\n\n"
	reply := completed(&upstream.Call{Body: vendortest.Body(t, `{}`)}, &upstream.Reply{Body: io.NopCloser(io.MultiReader(strings.NewReader(stop), iotest.ErrReader(io.ErrUnexpectedEOF)))})
	if got, err := io.ReadAll(reply.Body); err != io.ErrUnexpectedEOF || string(got) != stop {
		t.Errorf("got %q, error %v", got, err)
	}
}

// What an option changes is the vendor's wire of chat alone, and only where it is set.
func TestWhatAVendorOfChatRefusesOrLeavesOut(t *testing.T) {
	var body string
	base := vendortest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		body = string(data)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"finish_reason\":\"stop\"}]}\n\n")
	}))
	for _, row := range []struct {
		name     string
		o        upstream.DriverOptions
		op       upstream.Op
		options  bool // the vendor gets stream_options
		complete bool
	}{
		{"neither", upstream.DriverOptions{}, upstream.ChatCompletion, true, false},
		{"no stream_options", upstream.DriverOptions{NoStreamOptions: true}, upstream.ChatCompletion, false, false},
		{"no terminator", upstream.DriverOptions{DoneOptional: true}, upstream.ChatCompletion, true, true},
		{"both, of responses", upstream.DriverOptions{NoStreamOptions: true, DoneOptional: true, Wire: []upstream.Op{upstream.Responses}}, upstream.Responses, true, false},
	} {
		row.o.BaseURL = base
		call := &upstream.Call{Op: row.op, Stream: true, Body: vendortest.Body(t, `{"model":"m","stream_options":{"include_usage":true},"n":1}`)}
		_, got := vendortest.Answer(t, vendortest.New(t, New, row.o), call)
		if strings.Contains(body, "stream_options") != row.options || strings.HasSuffix(got, terminator) != row.complete {
			t.Errorf("%s: the vendor got %s, and answered %q", row.name, body, got)
		}
	}
}
