package gateway_test

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// frames are errors as vendors and what stands before them put them into a
// stream that began with a 200.
var frames = map[string]string{
	"OpenAI":                 `data: {"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`,
	"OpenAI, an event":       "event: error\ndata: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}",
	"OpenAI's responses":     "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"x\"}}}",
	"the same, an error":     `data: {"type":"error","code":"ERR_SOMETHING","message":"x","param":null,"sequence_number":1}`,
	"Anthropic":              "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
	"Anthropic, no name":     `data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
	"Google":                 `data: [{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}]`,
	"DashScope":              "id:1\nevent:error\n:HTTP_STATUS/400\ndata:{\"code\":\"InvalidParameter\",\"message\":\"x\",\"request_id\":\"r\"}",
	"DashScope, no name":     `data:{"code":"Throttling","message":"x","request_id":"r"}`,
	"OpenRouter":             `data: {"id":"gen-1","object":"chat.completion.chunk","model":"m","error":{"code":502,"message":"x"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`,
	"vLLM":                   `data: {"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}`,
	"llama.cpp":              `error: {"code":500,"message":"x","type":"server_error"}`,
	"FastAPI":                `data: {"detail":"Internal Server Error"}`,
	"a code and a message":   `data: {"code":500,"msg":"x","message":"x","data":null}`,
	"a string":               `data: {"error":"upstream connect error"}`,
	"a number":               `data: {"error":502}`,
	"true":                   `data: {"error":true}`,
	"among choices":          `data: {"choices":[],"error":{"message":"x"}}`,
	"HTML":                   `data: <html><head><title>502 Bad Gateway</title></head></html>`,
	"HTML without an event":  "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>",
	"JSON without an event":  `{"error":{"message":"x"}}`,
	"a text":                 `data: upstream connect error or disconnect/reset before headers`,
	"null":                   `data: null`,
	"a number alone":         `data: 0`,
	"a list":                 `data: []`,
	"nothing":                `data:`,
	"a cut object":           `data: {"id":"u","choices":[{"index":0,"delta":{"content":"hel`,
	"a name twice over":      "event: error\nevent: error\ndata: {}",
	"done at once":           `data: [DONE]`,
	"done in blanks at once": `data:   [DONE]  `,
}

// TestEveryVendorsWordForAnErrorIsOne is faults.md, row 4.
func TestEveryVendorsWordForAnErrorIsOne(t *testing.T) {
	for name, frame := range frames {
		for _, before := range []string{"", ": a comment\n\n", chunk(`{"role":"assistant","content":""}`, "")} {
			for _, after := range []string{"\n\n", "\n\ndata: [DONE]\n\n"} {
				h := newHouse(t, &scripted{text: before + frame + after}, "1", nil)
				_, r, err := h.ask(t.Context(), askStream)
				if err == nil { // what came first has left alone, since nothing else was there
					drain(t, r.Stream)
					err = r.Stream.Err()
				}
				if !fault.Is(err, fault.BadGateway) && !fault.Is(err, fault.NoChannel) || h.spent(t, "1") != 0 {
					t.Errorf("%s behind %.5q and before %q: %v, it cost %s", name, before, after, err, h.spent(t, "1"))
				}
			}
		}
		if strings.Contains(name, "done") || strings.Contains(name, "without an event") || name == "llama.cpp" || name == "nothing" {
			continue // which is an end, or nothing at all, behind content
		}
		h := newHouse(t, &scripted{text: chunk(`{"content":"four"}`, "") + frame + "\n\n"}, "1", nil)
		_, r, err := h.ask(t.Context(), askStream)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out := drain(t, r.Stream)
		_, last, _ := strings.Cut(out, "\n\n")
		if !strings.HasPrefix(last, `data: {"error":{"message":"`) || strings.Count(last, "\n\n") != 1 || strings.Contains(out, "[DONE]") {
			t.Errorf("%s behind content: %q", name, out)
		}
		if got := h.spent(t, "1"); got != micro(estimatedInput+1) {
			t.Errorf("%s behind content costs %s", name, got)
		}
		if receipt, ok := r.Stream.Receipt(); !ok || receipt.Reason != billing.ReasonUpstreamFailed {
			t.Errorf("%s behind content: %+v", name, receipt)
		}
	}
}
