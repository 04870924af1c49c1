package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/server"
)

// tried has one request on acme whose second try was answered.
func (o *office) tried(t *testing.T) {
	t.Helper()
	p, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1000000"})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := o.ledger.Reserve(t.Context(), billing.Charge{Account: "acme", Key: "k", RequestID: "req_1", Operation: "chat", Model: "m", Price: p, Bound: billing.Usage{Input: 9}})
	if err == nil {
		_, err = o.ledger.Settle(t.Context(), hold, billing.Usage{Input: 3}, billing.Outcome{
			Reason: billing.ReasonComplete, Channel: "b", Failed: []billing.Attempt{{
				Channel: "a", Model: "their-m", StartedAt: time.Unix(7, 0), Duration: 2 * time.Second, Code: "BadGateway", Status: 200,
				Billable: true, Used: billing.Usage{Input: 2},
			}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestARequestOverTheAdminAPITellsOfTheTriesThatFailed(t *testing.T) {
	o := newOffice(t, nil)
	o.tried(t)
	status, body := o.ask("GET", "/admin/v1/requests/req_1", "")
	for _, want := range []string{
		`"id":"req_1"`, `"account":"acme"`, `"charge":"3.00"`, `"channel":"b"`,
		`"failed_attempts":[{"channel":"a","model":"their-m","started_at":7,"duration_ms":2000,"code":"BadGateway","status":200,"billable":true,"units":{"input":2},"waste":"2.00"}]`,
	} {
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("%d %s lacks %s", status, body, want)
		}
	}
	if status, body := o.ask("GET", "/admin/v1/requests/req_2", ""); status != 404 || !strings.Contains(body, "req_2") {
		t.Errorf("another one: %d %s", status, body)
	}
}

func TestWasteOverTheAdminAPI(t *testing.T) {
	o := newOffice(t, nil)
	o.tried(t)
	for _, c := range []struct {
		query  string
		status int
		want   string
	}{
		{"", 200, `{"object":"list","data":[{"channel":"a","model":"their-m","failed":1,"billable":1,"waste":"2.00"}]}`},
		{"?account=acme&since=2020-01-01T00:00:00Z", 200, `"waste":"2.00"`},
		{"?until=2020-01-01T00:00:00Z", 200, `"data":[]`},
		{"?account=nobody", 404, "no account"},
		{"?since=yesterday", 400, `"param":"since"`},
	} {
		if status, body := o.ask("GET", "/admin/v1/waste"+c.query, ""); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.query, status, body)
		}
	}
}

// plain is a ledger that keeps no tries.
type plain struct{ billing.Accounts }

func TestALedgerWithoutTriesSaysSo(t *testing.T) {
	o := newOffice(t, func(o *server.AdminOptions) { o.Accounts = plain{o.Accounts} })
	for _, path := range []string{"/admin/v1/waste", "/admin/v1/requests/req_1"} {
		if status, body := o.ask("GET", path, ""); status != 404 || !strings.Contains(body, "keeps no failed tries") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
