// Package session finds out which conversation a request belongs to. A vendor keeps a prompt
// cache for each of its accounts. So the requests of one conversation should reach the same
// channel with the same key.
package session

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Key is the secret of a deployment that names its sessions.
type Key [32]byte

// ID stands for a session outside of its account; zero for none.
type ID [16]byte

// maxName is the longest name of a session, in bytes.
const maxName = 256

// IsName reports whether a text can name a session: it has from 1 to 256 visible ASCII
// characters.
func IsName[T string | []byte](name T) bool {
	return len(name) <= maxName && safetext.IsVisible(name)
}

// Request is what a request says of its conversation.
type Request struct {
	Name string          // beside the body; empty for none
	User string          // metadata.user_id of Messages; empty for none
	Body *rawjson.Object // its members may name the session
}

// members are the members of a body that name its session, in the order in which
// they count.
var members = [...]string{"prompt_cache_key", "conversation", "session_id"}

// Of returns the session of an account's request. A name beside the body counts first, then
// one in the user's id, then one in the body. If there is none and byPrefix is set, how the
// conversation begins names it.
func Of(r Request, key *Key, account string, byPrefix bool) (none ID) {
	if r.Name != "" {
		return Hash(key, account, r.Name)
	}
	if r.User != "" {
		if name := nameOfUser(r.User); IsName(name) {
			return Hash(key, account, name)
		}
	}
	for _, member := range members {
		if raw := r.Body.Raw(member); raw != nil {
			if name := nameOfMember(raw); IsName(name) {
				return Hash(key, account, name)
			}
		}
	}
	if byPrefix {
		return Hash(key, account, prefix(r.Body)) // no name is equal to it
	}
	return none
}

// Hash returns the session of an account that has a name. The key of the deployment goes into
// the hash: no account can name the session of another, and an ID does not tell the name.
func Hash[T string | []byte](key *Key, account string, name T) (id ID) {
	var room [512]byte // for all but very long accounts: no allocation
	data := append(room[:0], key[:]...)
	data = binary.BigEndian.AppendUint32(data, uint32(len(account)))
	data = append(data, account...)
	data = append(data, name...)
	sum := sha256.Sum256(data)
	copy(id[:], sum[:])
	return id
}

// nameOfMember returns the name that a member of a body holds: a string, or the id of an
// object.
func nameOfMember(raw []byte) []byte {
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

// nameOfUser returns the name in metadata.user_id of Messages, as Claude Code fills it:
// {"session_id":"…"}, and in older versions user_…_session_….
func nameOfUser(id string) string {
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

// prefix returns a hash of how a conversation begins. It covers the model, the instructions,
// the tools, and everything to the end of the user's first turn.
func prefix(body *rawjson.Object) []byte {
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
