package auth_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// mint makes a key, or fails the test, and returns it with its token.
func mint(t *testing.T, o auth.KeyOptions) (auth.Key, string) {
	t.Helper()
	k, token, err := auth.NewKey(o)
	if err != nil {
		t.Fatal(err)
	}
	return k, token.Reveal()
}

func TestAFreshKeyHasItsForm(t *testing.T) {
	k, token := mint(t, auth.KeyOptions{Account: "acme", Name: "ci", Models: []string{"delta-k3"}, Limits: auth.Limits{RPM: 5}, Expires: noon.Add(time.Hour), Now: atNoon})
	if !regexp.MustCompile(`^sk-[0-9A-Za-z]{32,}$`).MatchString(token) {
		t.Errorf("the token has not the form sk-…: %d characters", len(token))
	}
	if !regexp.MustCompile(`^key_[0-9a-z]{16}$`).MatchString(k.ID) {
		t.Errorf("id = %q", k.ID)
	}
	want := auth.Key{ID: k.ID, Account: "acme", Name: "ci", Hash: auth.HashOf(token), Models: []string{"delta-k3"}, Limits: auth.Limits{RPM: 5}, Created: noon, Expires: noon.Add(time.Hour)}
	if diff := cmp.Diff(want, k); diff != "" {
		t.Error(diff)
	}
}

func TestAKeyComesFromTheGivenRandomness(t *testing.T) {
	zeros := bytes.NewReader(make([]byte, 64))
	_, token := mint(t, auth.KeyOptions{Account: "acme", Random: zeros})
	if token != "sk-"+strings.Repeat("a", 48) {
		t.Errorf("token = %q", token)
	}
}

func TestAKeyThatMakesNoSenseIsNotMinted(t *testing.T) {
	broken := errors.New("no entropy")
	for name, c := range map[string]struct {
		options auth.KeyOptions
		code    fault.Code
		param   string
	}{
		"no account":        {auth.KeyOptions{}, fault.InvalidRequest, "account"},
		"already expired":   {auth.KeyOptions{Account: "a", Now: atNoon, Expires: noon}, fault.InvalidRequest, "expires"},
		"negative rpm":      {auth.KeyOptions{Account: "a", Limits: auth.Limits{RPM: -1}}, fault.InvalidRequest, "rpm"},
		"negative tpm":      {auth.KeyOptions{Account: "a", Limits: auth.Limits{TPM: -1}}, fault.InvalidRequest, "tpm"},
		"negative slots":    {auth.KeyOptions{Account: "a", Limits: auth.Limits{MaxConcurrent: -1}}, fault.InvalidRequest, "max_concurrent"},
		"negative videos":   {auth.KeyOptions{Account: "a", Limits: auth.Limits{MaxConcurrentVideos: -1}}, fault.InvalidRequest, "max_concurrent_videos"},
		"no randomness":     {auth.KeyOptions{Account: "a", Random: iotest.ErrReader(broken)}, fault.InternalError, ""},
		"little randomness": {auth.KeyOptions{Account: "a", Random: io.LimitReader(zeroes{}, 39)}, fault.InternalError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k, token, err := auth.NewKey(c.options)
			if !fault.Is(err, c.code) || fault.From(err).Param != c.param {
				t.Errorf("error = %v, want %s at %q", err, c.code, c.param)
			}
			if k.ID != "" || !token.IsZero() {
				t.Error("a failure still gave a key")
			}
		})
	}
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestAKeyIsNeverPrinted(t *testing.T) {
	k, token, err := auth.NewKey(auth.KeyOptions{Account: "acme", Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, v := range []any{k, &k, token, &token, struct{ Key, Secret any }{k, token}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		if err := json.NewEncoder(&out).Encode(v); err != nil {
			t.Fatal(err)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("made", "it", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("made", "it", v)
	}
	random := strings.TrimPrefix(token.Reveal(), "sk-")
	for _, form := range []string{random, strings.ToUpper(random), fmt.Sprintf("%x", random)} {
		if strings.Contains(out.String(), form) {
			t.Fatal("the secret was printed")
		}
	}
	if !strings.Contains(out.String(), k.ID) || !strings.Contains(out.String(), "[secret]") {
		t.Error("nothing was printed at all")
	}
}

func TestAKeysJSONHasItsFactsAndNotItsHash(t *testing.T) {
	k := named("key_a")
	for want, edit := range map[string]func(*auth.Key){
		`{"id":"key_a","account":"acme","created":"2026-03-01T12:00:00Z"}`: func(*auth.Key) {},
		`{"id":"key_a","account":"acme","name":"ci","models":["delta-k3"],"limits":{"rpm":5},"created":"2026-03-01T12:00:00Z","expires":"2026-03-01T13:00:00Z","disabled":true}`: func(k *auth.Key) {
			k.Name, k.Models, k.Limits.RPM, k.Expires, k.Disabled = "ci", []string{"delta-k3"}, 5, noon.Add(time.Hour), true
		},
	} {
		k := k
		edit(&k)
		if got, err := json.Marshal(k); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}

func TestAHashIsReadAsItIsWritten(t *testing.T) {
	hash := auth.HashOf("sk-abc")
	got, err := auth.ParseHash(fmt.Sprintf("sha256:%x", hash))
	if err != nil || got != hash {
		t.Errorf("ParseHash = %x, %v", got, err)
	}
	if got, err := auth.ParseHash(fmt.Sprintf("sha256:%X", hash)); err != nil || got != hash {
		t.Errorf("capitals: ParseHash = %x, %v", got, err)
	}
	// The well-known SHA-256 of "abc" (FIPS 180-2, appendix B.1).
	abc, err := auth.ParseHash("sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
	if err != nil || abc != auth.HashOf("abc") {
		t.Errorf("HashOf(abc) = %x, %v", auth.HashOf("abc"), err)
	}
}

func TestAHashThatIsNoneIsRefusedWithoutRepeatingIt(t *testing.T) {
	digits := strings.Repeat("ab", 32)
	for _, text := range []string{"", digits, "sha256:", "sha256:" + digits[1:], "sha256:" + digits + "00", "sha256:" + digits[2:] + "zz", "SHA256:" + digits, "sk-in-the-wrong-place"} {
		hash, err := auth.ParseHash(text)
		if !fault.Is(err, fault.InvalidRequest) || hash != [32]byte{} {
			t.Errorf("ParseHash(%q) = %x, %v", text, hash, err)
		}
		if strings.Contains(fmt.Sprint(err), "sk-") {
			t.Errorf("the error repeats the text: %v", err)
		}
	}
}

func TestAnIDFromAHashIsStable(t *testing.T) {
	a, b := auth.IDOf(auth.HashOf("sk-a")), auth.IDOf(auth.HashOf("sk-b"))
	if a != auth.IDOf(auth.HashOf("sk-a")) || a == b || !strings.HasPrefix(a, "key_") {
		t.Errorf("ids %q and %q", a, b)
	}
}
