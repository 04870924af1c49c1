package conversation

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Text counts what the model wrote in one answer or event, in the pass that
// checks it. The zero Text is ready.
type Text struct {
	Quarters int64        // tokens, in quarters
	last     rawjson.Span // the last string that had any
}

// Add counts a value, which stands at the span, if it is a string.
func (t *Text) Add(raw []byte, at rawjson.Span) {
	if quarters := tokencount.StringQuarters(raw); quarters > 0 {
		t.Quarters += quarters
		t.last = at
	}
}

// DeliveredText knows how much text a stream has delivered, and whether the upstream's
// last count of its output includes all of it. The zero DeliveredText is ready.
type DeliveredText struct {
	Quarters  int64 // tokens, in quarters, with those of reasoning that only the vendor can read
	encrypted int64 // those alone
	counted   bool  // nothing was delivered since the upstream counted
}

// Wrote notes text that was delivered, or produced unseen.
func (m *DeliveredText) Wrote(quarters int64) {
	if quarters > 0 {
		m.Quarters += quarters
		m.counted = false
	}
}

// AddEncrypted notes how much of what was delivered is reasoning that only the vendor can read.
func (m *DeliveredText) AddEncrypted(quarters int64) { m.encrypted += quarters }

// Counted notes that the upstream has counted its output.
func (m *DeliveredText) Counted() { m.counted = true }

// UpToDate reports whether the upstream's count includes all that was delivered.
func (m *DeliveredText) UpToDate() bool { return m.counted }

// Said is how many tokens the delivered text has, whatever the upstream reports, without
// what only the vendor can read.
func (m *DeliveredText) Said() int64 { return tokencount.Tokens(m.Quarters - m.encrypted) }

// Tap is what the taps of all three have in common: the usage of a stream, and the event at
// hand. It is not safe for concurrent use.
type Tap struct {
	Request *Parsed // or a summary of it
	Media   chat.MediaBound

	DeliveredText
	Report   Report
	Template Template        // of the event before
	Object   *rawjson.Object // of the event at hand, until Done
}

// Repeat appends what the client gets for an event that, by the [Template], needs no check of
// its own. It counts the event's text. number is the client's. It is false, with nothing done,
// of any other event.
func (t *Tap) Repeat(dst []byte, name string, data []byte, number int64) (out []byte, quarters int64, ok bool) {
	text, ok := t.Template.Match(name, data)
	if !ok {
		return dst, 0, false
	}
	quarters = tokencount.Quarters(text.Of(data))
	t.Wrote(quarters)
	return t.Template.Append(dst, data, number), quarters, true
}

// Read indexes an event and reads the parts of it. Call Done when nothing of it is
// looked at any more: a stream may be silent for long.
func (t *Tap) Read(data []byte, parts []Part) (s Scan, err error) {
	t.Object = rawjson.Borrow()
	if err := s.Read(t.Object, data, parts); err != nil {
		return s, upstream.BadAnswer("The upstream sent an event that is not one JSON object.", err)
	}
	return s, nil
}

// TypeOf is the type of an event or a block, which is JSON. One of those that are known takes
// no memory.
func TypeOf(raw []byte, known []string) string {
	for _, k := range known {
		if len(raw) == len(k)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == k {
			return k
		}
	}
	kind, _ := rawjson.String(raw)
	return kind
}

// Done ends the use of the event at hand.
func (t *Tap) Done() {
	if t.Object != nil {
		rawjson.GiveBack(t.Object)
		t.Object = nil
	}
}

// Usage is what was consumed until now. Text delivered after the upstream last counted
// its output is estimated, as is everything that it did not count.
func (t *Tap) Usage() billing.Usage {
	u := t.Report.Usage(t.Request, t.Media, t.Quarters)
	if made := tokencount.Tokens(t.Quarters); !t.counted && made > u.Output {
		u.Output, u.Estimated, u.Zero = made, true, false
	}
	return u
}

// Output returns the number of output tokens delivered, or produced unseen, until now: those
// of the text, or the upstream's count if that is more.
func (t *Tap) Output() int64 {
	made := tokencount.Tokens(t.Quarters)
	if p := t.Report; p.Has[Output] || p.Has[Total] {
		if p.imply(); p.Has[Output] { // else it came before any of the output
			return max(made, p.N[Output])
		}
	}
	return made
}
