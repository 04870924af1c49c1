package session

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// The names of sessions in the tests.
const (
	named   = "0b6cfa80-4f0e-4b6e-8f0a-2f7d5ac0e911"
	another = "5d0e6f57-95a7-4df5-a6de-2c0bd7f0a51c"
)

func index(t testing.TB, body string) *rawjson.Object {
	t.Helper()
	o, err := rawjson.Index([]byte(body), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestWhatNamesASession(t *testing.T) {
	const older = "user_2f1c_account_9ab2_session_"
	var key Key
	want := Hash(&key, "acme", named)
	for _, row := range []struct {
		name    string
		request Request
		body    string
		has     bool
	}{
		{"nothing", Request{}, `{}`, false},
		{"the request", Request{Name: named}, `{}`, true},
		{"the request before the body", Request{Name: named}, `{"prompt_cache_key":"` + another + `"}`, true},
		{"the request before the user", Request{Name: named, User: older + another}, `{}`, true},
		{"prompt_cache_key", Request{}, `{"prompt_cache_key":"` + named + `"}`, true},
		{"prompt_cache_key with an escape", Request{}, `{"prompt_cache_key":"\u0030` + named[1:] + `"}`, true},
		{"prompt_cache_key before the others", Request{}, `{"session_id":"` + another + `","conversation":"` + another + `","prompt_cache_key":"` + named + `"}`, true},
		{"conversation", Request{}, `{"session_id":"` + another + `","conversation":"` + named + `"}`, true},
		{"conversation.id", Request{}, `{"conversation":{"id":"` + named + `"}}`, true},
		{"conversation without an id", Request{}, `{"conversation":{},"session_id":"` + named + `"}`, true},
		{"session_id", Request{}, `{"session_id":"` + named + `"}`, true},
		{"a number", Request{}, `{"session_id":7}`, false},
		{"Claude Code's user", Request{User: `{"device_id":"d","account_uuid":"","session_id":"` + named + `"}`}, `{}`, true},
		{"Claude Code's user in its old form", Request{User: older + named}, `{}`, true},
		{"Claude Code's user before the body", Request{User: older + named}, `{"session_id":"` + another + `"}`, true},
		{"another user", Request{User: named}, `{}`, false},
		{"a user that is not JSON", Request{User: "{"}, `{}`, false},
		{"an empty name", Request{}, `{"prompt_cache_key":""}`, false},
		{"a name with a space", Request{}, `{"prompt_cache_key":"a b"}`, false},
		{"a name with a line feed", Request{}, `{"prompt_cache_key":"a\nb"}`, false},
		{"a name that is not ASCII", Request{}, `{"prompt_cache_key":"é"}`, false},
		{"a name of 257 bytes", Request{}, `{"prompt_cache_key":"` + strings.Repeat("x", 257) + `"}`, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.request.Body = index(t, row.body)
			got := Of(row.request, &key, "acme", false)
			if (got != ID{}) != row.has || row.has && got != want {
				t.Errorf("got the session %x, want one: %t", got, row.has)
			}
		})
	}
}

// Sessions of one name must not meet: an account could learn of another's, or send it to a
// channel.
func TestASessionIsItsAccountsAndItsKeysOwn(t *testing.T) {
	var key Key
	other := Key{1}
	want := Hash(&key, "acme", "x1")
	for name, got := range map[string]ID{
		"another account":    Hash(&key, "evil", "x1"),
		"a shifted boundary": Hash(&key, "acmex", "1"),
		"another name":       Hash(&key, "acme", "x2"),
		"another key":        Hash(&other, "acme", "x1"),
	} {
		if got == want {
			t.Errorf("%s has the same session", name)
		}
	}
}

func TestASessionCostsNoMemory(t *testing.T) {
	var key Key
	body := index(t, `{"model":"m","messages":[{"role":"user","content":"Hi."}],"prompt_cache_key":"`+named+`"}`)
	for _, name := range []string{"", named} {
		if got := testing.AllocsPerRun(100, func() { Of(Request{Name: name, Body: body}, &key, "acme", false) }); got != 0 {
			t.Errorf("named %q by its headers: %v allocations", name, got)
		}
	}
}

func TestAPrefixEndsWithTheFirstTurnOfTheUser(t *testing.T) {
	const (
		tools    = `"tools":[{"name":"f","input_schema":{"type":"object"}}],`
		message  = `{"model":"m","system":"Be brief.",` + tools + `"messages":[{"role":"user","content":[{"type":"text","text":"Hi."}]}]}`
		chat     = `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi."}]}`
		response = `{"model":"m","instructions":"Be brief.","input":[{"type":"message","role":"developer","content":"Be kind."},{"role":"user","content":"Hi."}]}`
		text     = `{"model":"m","instructions":"Be brief.","input":"Hi."}`
	)
	hash := func(body string) string { return string(prefix(index(t, body))) }
	for _, row := range []struct {
		name, body, old, new string
		same                 bool
	}{
		{"a later turn", message, `]}]}`, `]},{"role":"assistant","content":"Yes?"},{"role":"user","content":"Go on."}]}`, true},
		{"a mark of the cache that has moved", message, `"Hi."`, `"Hi.","cache_control":{"type":"ephemeral"}`, true},
		{"other spaces", message, `":`, `" : `, true},
		{"another first turn", message, "Hi.", "Hello.", false},
		{"other instructions", message, "brief", "long", false},
		{"other tools", message, `"f"`, `"g"`, false},
		{"another model", message, `"m"`, `"n"`, false},
		{"a text in the place of blocks", message, `[{"type":"text","text":"Hi."}]`, `"Hi."`, false},
		{"a later turn of a chat", chat, `Hi."}`, `Hi."},{"role":"assistant","content":"Yes?"},{"role":"user","content":"Go on."}`, true},
		{"a chat without instructions", chat, `{"role":"system","content":"Be brief."},`, ``, false},
		{"another first turn of a chat", chat, "Hi.", "Ho.", false},
		{"a later turn of a response", response, `Hi."}`, `Hi."},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes?"}]},{"role":"user","content":"Hi."}`, true},
		{"other instructions of a response", response, "brief", "long", false},
		{"a response without its developer", response, `{"type":"message","role":"developer","content":"Be kind."},`, ``, false},
		{"a response in one text", response, response, text, false},
		{"another text", text, "Hi.", "Ho.", false},
	} {
		if same := hash(row.body) == hash(strings.ReplaceAll(row.body, row.old, row.new)); same != row.same {
			t.Errorf("%s: the same prefix: %t, want %t", row.name, same, row.same)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	var key Key
	b.ReportAllocs()
	for b.Loop() {
		if Hash(&key, "acme", named) == (ID{}) {
			b.Fatal("there is no session")
		}
	}
}
