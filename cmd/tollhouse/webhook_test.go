package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/video"
)

// receivedWebhook is a request that a receiver of webhooks got.
type receivedWebhook struct {
	header http.Header
	body   []byte
}

// webhookReceiver gets webhooks on this machine, and answers with a status once there is
// room for them in got.
func webhookReceiver(t *testing.T, status int) (url string, got chan receivedWebhook) {
	t.Helper()
	got = make(chan receivedWebhook, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case got <- receivedWebhook{r.Header, body}:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/hook?token=in-the-address", got
}

// verifyWebhook checks a webhook as its receiver does.
func verifyWebhook(t *testing.T, secret string, h receivedWebhook) {
	t.Helper()
	w, err := webhooks.NewWebhook(secret)
	if err == nil {
		err = w.Verify(h.body, h.header)
	}
	if err != nil {
		t.Errorf("the webhook is not signed with the account's secret: %v\n%v", err, h.header)
	}
}

// webhookSecretOf is the account's, as the command tells it.
func webhookSecretOf(t *testing.T, i *instance, args ...string) string {
	t.Helper()
	var v adminapi.WebhookSecret
	out := i.good(append([]string{"webhook", "secret", "--json", "--account"}, args...)...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Account != args[0] || !strings.HasPrefix(v.Secret, "whsec_") {
		t.Fatalf("%v: %s", err, out)
	}
	return v.Secret
}

// The whole way: from the settlement to the receiver, to the operator and, after
// a restart, to the receiver once more.
func TestAWebhookIsListedAndSentAgain(t *testing.T) {
	for kind, address := range databases(t) {
		t.Run(kind, func(t *testing.T) {
			url, got := webhookReceiver(t, http.StatusNoContent)
			name := file(t, videoConfig(taskVendor(t, "succeeded"))+"webhooks: {allow_private: true}\nstore: "+address+"\n")
			i := start(t, acme, "--config", name)
			i.submitVideo(acme["ACME_KEY"], gammaModel, gammaBoat, url)
			first := <-got
			verifyWebhook(t, webhookSecretOf(t, i, "acme"), first)
			id := first.header.Get("Webhook-Id")
			list := i.awaitWebhook("sent")
			if !regexp.MustCompile(id + ` +acme +video\.generation\.succeeded +cgt-1 +127\.0\.0\.1 +sent +0 +20\S+Z +-`).MatchString(list) {
				t.Errorf("the list is\n%s", list)
			}
			if strings.Contains(list+i.good("webhook", "list", "--json"), "in-the-address") {
				t.Errorf("the list tells the address:\n%s", list)
			}
			before := webhookSecretOf(t, i, "acme")
			if out := i.good("webhook", "secret", "--account", "acme"); !strings.HasPrefix(out, before+"\n") || strings.Contains(out, "24 hours") {
				t.Errorf("the command says\n%s", out)
			}
			i.stop()
			// Without a server it is the same, and can be replaced.
			direct := &instance{t: t, data: i.data, admin: adminOff}
			if again := webhookSecretOf(t, direct, "acme", "--config", name); again != before {
				t.Errorf("without a server the secret is %s, not %s", again, before)
			}
			after, said, _ := strings.Cut(direct.good("webhook", "secret", "--account", "acme", "--rotate", "--config", name), "\n")
			if after == before || !strings.Contains(said, "24 hours") {
				t.Errorf("rotated, the secret is %s, and the command says %s", after, said)
			}

			if r := tollhouse(t, nil, "webhook", "resend", id, "--config", name, "--data", i.data); r.code != exitOK || !strings.Contains(r.stdout, "is due again") {
				t.Fatalf("resend: %d %s%s", r.code, r.stdout, r.stderr)
			}
			restart(t, i, acme, "--config", name)
			second := <-got
			if string(second.body) != string(first.body) || second.header.Get("Webhook-Id") != id {
				t.Errorf("sent again, it is another:\n%s\n%s", first.body, second.body)
			}
			verifyWebhook(t, before, second) // both sign after a rotation
			verifyWebhook(t, after, second)
		})
	}
}

func TestAWebhookThatFailsIsListedWithItsReason(t *testing.T) {
	url, got := webhookReceiver(t, http.StatusGone)
	i := start(t, acme, "--config", file(t, videoConfig(taskVendor(t, "failed"))+"webhooks: {allow_private: true}\nstore: memory\n"))
	i.submitVideo(acme["ACME_KEY"], gammaModel, gammaBoat, url)
	id := (<-got).header.Get("Webhook-Id")
	if list := i.awaitWebhook("failed"); !strings.Contains(list, "the receiver answered with 410: it wants no more tries") {
		t.Errorf("the list is\n%s", list)
	}
	var list struct{ Data []adminapi.Delivery }
	if err := json.Unmarshal([]byte(i.good("webhook", "list", "--account", "acme", "--limit", "1", "--json")), &list); err != nil ||
		len(list.Data) != 1 || list.Data[0].ID != id || list.Data[0].Tries != 1 || list.Data[0].Next != nil || list.Data[0].Ended == nil {
		t.Errorf("%+v, %v", list, err)
	}
	for range cap(got) { // without room for it the next try is not answered
		got <- receivedWebhook{}
	}
	i.good("webhook", "resend", id)
	if list := i.good("webhook", "list"); !strings.Contains(list, "waiting") {
		t.Errorf("after it was to be sent again, the list is\n%s", list)
	}
	if r := i.command("webhook", "resend", "evt_none"); r.code != exitFailed || !strings.Contains(r.stderr, `There is no webhook "evt_none"`) {
		t.Errorf("%d %q", r.code, r.stderr)
	}
}

// awaitWebhook lists the webhooks once one of them is in a state, which it may be a
// moment after its receiver has answered.
func (i *instance) awaitWebhook(state string) (list string) {
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
	i := start(t, acme, "--config", file(t, videoConfig(taskVendor(t, "succeeded"))))
	status, body := i.ask(http.MethodPost, videosPath, acme["ACME_KEY"], `{"model":"`+gammaModel+`",`+gammaBoat+`,"webhook_url":"http://127.0.0.1:9/hook"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "webhook_url") {
		t.Errorf("%d %s", status, body)
	}
}

// gammaModel is the model of the tests, which a vendor on this machine makes.
const gammaModel = "gamma-2-0-260128"

// taskVendor is a vendor of videos whose tasks are in one state from the beginning.
func taskVendor(t *testing.T, state string) (base string) {
	t.Helper()
	var tasks atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			_, _ = fmt.Fprintf(w, `{"id":"cgt-%d"}`, tasks.Add(1))
			return
		}
		id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		end := `"content":{"video_url":"https://cdn.example/a.mp4"},"usage":{"completion_tokens":1000,"total_tokens":1000}`
		if state == "failed" {
			end = `"error":{"code":"OutputVideoSensitiveContentDetected","message":"The output was flagged."}`
		}
		_, _ = fmt.Fprintf(w, `{"id":"%s","model":"theirs","status":"%s",%s}`, id, state, end)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// videoConfig is a file with that vendor.
func videoConfig(base string) string {
	return `channels:
  - {name: film, driver: ark, base_url: "` + base + `", models: {gamma-2-0-260128: theirs}}
prices:
  gamma-2-0-260128: {output: "7.00"}
accounts:
  - {name: acme, credit: "25.00", keys: [{env: ACME_KEY}]}
video: {poll: 1ms}
`
}

// submitVideo submits a task whose end webhook is told of, and waits for it.
func (i *instance) submitVideo(key, model, prompt, webhook string) *video.Response {
	i.t.Helper()
	body := fmt.Sprintf(`{"model":%q,%s,"duration":5,"resolution":"720p","webhook_url":%q,"wait":true}`, model, prompt, webhook)
	status, answer := i.ask(http.MethodPost, videosPath, key, body)
	r := new(video.Response)
	if err := jsonv2.Unmarshal([]byte(answer), r); err != nil || status/100 != 2 || !r.Status.Terminal() {
		i.t.Fatalf("%s: %d %.500s, %v", model, status, answer, err)
	}
	return r
}

const (
	videosPath = "/v1/videos/generations"
	betaBoat   = `"input":{"prompt":"A boat."}`
	gammaBoat  = `"content":[{"type":"text","text":"A boat."}]`
)

func TestTheDemoShowsTheWholeLifeOfAVideo(t *testing.T) {
	i := startEdited(t, withInstantVideos, nil, "--demo")
	key := firstKey(t, i.stdout.String())
	url, got := webhookReceiver(t, http.StatusOK)
	for n, row := range []struct{ model, prompt string }{{"beta2.6-t2v", betaBoat}, {gammaModel, gammaBoat}} {
		r := i.submitVideo(key, row.model, row.prompt, url)
		if r.Status != video.Succeeded || r.Model != row.model || len(r.Content) != 1 || !strings.HasPrefix(r.Content[0].VideoURL, "data:video/mp4;base64,") {
			t.Fatalf("%s: %+v", row.model, r)
		}
		h := <-got
		verifyWebhook(t, webhookSecretOf(t, i, demoAccount), h)
		if !strings.Contains(string(h.body), `"type":"video.generation.succeeded","data":{"id":"`+r.ID+`"`) {
			t.Errorf("%s: the webhook is %.200s", row.model, h.body)
		}
		if n == 0 {
			if _, body := i.ask(http.MethodGet, "/v1/balance", key, ""); !strings.Contains(body, `"posted":"24.50","held":"0.00"`) {
				t.Errorf("after 5 seconds at 0.10 the balance is %s", body)
			}
		}
	}
}
