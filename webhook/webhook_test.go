package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tollhouse-ai/gateway/webhook"
)

func TestASecretHasItsForm(t *testing.T) {
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, c := range []struct {
		name, text string
		ok         bool
	}{
		{"24 bytes", "whsec_" + encode(24), true},
		{"64 bytes", "whsec_" + encode(64), true},
		{"23 bytes", "whsec_" + encode(23), false},
		{"nothing", "", false},
		{"only the prefix", "whsec_", false},
		{"no prefix", encode(32), false},
		{"no padding", "whsec_" + strings.TrimRight(encode(32), "="), false},
		{"a line end", "whsec_" + encode(24) + "\n", false},
		{"bits that mean nothing", "whsec_" + strings.Replace(encode(32), "A=", "B=", 1), false},
		{"the URL alphabet", "whsec_" + strings.Repeat("_-", 20), false},
	} {
		s, err := webhook.ParseSecret(c.text)
		if (err == nil) != c.ok || c.ok && s.Reveal() != c.text || !c.ok && !s.IsZero() {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && len(c.text) > 8 && strings.Contains(err.Error(), c.text[6:]) {
			t.Errorf("%s: the error holds the secret: %v", c.name, err)
		}
	}
	s, err := webhook.NewSecret(bytes.NewReader(bytes.Repeat([]byte{7}, 32)))
	if err != nil || s.Reveal() != "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=" {
		t.Errorf("%s, %v", s.Reveal(), err)
	}
	if again, err := webhook.ParseSecret(s.Reveal()); err != nil || again.Reveal() != s.Reveal() {
		t.Error(err)
	}
	if s, err := webhook.NewSecret(iotest.ErrReader(errors.New("no entropy"))); err == nil || !s.IsZero() {
		t.Error("a secret was made of nothing")
	}
}

func TestASecretCannotBePrinted(t *testing.T) {
	s, err := webhook.NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "in", struct{ S webhook.Secret }{s})
	encoded, err := json.Marshal(map[string]any{"a": s, "b": []webhook.Secret{s}})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(encoded) + fmt.Sprintf("%v %+v %#v %s %q %x %d %v %+v %#v", s, s, s, s, s, s, s, []webhook.Secret{s}, struct{ s webhook.Secret }{s}, &s)
	if text := s.Reveal(); strings.Contains(all, text[6:]) || strings.Contains(all, fmt.Sprintf("%x", text[6:])) || !strings.Contains(all, "[secret]") {
		t.Errorf("printed: %s", all)
	}
}
