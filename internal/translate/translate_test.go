package translate

import (
	"bytes"
	"flag"
	"io"
	"testing"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/messages"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hiddenEvent is the event that stands for what the model thinks unseen.
const hiddenEvent = "gateway.hidden"

// asked is a request for a stream of a message, without thoughts.
func asked(t testing.TB) *messagesapi.Request {
	t.Helper()
	r, err := messagesapi.Parse([]byte(`{"model":"public","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fromChatStream is the stream of a message that a chat stream answers.
func fromChatStream(r *messages.Request, body io.ReadCloser) io.ReadCloser {
	w := &eventWriter{messageOut: shownTo(r)}
	return newStream(body, func(to writer) reader { return &chatReader{to: to} }, w)
}

func fromChatAnswer(r *messages.Request, data []byte) ([]byte, error) {
	w := &messageWriter{messageOut: shownTo(r)}
	return io.ReadAll(newWhole(io.NopCloser(bytes.NewReader(data)), func(to writer) reader { return &chatReader{to: to} }, w))
}

func toChatStream(c *chat.Request, body io.ReadCloser, created int64) io.ReadCloser {
	w := &chunkWriter{model: c.Model, created: created}
	return newStream(body, func(to writer) reader { return &messageReader{to: to} }, w)
}

func toChatAnswer(c *chat.Request, data []byte, created int64) ([]byte, error) {
	w := &completionWriter{model: c.Model, created: created}
	return io.ReadAll(newWhole(io.NopCloser(bytes.NewReader(data)), func(to writer) reader { return &messageReader{to: to} }, w))
}

func shownTo(r *messages.Request) messageOut {
	return messageOut{model: r.Model, thinks: r.Thinking != nil && r.Thinking.Type != "disabled"}
}
