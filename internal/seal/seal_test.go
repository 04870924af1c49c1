package seal

import (
	"testing"

	"github.com/tollhouse-ai/gateway/secret"
)

func TestWhatIsSealedOpensForItsAccountAlone(t *testing.T) {
	first, second := secret.New("the first secret of the deployment"), secret.New("the second one")
	old := New([]secret.String{first})
	text := old.SealText("th1.", "thoughts", "alice", []byte("hm"))
	for _, row := range []struct {
		name                   string
		secrets                []secret.String
		prefix, purpose, owner string
		text                   string
		ok                     bool
	}{
		{"the same secret", []secret.String{first}, "th1.", "thoughts", "alice", text, true},
		{"a newer secret before it", []secret.String{second, first}, "th1.", "thoughts", "alice", text, true},
		{"a secret that was taken out", []secret.String{second}, "th1.", "thoughts", "alice", text, false},
		{"no secrets", nil, "th1.", "thoughts", "alice", text, false},
		{"another account", []secret.String{first}, "th1.", "thoughts", "bob", text, false},
		{"another purpose", []secret.String{first}, "th1.", "responses", "alice", text, false},
		{"another format", []secret.String{first}, "th2.", "thoughts", "alice", text, false},
		{"a byte less", []secret.String{first}, "th1.", "thoughts", "alice", text[:len(text)-1], false},
		{"another byte", []secret.String{first}, "th1.", "thoughts", "alice", text[:8] + "~" + text[9:], false},
		{"nothing", []secret.String{first}, "th1.", "thoughts", "alice", "th1.", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			data, ok := New(row.secrets).OpenText(row.prefix, row.purpose, row.owner, row.text)
			if ok != row.ok || ok && string(data) != "hm" {
				t.Errorf("got %q, %t", data, ok)
			}
		})
	}
}

func TestAPurposeHasAKeyOfItsOwn(t *testing.T) {
	s := New([]secret.String{secret.New("a secret")})
	if s.LastingKey("a") == s.LastingKey("b") || s.LastingKey("a") != New([]secret.String{secret.New("a new secret"), secret.New("a secret")}).LastingKey("a") {
		t.Error("a key must depend on the last secret and its purpose, and on nothing else")
	}
	if one, other := New(nil).LastingKey("a"), New(nil).LastingKey("a"); one == other {
		t.Error("two processes without secrets have the same key")
	}
}
