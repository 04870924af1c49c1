package cassette

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// canonical is a body in the form in which requests are recorded and compared. It is JSON with
// sorted members; of a form, its parts, with hashes in the place of files.
func canonical(b upstream.Body) (jsontext.Value, error) {
	if f := b.Form(); f != nil {
		return canonicalForm(f)
	}
	data, err := b.Bytes()
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return jsontext.Value("null"), nil
	}
	if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return canonicalJSON(jsontext.Value(fmt.Sprintf(`{"sha256":%q}`, hash(data))))
	}
	return canonicalJSON(data)
}

// unnamed are the members of a request that name a user or a session, by hashes that differ in
// every process.
var unnamed = []string{"user", "user_id", "safety_identifier", "prompt_cache_key", "prompt_cache_isolation_key", "cache_salt", "session_id"}

// canonicalJSON sorts the members of a document, leaves out those that name a user, and masks
// those with the name of a secret.
func canonicalJSON(data jsontext.Value) (jsontext.Value, error) {
	var v any
	if err := json.Unmarshal(data, &v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), exactNumbers()); err != nil {
		return nil, err
	}
	if members, ok := v.(map[string]any); ok {
		for _, name := range unnamed {
			delete(members, name)
		}
		if metadata, ok := members["metadata"].(map[string]any); ok {
			delete(metadata, "user_id")
		}
	}
	mask(v)
	return json.Marshal(v, json.Deterministic(true))
}

// exactNumbers keeps numbers as they are written.
func exactNumbers() json.Options {
	return json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
		if d.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		raw, err := d.ReadValue()
		*v = raw.Clone()
		return err
	}))
}

// secretNames are the names of members that hold secrets, in small letters and digits.
var secretNames = []string{"apikey", "authorization", "accesskey", "secretkey", "privatekey", "accesstoken", "refreshtoken", "authtoken", "bearertoken", "idtoken", "secret", "clientsecret", "password", "passwd", "cookie", "credential", "credentials"}

// mask replaces the texts of members with the name of a secret ([secretNames]).
func mask(v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			mask(one)
		}
	case map[string]any:
		for name, one := range v {
			if _, text := one.(string); text && isSecret(name) {
				v[name] = "[secret]"
				continue
			}
			mask(one)
		}
	}
}

func isSecret(name string) bool {
	plain := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	plain = strings.TrimPrefix(plain, "x")
	return slices.Contains(secretNames, plain) || strings.HasSuffix(plain, "apikey")
}

// canonicalForm is the list of a form's parts.
func canonicalForm(f *upstream.Form) (jsontext.Value, error) {
	type part struct {
		Name     string `json:"name"`
		Value    string `json:"value,omitzero"`
		Filename string `json:"filename,omitzero"`
		SHA256   string `json:"sha256,omitzero"`
	}
	var all []part
	for i := range f.Parts {
		p := &f.Parts[i]
		rc, err := p.Content()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(rc)
		if err = errors.Join(err, rc.Close()); err != nil {
			return nil, err
		}
		one := part{Name: p.Name, Filename: p.Filename}
		switch {
		case slices.Contains(unnamed, p.Name):
			continue
		case p.Filename != "":
			one.SHA256 = hash(data)
		case isSecret(p.Name):
			one.Value = "[secret]"
		default:
			one.Value = strings.ToValidUTF8(string(data), "\uFFFD")
		}
		all = append(all, one)
	}
	data, err := json.Marshal(map[string]any{"form": all})
	if err != nil {
		return nil, err
	}
	return canonicalJSON(data)
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// matches reports whether the entry answers a call.
func (e *entry) matches(asked *entry) bool {
	return e.Op == asked.Op && e.Model == asked.Model && e.Stream == asked.Stream && e.Task == asked.Task && bytes.Equal(e.Request, asked.Request)
}

// fields are what calls are compared by: what they are, and the leaves of their requests.
func (e *entry) fields() map[string]string {
	if e.leaves == nil {
		e.leaves = map[string]string{"operation": string(e.Op), "stream": fmt.Sprint(e.Stream)}
		if e.Model != "" {
			e.leaves["model"] = jsonString(e.Model)
		}
		if e.Task != "" {
			e.leaves["task"] = e.Task
		}
		var v any
		if json.Unmarshal(e.Request, &v, exactNumbers()) == nil {
			addLeaves(e.leaves, "", v)
		}
	}
	return e.leaves
}

func jsonString(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(data)
}

// addLeaves adds the values of a document by their paths.
func addLeaves(to map[string]string, path string, v any) {
	switch v := v.(type) {
	case []any:
		for i, one := range v {
			addLeaves(to, fmt.Sprintf("%s[%d]", path, i), one)
		}
		if len(v) == 0 {
			to[path] = "[]"
		}
	case map[string]any:
		for name, one := range v {
			addLeaves(to, strings.TrimPrefix(path+"."+name, "."), one)
		}
		if len(v) == 0 {
			to[path] = "{}"
		}
	default:
		if data, err := json.Marshal(v); err == nil {
			to[path] = string(data)
		}
	}
}

// differences are the fields in which two calls differ, sorted.
func differences(a, b map[string]string) (names []string) {
	for name := range a {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// miss is the error of a call without an entry.
func (p *Player) miss(asked *entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var nearest *entry
	var number int
	var names []string
	for i, e := range p.entries {
		differ := differences(e.fields(), asked.fields())
		if nearest == nil || rank(e, asked, differ) < rank(nearest, asked, names) {
			nearest, number, names = e, i+1, differ
		}
	}
	message, param := fmt.Sprintf("The cassette %s has no entry.", p.file), ""
	if nearest != nil {
		param = names[0]
		message = fmt.Sprintf("The cassette %s has no entry for this %s. Entry %d is the nearest, and differs in %s: it has %s, the call has %s.",
			p.file, asked.Op, number, param, shown(nearest.fields(), param), shown(asked.fields(), param))
		if more := len(names) - 1; more > 0 {
			message += fmt.Sprintf(" So do %d other fields.", more)
		}
	}
	return &fault.Error{Code: fault.InvalidRequest, Status: 400, Param: param, Message: message, Err: &upstream.Failure{Status: 400, Sent: true}}
}

// rank is how far an entry is from a call: one of another operation is farther than any.
func rank(e, asked *entry, differ []string) int {
	if e.Op != asked.Op {
		return 1<<20 + len(differ)
	}
	return len(differ)
}

// shown is a value as an error shows it.
func shown(fields map[string]string, name string) string {
	v, ok := fields[name]
	if !ok {
		return "nothing"
	}
	return safetext.Truncate(v, 80)
}
