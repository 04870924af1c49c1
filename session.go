package gateway

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Affinity says which calls of a model belong to one session. The calls of a session
// are sent to the same channel with the same key, as long as both can serve: a vendor
// keeps a prompt cache for each of its accounts, and what it has there costs less.
type Affinity string

// The values of Affinity, as the configuration file spells them.
const (
	AffinitySession Affinity = "session" // those whose clients name the same session: the default
	AffinityPrefix  Affinity = "prefix"  // and, where no client names one, those that begin alike
	AffinityOff     Affinity = "off"     // none
)

// Affinities are all values, as the configuration file spells them.
func Affinities() []string {
	return []string{string(AffinitySession), string(AffinityPrefix), string(AffinityOff)}
}

func (a Affinity) known() bool { return slices.Contains(Affinities(), string(a)) }

// maxSessionName is the longest name of a session, in bytes.
const maxSessionName = 256

// IsSessionName reports whether a text can name a session: it has from 1 to 256 visible
// ASCII characters. Others are taken for none.
func IsSessionName(name string) bool { return isSessionName(name) }

func isSessionName[T string | []byte](name T) bool {
	return len(name) <= maxSessionName && safetext.IsVisible(name)
}

type sessionContext struct{}

// WithSession returns a context in which requests for text belong to a session of the
// caller's account, as [Request.Session] does: in process, where there are no headers.
func WithSession(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, sessionContext{}, name)
}

// sessionName is what the caller names the request's session beside its body; empty for
// none.
func (q *Request) sessionName(ctx context.Context) string {
	name := q.Session
	if !isSessionName(name) {
		name, _ = ctx.Value(sessionContext{}).(string)
	}
	if !isSessionName(name) {
		return ""
	}
	return name
}

// sessionMembers are the members of a body that name its session, in the order in which
// they count.
var sessionMembers = [...]string{"prompt_cache_key", "conversation", "session_id"}

// session is the session that the call belongs to; zero for none. What its caller names
// beside the body counts before what is in the body.
func (c *call) session() (none upstream.Session) {
	if c.op.sessionBody == nil || c.model.Affinity == AffinityOff {
		return none
	}
	key, account := &c.g.sessionKey, c.principal.Account
	if c.sessionName != "" {
		return hashSession(key, account, c.sessionName)
	}
	if name := sessionOfUser(c.op.sessionUser); isSessionName(name) {
		return hashSession(key, account, name)
	}
	for _, member := range sessionMembers {
		if name := sessionOfMember(c.op.sessionBody.Object.Raw(member)); isSessionName(name) {
			return hashSession(key, account, name)
		}
	}
	if c.model.Affinity == AffinityPrefix {
		return hashSession(key, account, prefixOf(&c.op.sessionBody.Object)) // which no name can be
	}
	return none
}

// hashSession is the session of an account that has a name: a hash with a key of the
// deployment's, so that no account can name the session of another, and no one who sees
// it learns the name.
func hashSession[T string | []byte](key *[32]byte, account string, name T) (s upstream.Session) {
	var room [512]byte // for all but very long accounts: no allocation
	data := append(room[:0], key[:]...)
	data = binary.BigEndian.AppendUint32(data, uint32(len(account)))
	data = append(data, account...)
	data = append(data, name...)
	sum := sha256.Sum256(data)
	copy(s[:], sum[:])
	return s
}

// sessionOfMember is the name that a member of a body holds: a string, or the id of an
// object.
func sessionOfMember(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '{' {
		o, err := rawjson.Index(raw, nil, nil)
		if err != nil {
			return nil
		}
		raw = o.Raw("id")
	}
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	if name := raw[1 : len(raw)-1]; rawjson.Plain(name) {
		return name
	}
	name, _ := rawjson.String(raw)
	return []byte(name)
}

// sessionOfUser is the name in metadata.user_id of Messages, as Claude Code fills it:
// {"session_id":"…"}, and in older versions user_…_session_….
func sessionOfUser(id string) string {
	const most, mark = 1024, "_session_"
	switch {
	case len(id) > most:
	case strings.HasPrefix(id, "{"):
		o, err := rawjson.Index([]byte(id), nil, nil)
		if err != nil {
			return ""
		}
		name, _ := rawjson.String(o.Raw("session_id"))
		return name
	case strings.HasPrefix(id, "user_"):
		if at := strings.LastIndex(id, mark); at >= 0 {
			return id[at+len(mark):]
		}
	}
	return ""
}

// prefixOf is a hash of how a conversation begins: of its model, its instructions, its
// tools, and all until the end of the first turn of its user.
func prefixOf(body *rawjson.Object) []byte {
	h := sha256.New()
	to := bufio.NewWriter(h)
	for _, member := range [...]string{"model", "system", "instructions", "tools"} {
		writePlain(to, body.Raw(member))
	}
	for _, member := range [...]string{"messages", "input"} {
		turns := body.Raw(member)
		count := rawjson.EachUntil(turns, func(_ int, at rawjson.Span) bool {
			turn := at.Of(turns)
			writePlain(to, turn)
			o, err := rawjson.Index(turn, nil, nil)
			return err == nil && string(o.Raw("role")) != `"user"`
		})
		if count < 0 { // a text
			writePlain(to, turns)
		}
	}
	_ = to.Flush() // a hash takes all
	return h.Sum(nil)
}

// writePlain writes a value without spaces and without its cache_control, which clients
// move from turn to turn.
func writePlain(to *bufio.Writer, raw []byte) {
	rd := rawjson.NewReader(raw)
	defer rd.Close()
	_ = writeValue(to, rd, raw) // it was read before: of one that is broken there is a part
	_ = to.WriteByte('\n')
}

func writeValue(to *bufio.Writer, rd *rawjson.Reader, src []byte) (err error) {
	switch rd.Kind() {
	case '{':
		_ = to.WriteByte('{')
		err = rd.Object(func(name []byte, key rawjson.Span) error {
			if string(name) == "cache_control" {
				_, err := rd.Skip()
				return err
			}
			_, _ = to.Write(key.Of(src))
			return writeValue(to, rd, src)
		})
		_ = to.WriteByte('}')
	case '[':
		_ = to.WriteByte('[')
		err = rd.Array(func(int) error { return writeValue(to, rd, src) })
		_ = to.WriteByte(']')
	default:
		var at rawjson.Span
		at, err = rd.Skip()
		_, _ = to.Write(at.Of(src))
		_ = to.WriteByte(',')
	}
	return err
}

// The values of [RequestEvent.Affinity].
const (
	affinityHit   = "hit"
	affinityMoved = "moved"
	affinityNone  = "none"
)

// affinity is what became of a call's session when it was answered.
func affinity(s upstream.Session, reply *upstream.Reply) string {
	switch {
	case s == upstream.Session{}:
		return affinityNone
	case reply.Moved:
		return affinityMoved
	}
	return affinityHit
}
