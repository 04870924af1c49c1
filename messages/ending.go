package messages

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/sse"
)

// Heartbeat appends an event that keeps the connection alive.
func (t *Tap) Heartbeat(dst []byte) []byte {
	return sse.AppendEvent(dst, "ping", []byte(`{"type":"ping"}`))
}

// CutShort appends what ends the message for reason "max_tokens", with the usage
// until now: the ends of the open blocks, and the message's beginning if there
// was none. The terminator is not appended.
func (t *Tap) CutShort(dst []byte) []byte {
	u := shownUsage(t.Usage())
	if !t.started {
		t.started = true
		dst = t.start(dst, u)
	}
	slices.Sort(t.open)
	for _, index := range t.open {
		stop := strconv.AppendInt([]byte(`{"type":"content_block_stop","index":`), index, 10)
		dst = sse.AppendEvent(dst, "content_block_stop", append(stop, '}'))
	}
	t.open = t.open[:0]
	if t.stopped {
		return dst
	}
	t.stopped = true
	usage, err := json.Marshal(u)
	if err != nil {
		return dst // integers marshal
	}
	delta := append([]byte(`{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":`), usage...)
	return sse.AppendEvent(dst, "message_delta", append(delta, '}'))
}

// start appends the beginning of a message of the gateway's own.
func (t *Tap) start(dst []byte, u Usage) []byte {
	id := ""
	if t.options.NewID != nil {
		id = t.options.NewID()
	}
	message, err := json.Marshal(Response{ID: id, Type: "message", Role: "assistant", Model: t.request.Model, Content: []Block{}, Usage: u})
	if err != nil {
		return dst // strings and integers marshal
	}
	return sse.AppendEvent(dst, "message_start", append(append([]byte(`{"type":"message_start","message":`), message...), '}'))
}

// Terminator is the event that ends a complete stream: the upstream's own, if it
// came.
func (t *Tap) Terminator() string {
	if t.last != "" {
		return t.last
	}
	return "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
}
