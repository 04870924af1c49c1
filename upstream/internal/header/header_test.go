package header

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFixedHeadersHaveTheirCanonicalNames(t *testing.T) {
	got, err := ParseExtra(map[string]string{
		"HTTP-Referer": "https://shop.example", "x-title": "My shop, the 2nd", "anthropic-beta": "context-1m", "OpenAI-Organization": "org-1", "user-agent": "shop/1",
		"accept-language": "sk-SK, cs;q=0.5", "x-project": "task-force-of-the-shop",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Http-Referer": {"https://shop.example"}, "X-Title": {"My shop, the 2nd"}, "Anthropic-Beta": {"context-1m"}, "Openai-Organization": {"org-1"}, "User-Agent": {"shop/1"},
		"Accept-Language": {"sk-SK, cs;q=0.5"}, "X-Project": {"task-force-of-the-shop"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoSecretAndNothingOfTheGatewaysOwnIsAFixedHeader(t *testing.T) {
	const secrets, key, own, line, name = "is a header for secrets. A key goes under keys", "looks like a key. A key goes under keys", "is set by the gateway itself", "on one line", "the name of a header"
	for _, row := range []struct{ name, value, want string }{
		{"Authorization", "hidden", secrets},
		{"proxy-authorization", "hidden", secrets},
		{"cf-aig-authorization", "hidden", secrets},
		{"X-Api-Key", "hidden", secrets},
		{"api-key", "hidden", secrets},
		{"X-Goog-Api-Key", "hidden", secrets},
		{"Ocp-Apim-Subscription-Key", "hidden", secrets},
		{"Idempotency-Key", "hidden", secrets},
		{"X-Auth-Token", "hidden", secrets},
		{"X-Client-Secret", "hidden", secrets},
		{"Cookie", "hidden", secrets},
		{"Set-Cookie", "hidden", secrets},
		{"X-Forwarded", "Bearer hidden", key},
		{"X-Forwarded", "Basic hidden", key},
		{"X-Org", "sk-hidden0123456789", key},
		{"X-Org", "key=sk-proj-hidden0123456789", key},
		{"X-Org", "org-1, Key gsk_hidden0123456789", key},
		{"X-Org", "xai-hidden0123456789", key},
		{"X-Org", "AIzahidden0123456789", key},
		{"X-Org", "hf_hidden0123456789", key},
		{"X-Org", "eyJhidden0123456789.e30.x", key},
		{"Host", "hidden", own},
		{"content-length", "hidden", own},
		{"Content-Type", "hidden", own},
		{"Connection", "hidden", own},
		{"Transfer-Encoding", "hidden", own},
		{"TE", "hidden", own},
		{"Upgrade", "hidden", own},
		{"Via", "hidden", own},
		{"Accept-Encoding", "hidden", own},
		{"X-Title", "hidden\r\nAuthorization: x", line},
		{"X-Title", "hidden\x00", line},
		{"X-Title", " hidden", line},
		{"X-Title", "hidden é", line},
		{"X-Title", "", line},
		{"X-Title", strings.Repeat("hidden", maxValue), line},
		{"", "hidden", name},
		{"hidden: a", "b", name},
		{"hidden\nA", "b", name},
	} {
		_, err := ParseExtra(map[string]string{row.name: row.value})
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v, want %s", row.name, err, row.want)
		}
	}
	if _, err := ParseExtra(map[string]string{"X-Title": "a", "x-title": "b"}); err == nil {
		t.Error("a header that is there twice was taken")
	}
}
