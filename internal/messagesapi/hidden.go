package messagesapi

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// hiddenEvent is an event between a translated stream (internal/translate) and the
// [Tap] above it: the
// model thinks, and the caller did not ask to see it. Without it a long thought
// would run into the time-outs of a silent upstream, and a client that disconnects
// during one would not pay for it. No client ever gets it.
//
// Its member "hidden" is a string with one point for each quarter token, not a
// number: an upstream that sends the event itself, to make a caller pay, is
// believed no more than the bytes that it sent.
const hiddenEvent = "gateway.hidden"

// AppendHidden appends the events that stand for a thought, which is a JSON string.
func AppendHidden(dst, thought []byte) []byte {
	const longest = 64 << 10 // quarters in one event, which has a limit above
	quarters := tokencount.StringQuarters(thought)
	for quarters > 0 {
		n := min(quarters, longest)
		data := append([]byte(`{"type":"`+hiddenEvent+`","hidden":"`), bytes.Repeat([]byte{'.'}, int(n))...)
		dst = sse.AppendEvent(dst, hiddenEvent, append(data, `"}`...))
		quarters -= n
	}
	return dst
}
