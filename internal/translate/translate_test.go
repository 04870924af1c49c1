package translate

import (
	"flag"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/messagesapi"
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
