package webhook

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/webhooks"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// body is an event as the gateway sends it.
const body = `{"id":"evt_1","object":"event","created_at":1700000000,"type":"video.generation.succeeded","data":{"id":"vid_1","note":"ä.\u0000"}}`

func newSecretOf(t testing.TB) Secret {
	t.Helper()
	s, err := NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheStandardWebhooksLibraryAcceptsASignature(t *testing.T) {
	s, other := newSecretOf(t), newSecretOf(t)
	receiver, err := standardwebhooks.NewWebhook(s.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Verify([]byte(body), Sign("evt_1", time.Now(), []byte(body), s)); err != nil {
		t.Error(err)
	}
	if err := receiver.Verify([]byte(body), Sign("evt_1", time.Now(), []byte(body), other)); err == nil {
		t.Error("another's signature was accepted")
	}
	if err := receiver.Verify([]byte(body+" "), Sign("evt_1", time.Now(), []byte(body), s)); err == nil {
		t.Error("another body was accepted")
	}
}

func TestTheOpenAISDKAcceptsASignature(t *testing.T) {
	s, other := newSecretOf(t), newSecretOf(t)
	receiver := webhooks.NewWebhookService(option.WithWebhookSecret(s.Reveal()))
	header := Sign("evt_1", time.Now(), []byte(body), s)
	if err := receiver.VerifySignature([]byte(body), header); err != nil {
		t.Error(err)
	}
	event, err := receiver.Unwrap([]byte(body), header)
	if err != nil || event.ID != "evt_1" || event.Type != "video.generation.succeeded" || event.RawJSON() != body {
		t.Errorf("%+v, %v", event, err)
	}
	if err := receiver.VerifySignature([]byte(body), Sign("evt_1", time.Now(), []byte(body), other)); err == nil {
		t.Error("another's signature was accepted")
	}
}

func TestWhatTheStandardWebhooksLibrarySignsIsVerified(t *testing.T) {
	s, now := newSecretOf(t), time.Now()
	accountQueue, err := standardwebhooks.NewWebhook(s.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	signature, err := accountQueue.Sign("evt_1", now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	header := Sign("evt_1", now, []byte(body), s)
	if header.Get("webhook-signature") != signature {
		t.Errorf("%s, want %s", header.Get("webhook-signature"), signature)
	}
	if err := Verify(header, []byte(body), now, s); err != nil {
		t.Error(err)
	}
}

func TestBothSecretsSignDuringARotation(t *testing.T) {
	older, newer := newSecretOf(t), newSecretOf(t)
	header := Sign("evt_1", time.Now(), []byte(body), newer, older)
	if n := len(strings.Split(header.Get("webhook-signature"), " ")); n != 2 {
		t.Fatalf("%d signatures", n)
	}
	for _, s := range []Secret{older, newer} {
		standard, err := standardwebhooks.NewWebhook(s.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if err := standard.Verify([]byte(body), header); err != nil {
			t.Error(err)
		}
		openai := webhooks.NewWebhookService(option.WithWebhookSecret(s.Reveal()))
		if err := openai.VerifySignature([]byte(body), header); err != nil {
			t.Error(err)
		}
		if err := Verify(header, []byte(body), time.Now(), s); err != nil {
			t.Error(err)
		}
	}
}

func TestVerifyRefusesWhatIsNotOurs(t *testing.T) {
	s, now := newSecretOf(t), time.Unix(1_700_000_000, 0)
	good := func() http.Header { return Sign("evt_1", now, []byte(body), s) }
	set := func(name, value string) http.Header { h := good(); h.Set(name, value); return h }
	mine := good().Get(headerSignature)
	for _, c := range []struct {
		name   string
		header http.Header
		now    time.Time
		ok     bool
	}{
		{"good", good(), now, true},
		{"299 s old", good(), now.Add(300 * time.Second), true},
		{"301 s old", good(), now.Add(301 * time.Second), false},
		{"300 s ahead", good(), now.Add(-300 * time.Second), true},
		{"301 s ahead", good(), now.Add(-301 * time.Second), false},
		{"no header", http.Header{}, now, false},
		{"another id", set(headerID, "evt_2"), now, false},
		{"no id", set(headerID, ""), now, false},
		{"another time", set(headerTimestamp, "1700000001"), now, false},
		{"no time", set(headerTimestamp, "now"), now, false},
		{"no signature", set(headerSignature, ""), now, false},
		{"an unknown version", set(headerSignature, "v2,"+mine[3:]), now, false},
		{"no version", set(headerSignature, mine[3:]), now, false},
		{"half a signature", set(headerSignature, mine[:len(mine)/2]), now, false},
		{"beside others", set(headerSignature, "v1a,x v1,!! v1, "+mine), now, true},
	} {
		if err := Verify(c.header, []byte(body), c.now, s); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if Verify(good(), []byte(body), now) == nil || Verify(good(), []byte(body), now, Secret{}) == nil {
		t.Error("it was verified without a secret")
	}
	if header := Sign("evt_1", now, []byte(body), Secret{}); header.Get(headerSignature) != "" {
		t.Errorf("an empty secret signed %v", header)
	}
	if h := Sign("evt_1", now, []byte(body)); Verify(h, []byte(body), now, Secret{}) == nil {
		t.Error("an empty secret verified")
	}
}

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
		s, err := ParseSecret(c.text)
		if (err == nil) != c.ok || c.ok && s.Reveal() != c.text || !c.ok && !s.IsZero() {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && len(c.text) > 8 && strings.Contains(err.Error(), c.text[6:]) {
			t.Errorf("%s: the error holds the secret: %v", c.name, err)
		}
	}
	s, err := NewSecret(bytes.NewReader(bytes.Repeat([]byte{7}, 32)))
	if err != nil || s.Reveal() != "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=" {
		t.Errorf("%s, %v", s.Reveal(), err)
	}
	if again, err := ParseSecret(s.Reveal()); err != nil || again.Reveal() != s.Reveal() {
		t.Error(err)
	}
	if s, err := NewSecret(iotest.ErrReader(errors.New("no entropy"))); err == nil || !s.IsZero() {
		t.Error("a secret was made of nothing")
	}
}

func TestASecretCannotBePrinted(t *testing.T) {
	s := newSecretOf(t)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "in", struct{ S Secret }{s}, "delivery", Delivery{Secrets: []Secret{s}})
	encoded, err := json.Marshal(map[string]any{"a": s, "b": []Secret{s}})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(encoded) + fmt.Sprintf("%v %+v %#v %s %q %x %d %v %+v %#v", s, s, s, s, s, s, s, []Secret{s}, struct{ s Secret }{s}, &s)
	if text := s.Reveal(); strings.Contains(all, text[6:]) || strings.Contains(all, fmt.Sprintf("%x", text[6:])) || !strings.Contains(all, "[secret]") {
		t.Errorf("printed: %s", all)
	}
}
