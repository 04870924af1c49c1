package messages

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// toChat translates a request for a message into one for a chat completion.
// dropped are the fields that chat has no words for and that are hints only; a
// field that would change the answer's meaning by its absence is refused with a
// fault.InvalidRequest instead. The tables of tochat_fates.go say which is which.
func toChat(r *Request) (c *chat.Request, dropped []string, err error) {
	t := &outbound{r: r, c: &chat.Request{Model: r.Model}}
	for _, step := range [...]func() error{t.fields, t.system, t.messages, t.tools, t.output} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	return t.c, t.dropped.List(), nil
}

// outbound is a request on its way from Messages to chat.
type outbound struct {
	r       *Request
	c       *chat.Request
	dropped dropped.Fields

	at   string // the block that is being read, for refusals: "messages[1].content[0]"
	turn turn   // the message that is being read
	run  run    // the messages of one role that stand together
}

// fields carries what has the same meaning under another name, and drops the
// top-level fields that the table does not carry.
func (t *outbound) fields() error {
	o, err := t.r.topLevel()
	if err != nil {
		return rule.Unacceptable(err)
	}
	for i := range o.Members {
		m := &o.Members[i]
		f, known := requestFates.find(m.Name)
		if (!known || f.kind == fateDropped) && !rawjson.IsNull(m.Value.Of(o.Src)) {
			t.drop("", m.Name)
		}
	}
	r, c := t.r, t.c
	c.MaxTokens, c.Temperature, c.TopP, c.Stream = r.MaxTokens, r.Temperature, r.TopP, r.Stream
	const most = 4 // of chat's stop (decisions.md, Chat)
	if len(r.StopSequences) > most {
		return refusedField("stop_sequences", "at most 4 strings for this model")
	}
	c.Stop = r.StopSequences
	t.user()
	return nil
}

// user carries the end user's name. Vendors refuse a long one, and a name that
// is cut would be somebody else's.
func (t *outbound) user() {
	const longest = 64
	m := t.r.Metadata
	switch {
	case m == nil:
		return
	case len(m.UserID) > longest:
		t.drop("metadata.", "user_id")
	default:
		t.c.User = m.UserID
	}
	t.rest("metadata.", m.Extra)
}

// topLevel is an index of the request's own members.
func (r *Request) topLevel() (rawjson.Object, error) {
	if r.parsed.object.Src != nil {
		return r.parsed.object, nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return rawjson.Object{}, err
	}
	return rawjson.Index(data, nil, nil)
}

// rest drops the members of an object that its type does not name, but for
// those that the tables carry. path ends in a point.
func (t *outbound) rest(path string, extra jsontext.Value) {
	if rawjson.IsNull(extra) {
		return
	}
	o, err := rawjson.Index(extra, nil, nil)
	if err != nil {
		return // what was embedded is an object
	}
	for i := range o.Members {
		m := &o.Members[i]
		if f, known := partFates.find(path + m.Name); known && f.kind == fateCarried {
			continue
		}
		if !rawjson.IsNull(m.Value.Of(o.Src)) {
			t.drop(path, m.Name)
		}
	}
}

// drop notes that a field was left out. What means the same wherever it stands
// is named without its path, which ends in a point.
func (t *outbound) drop(path, name string) {
	if name != "cache_control" && name != "citations" {
		name = path + name
	}
	t.dropped.Note(name)
}
