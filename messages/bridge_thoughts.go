package messages

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/upstream"
)

// withoutOwnThoughts is the call without the thoughts of a chat upstream that
// answered an earlier turn: they bear the gateway's own signature, which no
// vendor of the format takes.
func withoutOwnThoughts(call *upstream.Call) *upstream.Call {
	raw := call.Body.Raw("messages")
	if !bytes.Contains(raw, []byte(ownSignature)) {
		return call
	}
	r, err := serve.Request(call, Parse)
	if err != nil {
		return call // the upstream will say what is wrong with it
	}
	var turns []Message
	for _, m := range r.Messages {
		if blocks, err := m.Content.Blocks(); err == nil && slices.ContainsFunc(blocks, isOwnThought) {
			blocks = slices.DeleteFunc(blocks, isOwnThought)
			if len(blocks) == 0 {
				continue // two turns of the user's in a row are one
			}
			m.Content = Blocks(blocks...)
		}
		turns = append(turns, m)
	}
	data, err := json.Marshal(turns)
	if err != nil {
		return call
	}
	edited := *call
	edited.Body = call.Body.Set("messages", data)
	return &edited
}

func isOwnThought(b Block) bool {
	return b.Type == "thinking" && b.Signature != nil && *b.Signature == ownSignature
}
