package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/video"
)

// withDeliveries is an operator's API whose tasks have sent so many notices, one a
// second, of the accounts acme and beta in turn.
func withDeliveries(t *testing.T, notices int) (*adminFixture, *memory.Tasks) {
	t.Helper()
	begun := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	tasks := memory.NewTasks(func() time.Time { return begun.Add(time.Hour) }, nil)
	for n := range notices {
		account := []string{"acme", "beta"}[n%2]
		task := video.Task{
			ID: fmt.Sprintf("vid_%d", n), Account: account, Model: "m", Family: video.FamilyBeta, State: video.Queued,
			CreatedAt: begun, WebhookURL: "https://user:password@hooks.example:8443/way?token=hush",
		}
		if err := tasks.Add(t.Context(), video.CreateTask{Task: task}); err != nil {
			t.Fatal(err)
		}
		task.State, task.Version = video.Succeeded, 1
		step := video.Step{Task: task, Delivery: videoop.Delivery(&task, fmt.Sprintf("evt_%d", n), begun.Add(time.Duration(n)*time.Second))}
		if ok, err := tasks.Change(t.Context(), step, nil); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	o := newAdminFixture(t, func(a *server.AdminOptions) { a.Webhooks = tasks })
	if err := o.ledger.CreateAccount(t.Context(), "beta", 0); err != nil {
		t.Fatal(err)
	}
	return o, tasks
}

func TestAWebhookSecretOverTheAdminAPI(t *testing.T) {
	o, tasks := withDeliveries(t, 0)
	const path = "/admin/v1/accounts/acme/webhook-secret"
	status, first := o.ask("GET", path, "")
	if status != 200 || !strings.HasPrefix(first, `{"account":"acme","secret":"whsec_`) {
		t.Fatalf("%d %s", status, first)
	}
	if _, again := o.ask("GET", path, ""); again != first {
		t.Errorf("asked again, it is %s, not %s", again, first)
	}
	status, next := o.ask("POST", path+"/rotate", "")
	if _, again := o.ask("GET", path, ""); status != 200 || next == first || again != next {
		t.Errorf("rotated: %d %s, then %s", status, next, again)
	}
	if _, other := o.ask("GET", "/admin/v1/accounts/beta/webhook-secret", ""); strings.Contains(other, next[20:]) {
		t.Errorf("two accounts share %s", other)
	}
	if signing, err := tasks.Secrets(t.Context(), "acme"); err != nil || len(signing) != 2 {
		t.Errorf("after a rotation %d secrets sign, %v", len(signing), err)
	}
	for _, path := range []string{"/admin/v1/accounts/nobody/webhook-secret", "/admin/v1/accounts/nobody/webhook-secret/rotate"} {
		method := map[bool]string{true: "POST", false: "GET"}[strings.HasSuffix(path, "rotate")]
		if status, body := o.ask(method, path, ""); status != 404 || !strings.Contains(body, "There is no account") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	log := o.log.String()
	if strings.Contains(log, "whsec_") || strings.Count(log, "action=webhook.secret.show outcome=done ") != 4 || strings.Count(log, "action=webhook.secret.rotate outcome=done ") != 1 {
		t.Errorf("the log is\n%s", log)
	}
}

// failDelivery ends a try of a notice.
func failDelivery(t *testing.T, tasks *memory.Tasks, id string, next time.Time, reason string, final bool) {
	t.Helper()
	all, err := tasks.Deliveries(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if n.ID != id {
			continue
		}
		if err := tasks.Failed(t.Context(), n.Delivery, next, reason, final); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWebhooksAreListedWithoutTheirAddresses(t *testing.T) {
	o, tasks := withDeliveries(t, 5)
	for range 3 {
		failDelivery(t, tasks, "evt_2", time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC), "no answer came in time", false)
	}
	if err := tasks.Done(t.Context(), "evt_1", time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	_, all := o.ask("GET", "/admin/v1/webhooks", "")
	for _, want := range []string{
		`{"object":"list","data":[{"id":"evt_4"`,
		`{"id":"evt_2","account":"acme","type":"video.generation.succeeded","task":"vid_2","host":"hooks.example","state":"waiting","tries":3,"reason":"no answer came in time","created":"2026-11-21T11:00:02Z","next":"2026-11-21T13:00:00Z"}`,
		`{"id":"evt_1","account":"beta","type":"video.generation.succeeded","task":"vid_1","host":"hooks.example","state":"sent","tries":0,"created":"2026-11-21T11:00:01Z","ended":"2026-11-21T12:30:00Z"}`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the list lacks %s:\n%s", want, all)
		}
	}
	if strings.Contains(all, "password") || strings.Contains(all, "hush") {
		t.Errorf("the list tells an address:\n%s", all)
	}
	for _, c := range []struct {
		query  string
		status int
		want   string
		count  int
	}{
		{"", 200, "evt_0", 5},
		{"?account=beta", 200, "evt_3", 2},
		{"?limit=1", 200, "evt_4", 1},
		{"?limit=1000", 200, "evt_0", 5},
		{"?account=nobody", 404, "There is no account", 0},
		{"?limit=0", 400, `"param":"limit"`, 0},
		{"?limit=1001", 400, `"param":"limit"`, 0},
		{"?limit=all", 400, "a whole number from 1 to 1000", 0},
	} {
		status, body := o.ask("GET", "/admin/v1/webhooks"+c.query, "")
		if status != c.status || !strings.Contains(body, c.want) || strings.Count(body, `"id":`) != c.count {
			t.Errorf("%s: %d %s", c.query, status, body)
		}
	}
}

func TestAWebhookIsSentAgainOverTheAdminAPI(t *testing.T) {
	o, tasks := withDeliveries(t, 1)
	failDelivery(t, tasks, "evt_0", time.Time{}, "the receiver answered with 410", true)
	status, body := o.ask("POST", "/admin/v1/webhooks/evt_0/resend", "")
	if status != 200 || body != "{\"id\":\"evt_0\",\"state\":\"waiting\"}\n" {
		t.Errorf("%d %s", status, body)
	}
	if due, err := tasks.Due(t.Context(), "node", time.Now().Add(time.Hour), 9); err != nil || len(due) != 1 || due[0].Tries != 0 {
		t.Errorf("due are %v, %v", due, err)
	}
	if status, body = o.ask("POST", "/admin/v1/webhooks/evt_9/resend", ""); status != 404 || !strings.Contains(body, `There is no webhook \"evt_9\"`) {
		t.Errorf("%d %s", status, body)
	}
	if log := o.log.String(); strings.Count(log, "msg=audit") != 2 || !strings.Contains(log, "action=webhook.resend outcome=done") || !strings.Contains(log, "target=evt_0") {
		t.Errorf("the log is\n%s", log)
	}
}

// unavailable is a store that does not answer.
type unavailable struct{ server.Webhooks }

func (unavailable) Resend(context.Context, string) (bool, error) {
	return false, errors.New("private: disk")
}

func TestAStoreOfWebhooksThatIsBrokenTellsNothingOfItself(t *testing.T) {
	broken := newAdminFixture(t, func(a *server.AdminOptions) { a.Webhooks = unavailable{} })
	if status, body := broken.ask("POST", "/admin/v1/webhooks/evt_0/resend", ""); status != 500 || strings.Contains(body, "private") {
		t.Errorf("%d %s", status, body)
	}
}
