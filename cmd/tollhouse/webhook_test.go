package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tollhouse-ai/gateway/server"
)

// hook is a request that a receiver of webhooks got.
type hook struct {
	header http.Header
	body   []byte
}

// receiver gets webhooks on this machine, and answers with a status once there is
// room for them in got.
func receiver(t *testing.T, status int) (url string, got chan hook) {
	t.Helper()
	got = make(chan hook, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case got <- hook{r.Header, body}:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/hook?token=in-the-address", got
}

// verified checks a webhook as its receiver does.
func verified(t *testing.T, secret string, h hook) {
	t.Helper()
	w, err := webhooks.NewWebhook(secret)
	if err == nil {
		err = w.Verify(h.body, h.header)
	}
	if err != nil {
		t.Errorf("the webhook is not signed with the account's secret: %v\n%v", err, h.header)
	}
}

// secretOf is the account's, as the command tells it.
func secretOf(t *testing.T, i *instance, args ...string) string {
	t.Helper()
	var v server.SecretView
	out := i.good(append([]string{"webhook", "secret", "--json", "--account"}, args...)...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Account != args[0] || !strings.HasPrefix(v.Secret, "whsec_") {
		t.Fatalf("%v: %s", err, out)
	}
	return v.Secret
}

func TestAnAccountsSecretIsMadeOnceAndRotated(t *testing.T) {
	i := serving(t)
	first := secretOf(t, i, "acme")
	if again := secretOf(t, i, "acme"); again != first {
		t.Errorf("asked again, it is %s, not %s", again, first)
	}
	next := secretOf(t, i, "acme", "--rotate")
	if next == first || secretOf(t, i, "acme") != next {
		t.Errorf("after a rotation it is %s, before %s", next, first)
	}
	out := i.good("webhook", "secret", "--account", "acme", "--rotate")
	if strings.Contains(out, next) || !strings.HasPrefix(out, "whsec_") || !strings.Contains(out, "24 hours") {
		t.Errorf("the command says\n%s", out)
	}
	if r := i.command("webhook", "secret", "--account", "nobody"); r.code != exitFailed || !strings.Contains(r.stderr, `There is no account "nobody"`) {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	log := i.stderr.String()
	if strings.Contains(log, "whsec_") || !strings.Contains(log, "action=webhook.secret.show account=acme") && !strings.Contains(log, "action=webhook.secret.rotate") {
		t.Errorf("the log is\n%s", log)
	}
}

func TestTheSecretOutlivesTheServerAndIsThereWithoutOne(t *testing.T) {
	for kind, address := range databases(t) {
		t.Run(kind, func(t *testing.T) {
			name := file(t, planted("m")+"store: "+address+"\n")
			i := start(t, acme, "--config", name)
			first := secretOf(t, i, "acme")
			i.stop()
			var v server.SecretView
			for _, rotate := range []bool{false, true} {
				args := []string{"webhook", "secret", "--account", "acme", "--json", "--config", name, "--data", i.data}
				if rotate {
					args = append(args, "--rotate")
				}
				r := tollhouse(t, nil, args...)
				if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.code != exitOK || (v.Secret == first) == rotate {
					t.Errorf("without a server: %d %q %q, %v", r.code, r.stdout, r.stderr, err)
				}
			}
			i = again(t, i, acme, "--config", name)
			if now := secretOf(t, i, "acme"); now != v.Secret {
				t.Errorf("the server then has %s, not %s", now, v.Secret)
			}
			if r := tollhouse(t, nil, "webhook", "list", "--json", "--config", name, "--data", i.data, "--admin", i.admin); r.stdout != "{\n  \"object\": \"list\",\n  \"data\": []\n}\n" {
				t.Errorf("the list is %q %q", r.stdout, r.stderr)
			}
		})
	}
}

func TestASecretOfAStoreInMemoryIsInItsServerOnly(t *testing.T) {
	name := file(t, planted("m")+"store: \"memory:\"\n")
	for _, args := range []string{"webhook secret --account acme", "webhook list", "webhook resend evt_1"} {
		r := tollhouse(t, nil, append(strings.Fields(args), "--config", name, "--data", t.TempDir())...)
		if r.code != exitFailed || !strings.Contains(r.stderr, "a store in memory is in its server only") {
			t.Errorf("%s: %d %q", args, r.code, r.stderr)
		}
	}
}

// The whole way: from the settlement to the receiver, to the operator and, after
// a restart, to the receiver once more.
func TestAWebhookIsListedAndSentAgain(t *testing.T) {
	for kind, address := range databases(t) {
		t.Run(kind, func(t *testing.T) {
			url, got := receiver(t, http.StatusNoContent)
			name := file(t, filmed(filmer(t, "succeeded"))+"webhooks: {allow_private: true}\nstore: "+address+"\n")
			i := start(t, acme, "--config", name)
			i.submitVideo(acme["ACME_KEY"], film, gammaBoat, url)
			first := <-got
			verified(t, secretOf(t, i, "acme"), first)
			id := first.header.Get("Webhook-Id")
			list := i.noticed("sent")
			if !regexp.MustCompile(id + ` +acme +video\.generation\.succeeded +cgt-1 +127\.0\.0\.1 +sent +0 +20\S+Z +-`).MatchString(list) {
				t.Errorf("the list is\n%s", list)
			}
			if strings.Contains(list+i.good("webhook", "list", "--json"), "in-the-address") {
				t.Errorf("the list tells the address:\n%s", list)
			}
			before, after := secretOf(t, i, "acme"), secretOf(t, i, "acme", "--rotate")
			i.stop()

			if r := tollhouse(t, nil, "webhook", "resend", id, "--config", name, "--data", i.data); r.code != exitOK || !strings.Contains(r.stdout, "is due again") {
				t.Fatalf("resend: %d %s%s", r.code, r.stdout, r.stderr)
			}
			again(t, i, acme, "--config", name)
			second := <-got
			if string(second.body) != string(first.body) || second.header.Get("Webhook-Id") != id {
				t.Errorf("sent again, it is another:\n%s\n%s", first.body, second.body)
			}
			verified(t, before, second) // both sign after a rotation
			verified(t, after, second)
		})
	}
}

func TestAWebhookThatFailsIsListedWithItsReason(t *testing.T) {
	url, got := receiver(t, http.StatusGone)
	i := start(t, acme, "--config", file(t, filmed(filmer(t, "failed"))+"webhooks: {allow_private: true}\nstore: memory\n"))
	i.submitVideo(acme["ACME_KEY"], film, gammaBoat, url)
	id := (<-got).header.Get("Webhook-Id")
	if list := i.noticed("failed"); !strings.Contains(list, "the receiver answered with 410: it wants no more tries") {
		t.Errorf("the list is\n%s", list)
	}
	var list struct{ Data []server.NoticeView }
	if err := json.Unmarshal([]byte(i.good("webhook", "list", "--account", "acme", "--limit", "1", "--json")), &list); err != nil ||
		len(list.Data) != 1 || list.Data[0].ID != id || list.Data[0].Tries != 1 || list.Data[0].Next != nil || list.Data[0].Ended == nil {
		t.Errorf("%+v, %v", list, err)
	}
	for range cap(got) { // without room for it the next try is not answered
		got <- hook{}
	}
	i.good("webhook", "resend", id)
	if list := i.good("webhook", "list"); !strings.Contains(list, "waiting") {
		t.Errorf("after it was to be sent again, the list is\n%s", list)
	}
	if r := i.command("webhook", "resend", "evt_none"); r.code != exitFailed || !strings.Contains(r.stderr, `There is no webhook "evt_none"`) {
		t.Errorf("%d %q", r.code, r.stderr)
	}
}

// noticed lists the webhooks once one of them is in a state, which it may be a
// moment after its receiver has answered.
func (i *instance) noticed(state string) (list string) {
	i.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		if list = i.good("webhook", "list"); strings.Contains(list, " "+state+" ") {
			return list
		}
	}
	i.t.Fatalf("no webhook is %s:\n%s", state, list)
	return ""
}

func TestAWebhookToThisMachineIsRefusedUnlessTheFileAllowsIt(t *testing.T) {
	i := start(t, acme, "--config", file(t, filmed(filmer(t, "succeeded"))))
	status, body := i.ask(http.MethodPost, videosPath, acme["ACME_KEY"], `{"model":"`+film+`",`+gammaBoat+`,"webhook_url":"http://127.0.0.1:9/hook"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "webhook_url") {
		t.Errorf("%d %s", status, body)
	}
}

func TestWrongWordsAboutWebhooksAreUsage(t *testing.T) {
	for args, want := range map[string]string{
		"webhook secret":            "--account is missing",
		"webhook secret acme":       `takes no arguments, and got "acme"`,
		"webhook list --limit 0":    "--limit must be from 1 to 1000",
		"webhook list --limit 1001": "--limit must be from 1 to 1000",
		"webhook resend":            "ID is missing",
		"webhook resend a b":        `"b" is one argument too many`,
		"webhook":                   "webhook needs one of its commands: `tollhouse webhook secret`, `tollhouse webhook list`, `tollhouse webhook resend`",
	} {
		r := tollhouse(t, nil, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("%s: %d %q %q", args, r.code, r.stderr, r.stdout)
		}
	}
}
