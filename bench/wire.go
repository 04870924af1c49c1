package main

import (
	"net/http"
	"strings"
)

// wire is what the vendor says: a whole answer, or the parts of a stream.
type wire struct{ answer, first, chunk, last string }

// spoken is the wire of the path that was asked.
func spoken(r *http.Request) *wire {
	if strings.HasSuffix(r.URL.Path, "/messages") {
		return &anthropicWire
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

// event is one of Anthropic's.
func event(name, rest string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"," + rest + "}\n\n"
}
