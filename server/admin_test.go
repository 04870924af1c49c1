package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const adminToken = "admin-0123456789"

// adminFixture is an operator's API with a ledger and keys of its own.
type adminFixture struct {
	http.Handler
	ledger memory.Ledger
	keys   *memory.Keys
	log    bytes.Buffer
}

func newAdminFixture(t *testing.T, edit func(*server.AdminOptions)) *adminFixture {
	t.Helper()
	o := &adminFixture{ledger: memory.NewLedger(memory.LedgerOptions{}), keys: new(memory.Keys)}
	options := server.AdminOptions{
		Token: secret.New(adminToken), Accounts: o.ledger, Keys: o.keys, Logger: slog.New(slog.NewTextHandler(&o.log, nil)),
	}
	if edit != nil {
		edit(&options)
	}
	o.Handler = server.NewAdmin(options)
	if err := o.ledger.CreateAccount(t.Context(), "acme", 25*billing.One); err != nil {
		t.Fatal(err)
	}
	return o
}

// ask sends a request with the token.
func (o *adminFixture) ask(method, path, body string) (int, string) {
	w := o.record(method, path, body, "Bearer "+adminToken)
	return w.Code, w.Body.String()
}

func (o *adminFixture) record(method, path, body, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	return w
}

func TestTheAdminAPINeedsItsToken(t *testing.T) {
	o := newAdminFixture(t, nil)
	for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + adminToken, "Bearer " + adminToken + "x", "Bearer sk-key"} {
		for _, path := range []string{"/admin/v1/accounts", "/admin/v1/nothing", "/"} {
			w := o.record(http.MethodGet, path, "", authorization)
			if w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" || !strings.Contains(w.Body.String(), "the file admin-token") || strings.Contains(w.Body.String(), adminToken) {
				t.Errorf("%q on %s: %d %s", authorization, path, w.Code, w.Body)
			}
		}
		none := newAdminFixture(t, func(a *server.AdminOptions) { a.Token = secret.String{} })
		if w := none.record(http.MethodGet, "/admin/v1/accounts", "", authorization); w.Code != 401 {
			t.Errorf("%q where there is no token: %d %s", authorization, w.Code, w.Body)
		}
	}
	if w := o.record(http.MethodGet, "/admin/v1/accounts", "", "bearer "+adminToken); w.Code != 200 {
		t.Errorf("the token in lower case: %d %s", w.Code, w.Body)
	}
	if w := o.record(http.MethodGet, "/healthz", "", ""); w.Code != 200 || w.Body.String() != "{\"status\":\"ok\"}\n" {
		t.Errorf("its health needs none: %d %s", w.Code, w.Body)
	}
	if strings.Contains(o.log.String(), adminToken) || !strings.Contains(o.log.String(), "without the token") {
		t.Errorf("the log is %s", &o.log)
	}
}

// TestTheAdminAPI asks one server, which has no channels and no webhooks, one thing
// after the other.
func TestTheAdminAPI(t *testing.T) {
	o := newAdminFixture(t, nil)
	o.settleRequest(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/accounts/", "", 404, "Not found"},
		{"GET", "/accounts/acme/more", "", 404, "Not found"},
		{"POST", "/keys/a/b/disable", "", 404, "Not found"},
		{"PUT", "/accounts", "", 405, "takes GET or POST"},
		{"GET", "/reload", "", 405, "takes POST"},
		{"POST", "/keys/k", "", 405, "takes DELETE"},
		{"POST", "/reload", "", 400, "nothing to reload"},

		{"POST", "/accounts", `{"name":"` + strings.Repeat("a", 2<<20) + `"}`, 413, "request_too_large"},
		{"POST", "/accounts", `{"name":"b+c","credit":"1.5"}`, 201, `{"account":"b+c","currency":"USD","posted":"1.50","held":"0.00","available":"1.50"}`},
		{"POST", "/accounts", `{"name":"b+c"}`, 400, "already is an account"},
		{"GET", "/accounts/b+c", "", 200, `"posted":"1.50"`},
		{"GET", "/accounts/b%2Bc", "", 200, `"posted":"1.50"`},
		{"GET", "/accounts/nobody", "", 404, "no account"},
		{"POST", "/accounts/acme/credit", `{"amount":"5","reference":"r"}`, 200, `"posted":"27.00"`},
		{"POST", "/accounts/acme/credit", `{"amount":"5","reference":"r"}`, 200, `"posted":"27.00"`},
		{"GET", "/accounts", "", 200, `{"object":"list","data":[{"account":"acme",`},
		{"GET", "/ledger/verify", "", 200, `{"status":"ok","accounts":2,"posted":"28.50","held":"0.00","credited":"31.50","revenue":"3.00","overrun":"0.00","currency":"USD"}`},

		{"GET", "/usage", "", 200, `{"object":"list","by":"model","data":[{"charge":"3.00","model":"m","requests":1,"units":{"input":3}}]}`},
		{"GET", "/usage?account=acme&by=key", "", 200, `"key":"k"`},
		{"GET", "/usage?account=nobody", "", 404, "no account"},
		{"GET", "/usage?by=week", "", 400, `"param":"by"`},
		{"GET", "/usage?format=csv", "", 200, "model,requests,"},
		{"GET", "/requests/req_1", "", 200, `"failed_attempts":[{"channel":"a","model":"their-m","started_at":7,"duration_ms":2000,"code":"BadGateway","status":200,"billable":true,"units":{"input":2},"waste":"2.00"}]`},
		{"GET", "/requests/req_2", "", 404, "req_2"},
		{"GET", "/waste", "", 200, `{"object":"list","data":[{"channel":"a","model":"their-m","failed":1,"billable":1,"waste":"2.00"}]}`},
		{"GET", "/waste?account=acme&since=2020-01-01T00:00:00Z", "", 200, `"waste":"2.00"`},
		{"GET", "/waste?until=2020-01-01T00:00:00Z", "", 200, `"data":[]`},
		{"GET", "/waste?account=nobody", "", 404, "no account"},
		{"GET", "/waste?since=yesterday", "", 400, `"param":"since"`},

		{"GET", "/channels", "", 404, "only from a running server"},
		{"POST", "/channels/m/pause", "", 404, "only from a running server"},
		{"POST", "/channels/m/resume", "", 404, "only from a running server"},
		{"POST", "/channels/m/test", "", 404, "only from a running server"},
		{"GET", "/webhooks", "", 404, "keeps no webhooks"},
		{"POST", "/webhooks/evt_0/resend", "", 404, "keeps no webhooks"},
		{"GET", "/accounts/acme/webhook-secret", "", 404, "keeps no webhooks"},
		{"POST", "/accounts/acme/webhook-secret/rotate", "", 404, "keeps no webhooks"},
	} {
		w := o.record(c.method, "/admin/v1"+c.path, c.body, "Bearer "+adminToken)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || (w.Header().Get("Allow") != "") != (c.status == 405) {
			t.Errorf("%s %s %.100s: %d %s", c.method, c.path, c.body, w.Code, w.Body)
		}
	}
}

func TestAnAdminBodyIsTakenByTheLetter(t *testing.T) {
	o := newAdminFixture(t, nil)
	for _, c := range []struct{ path, body, param, message string }{
		{"/admin/v1/accounts", `{"name":"b","colour":"red"}`, "colour", `no field \"colour\"`},
		{"/admin/v1/accounts", `{"Name":"b"}`, "Name", `no field \"Name\"`},
		{"/admin/v1/accounts", `{"name":"b","name":"c"}`, "", "one JSON object"},
		{"/admin/v1/accounts", `{"name":5}`, "name", `\"name\" must not be a JSON number`},
		{"/admin/v1/accounts", `{"name":"b","credit":25}`, "credit", `must not be a JSON number`},
		{"/admin/v1/accounts", `{"name":"b","credit":"1e3"}`, "credit", "decimal string"},
		{"/admin/v1/accounts", `{"name":"b"} {}`, "", "one JSON object"},
		{"/admin/v1/accounts", `[]`, "", "JSON object"},
		{"/admin/v1/accounts", ``, "", "JSON object"},
		{"/admin/v1/accounts/acme/credit", `{"amount":"5"}`, "reference", "reference"},
		{"/admin/v1/accounts/acme/credit", `{"amount":"-99","reference":"r"}`, "amount", "available"},
		{"/admin/v1/keys", `{}`, "account", "needs the name of the account"},
		{"/admin/v1/keys", `{"account":"acme","expires":"tomorrow"}`, "expires", "expires"},
		{"/admin/v1/keys", `{"account":"acme","expires":"2001-01-01T00:00:00Z"}`, "expires", "in the future"},
		{"/admin/v1/keys", `{"account":"acme","rpm":-1}`, "rpm", "rpm must be"},
		{"/admin/v1/keys", `{"account":"acme","budget":"-1"}`, "budget", "must not be negative"},
		{"/admin/v1/keys", `{"account":"acme","limits":{"rpm":1}}`, "limits", "no field"},
	} {
		status, body := o.ask(http.MethodPost, c.path, c.body)
		if status != 400 || !strings.Contains(body, c.message) || (c.param != "" && !strings.Contains(body, `"param":"`+c.param+`"`)) {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, body)
		}
	}
	if accounts, _ := o.ledger.Balances(t.Context(), "", 9); len(accounts) != 1 {
		t.Errorf("accounts were made: %v", accounts)
	}
	if keys, _ := o.keys.List(t.Context(), ""); len(keys) != 0 {
		t.Errorf("keys were made: %v", keys)
	}
}

func TestAdminListsComeByThePage(t *testing.T) {
	o := newAdminFixture(t, nil) // which has acme
	for _, name := range []string{"b", "c", "d"} {
		if status, body := o.ask("POST", "/admin/v1/accounts", `{"name":"`+name+`"}`); status != 201 {
			t.Fatal(body)
		}
		if err := o.keys.Add(t.Context(), auth.Key{ID: "key_" + name, Account: name, Hash: auth.HashOf(name)}); err != nil {
			t.Fatal(err)
		}
		if err := o.ledger.SetBudget(t.Context(), name, "key_"+name, new(billing.One)); err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile(`"(?:id|account)":"(\w+)"`)
	for _, c := range []struct {
		path   string
		status int
		names  string // accounts, or each key's id and account
		more   bool
		says   string
	}{
		{"/admin/v1/accounts", 200, "acme b c d", false, `"posted":"25.00"`},
		{"/admin/v1/accounts?limit=2", 200, "acme b", true, `"has_more":true}`},
		{"/admin/v1/accounts?limit=2&after=b", 200, "c d", false, ""},
		{"/admin/v1/accounts?after=bb", 200, "c d", false, ""},
		{"/admin/v1/accounts?after=d", 200, "", false, `"data":[]`},
		{"/admin/v1/keys?limit=1", 200, "key_b b", true, `"budget_left":"1.00"`},
		{"/admin/v1/keys?limit=2&after=key_b", 200, "key_c c key_d d", false, ""},
		{"/admin/v1/keys?account=c&limit=1", 200, "key_c c", false, ""},
		{"/admin/v1/keys?after=key_x", 400, "", false, `"param":"after"`},
		{"/admin/v1/accounts?limit=0", 400, "", false, `"param":"limit"`},
		{"/admin/v1/accounts?limit=10001", 400, "", false, "from 1 to 10000"},
		{"/admin/v1/keys?limit=ten", 400, "", false, `"param":"limit"`},
	} {
		status, body := o.ask("GET", c.path, "")
		var names []string
		for _, m := range named.FindAllStringSubmatch(body, -1) {
			names = append(names, m[1])
		}
		if status != c.status || strings.Join(names, " ") != c.names || strings.Contains(body, `"has_more"`) != c.more || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s", c.path, status, body)
		}
	}
}

func TestAKeyOverTheAdminAPI(t *testing.T) {
	o := newAdminFixture(t, nil)
	status, body := o.ask("POST", "/admin/v1/keys",
		`{"account":"acme","name":"ci","models":["m"],"expires":"2100-01-01T00:00:00Z","rpm":7,"budget":"5"}`)
	m := regexp.MustCompile(`^{"id":"(key_\w+)","key":"(sk-\w+)","account":"acme","name":"ci"}\n$`).FindStringSubmatch(body)
	if status != 201 || m == nil {
		t.Fatalf("%d %s", status, body)
	}
	id, key := m[1], m[2]
	hold, err := o.ledger.Reserve(t.Context(), billing.HoldRequest{Account: "acme", Key: id, RequestID: "r"})
	if err != nil || hold.Available != 5*billing.One { // its budget, of the 25 of the account
		t.Errorf("available %s, %v", hold.Available, err)
	}
	if _, err := o.ledger.Settle(t.Context(), hold, billing.Usage{}); err != nil {
		t.Fatal(err)
	}
	k, err := o.keys.Find(t.Context(), auth.HashOf(key))
	if err != nil || k.ID != id || k.Limits.RPM != 7 || k.Expires.Year() != 2100 {
		t.Errorf("stored: %+v, %v", k, err)
	}
	_, body = o.ask("GET", "/admin/v1/keys?account=acme", "")
	if !strings.Contains(body, `"id":"`+id+`"`) || !strings.Contains(body, `"rpm":7`) || !strings.Contains(body, `"budget_left":"5.00"`) || strings.Contains(body, key) {
		t.Errorf("the list is %s", body)
	}
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"POST", "/disable", 200, `"disabled":true`}, {"POST", "/enable", 200, `"disabled":false`},
		{"DELETE", "", 200, `"deleted":true`}, {"DELETE", "", 404, "no key"}, {"POST", "/enable", 404, "no key"},
	} {
		if status, body := o.ask(c.method, "/admin/v1/keys/"+id+c.path, ""); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	if log := o.log.String(); strings.Contains(log, key) || strings.Count(log, "msg=audit") != 6 {
		t.Errorf("the log is\n%s", log)
	}
}

func TestAReloadOverTheAdminAPITellsWhatIsWrong(t *testing.T) {
	if status, body := newAdminFixture(t, nil).ask("POST", "/admin/v1/reload", ""); status != 400 || !strings.Contains(body, "nothing to reload") {
		t.Errorf("without a file: %d %s", status, body)
	}
	var result error
	o := newAdminFixture(t, func(a *server.AdminOptions) { a.Reload = func(context.Context) error { return result } })
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{nil, 200, `"reloaded"`},
		{fault.New(fault.InvalidRequest, "t.yaml:3:1: wrong"), 400, "t.yaml:3:1: wrong"},
		{errors.New("some private cause"), 500, "internal_error"},
	} {
		result = c.err
		if status, body := o.ask("POST", "/admin/v1/reload", ""); status != c.status || !strings.Contains(body, c.want) || strings.Contains(body, "private") {
			t.Errorf("%v: %d %s", c.err, status, body)
		}
	}
}

func TestAPanicInTheAdminAPIIsA500(t *testing.T) {
	o := newAdminFixture(t, func(a *server.AdminOptions) { a.Keys = nil })
	if status, body := o.ask("GET", "/admin/v1/keys", ""); status != 500 || !strings.Contains(body, `"code":"internal_error"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := o.ask("GET", "/admin/v1/accounts", ""); status != 200 {
		t.Errorf("the next request got %d", status)
	}
}

// settleRequest settles one request on acme whose second try was answered.
func (o *adminFixture) settleRequest(t *testing.T) {
	t.Helper()
	p, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1000000"})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := o.ledger.Reserve(t.Context(), billing.HoldRequest{Account: "acme", Key: "k", RequestID: "req_1", Operation: "chat", Model: "m", Price: p, Bound: billing.Usage{Input: 9}})
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

func TestMetricsNeedTheAdminTokenUnlessTheyArePublic(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1\n") })
	for _, row := range []struct {
		name          string
		method, token string
		public        bool
		metrics       http.Handler
		status        int
	}{
		{"with the token", http.MethodGet, "admin-1", false, metrics, 200},
		{"its head", http.MethodHead, "admin-1", false, metrics, 200},
		{"without", http.MethodGet, "", false, metrics, 401},
		{"with another", http.MethodGet, "admin-2", false, metrics, 401},
		{"public", http.MethodGet, "", true, metrics, 200},
		{"a POST", http.MethodPost, "admin-1", true, metrics, 404},
		{"none", http.MethodGet, "admin-1", true, nil, 404},
	} {
		h := server.NewAdmin(server.AdminOptions{
			Token: secret.New("admin-1"), Accounts: memory.NewLedger(memory.LedgerOptions{}), Keys: new(memory.Keys),
			Metrics: row.metrics, PublicMetrics: row.public,
		})
		r := httptest.NewRequest(row.method, "/metrics", http.NoBody)
		if row.token != "" {
			r.Header.Set("Authorization", "Bearer "+row.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if told := w.Body.String() == "m 1\n"; w.Code != row.status || told != (row.status == 200) {
			t.Errorf("%s: %d %s", row.name, w.Code, w.Body)
		}
	}
}

// withChannels is an operator's API over two channels.
func withChannels(t *testing.T, edit func(*server.AdminOptions)) (*adminFixture, *router.Router) {
	t.Helper()
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, nil })
	routing, err := router.New([]router.Channel{
		{Name: "main", Upstream: up, Models: map[string]string{"m": "m"}, Weight: 3},
		{Name: "west/spare", Upstream: up, Models: map[string]string{"*": "*"}, Priority: 1},
	}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newAdminFixture(t, func(a *server.AdminOptions) {
		a.Channels = routing
		if edit != nil {
			edit(a)
		}
	}), routing
}

func TestAChannelIsPausedAndResumedOverTheAdminAPI(t *testing.T) {
	o, routing := withChannels(t, nil)
	const ready = `"state":"ready","models":["m"],"priority":0,"weight":3,"in_flight":0,"requests":0,"failures":0,"latency_ms":0}`
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "", 200, `{"object":"list","data":[{"name":"main",` + ready + `,{"name":"west/spare","state":"ready"`},
		{"POST", "/main/pause", 200, `{"name":"main","state":"paused"`},
		{"POST", "/main/pause", 200, `"state":"paused"`},
		{"GET", "", 200, `[{"name":"main","state":"paused"`},
		{"POST", "/west%2Fspare/pause", 200, `{"name":"west/spare","state":"paused"`},
		{"POST", "/main/resume", 200, ready},
		{"POST", "/main/resume", 200, ready},
		{"POST", "/nobody/pause", 404, `There is no channel \"nobody\". The channels are main, west/spare.`},
		{"POST", "/nobody/resume", 404, "The channels are main, west/spare."},
		{"POST", "/nobody/test", 404, "The channels are main, west/spare."},
		{"POST", "/main/test", 404, "cannot test"},
		{"GET", "/main/pause", 405, "POST"},
		{"GET", "/main", 404, "Not found"},
	} {
		if status, body := o.ask(c.method, "/admin/v1/channels"+c.path, ""); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	for _, c := range routing.Channels() {
		if (c.State == router.StatePaused) != (c.Name == "west/spare") {
			t.Errorf("%s is %s", c.Name, c.State)
		}
	}
}

func TestATestOfAChannelIsAnAnswerWhateverCameOfIt(t *testing.T) {
	var asked server.ChannelTest
	var result server.ChannelResult
	var refusal error
	o, _ := withChannels(t, func(a *server.AdminOptions) {
		a.TestChannel = func(_ context.Context, in server.ChannelTest) (server.ChannelResult, error) {
			asked = in
			return result, refusal
		}
	})
	result = server.ChannelResult{Channel: "main", Model: "m", Operation: "chat", MS: 12, Status: 401, Code: fault.NoChannel, Message: "No."}
	status, body := o.ask("POST", "/admin/v1/channels/main/test", "")
	if status != 200 || body != `{"channel":"main","model":"m","operation":"chat","ok":false,"simulated":false,"ms":12,"status":401,"code":"service_unavailable","message":"No."}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if !strings.Contains(o.log.String(), "action=channel.test outcome=done") || !strings.Contains(o.log.String(), "target=main model=m ok=false code=service_unavailable") {
		t.Error(o.log.String())
	}
	if status, _ := o.ask("POST", "/admin/v1/channels/main/test", `{"model":"n","yes":true}`); status != 200 || asked != (server.ChannelTest{Channel: "main", Model: "n", Yes: true}) {
		t.Errorf("%d, asked for %+v", status, asked)
	}
	if status, body := o.ask("POST", "/admin/v1/channels/main/test", `{"modell":"n"}`); status != 400 || !strings.Contains(body, "modell") {
		t.Errorf("%d %s", status, body)
	}
	refusal = fault.Invalid("yes", "It costs money.")
	if status, body := o.ask("POST", "/admin/v1/channels/main/test", ""); status != 400 || !strings.Contains(body, `"param":"yes"`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestUsageByKeyAndByAccountComesInPages(t *testing.T) {
	o := newAdminFixture(t, nil)
	if err := o.ledger.CreateAccount(t.Context(), "b", billing.One); err != nil {
		t.Fatal(err)
	}
	for i, of := range []billing.KeyOf{{Account: "acme", Key: "k1"}, {Account: "acme", Key: "k/2"}, {Account: "b", Key: "k1"}} {
		h, err := o.ledger.Reserve(t.Context(), billing.HoldRequest{Account: of.Account, Key: of.Key, RequestID: strings.Repeat("r", i+1), Operation: "chat", Model: "m"})
		if err == nil {
			_, err = o.ledger.Settle(t.Context(), h, billing.Usage{Input: int64(i + 1)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ query, rows, next string }{
		{"by=key", `"key":"k/2" "key":"k1"`, ""}, // whole, as ever: a key of two accounts is one row
		{"by=key&limit=2", `"key":"k/2" "key":"k1"`, "acme/k1"},
		{"by=key&limit=2&after=acme/k1", `"key":"k1"`, ""},
		{"by=key&limit=1", `"key":"k/2"`, "acme/k/2"},
		{"by=key&limit=1&after=acme/k/2", `"key":"k1"`, "acme/k1"},
		{"by=key&account=b&limit=1", `"key":"k1"`, ""},
		{"by=account", `"account":"acme" "account":"b"`, ""},
		{"by=account&limit=1", `"account":"acme"`, "acme"},
		{"by=account&limit=1&after=acme", `"account":"b"`, ""},
		{"by=account&after=b", ``, ""},
		{"by=model&limit=1", `400`, ""},
		{"by=key&limit=x", `400`, ""},
	} {
		status, body := o.ask("GET", "/admin/v1/usage?"+c.query, "")
		rows := strings.Join(regexp.MustCompile(`"`+regexp.MustCompile(`by=(\w+)`).FindStringSubmatch(c.query)[1]+`":"[^"]*"`).FindAllString(strings.Split(body+`"data":`, `"data":`)[1], -1), " ")
		next := ""
		if m := regexp.MustCompile(`"has_more":true,"next":"([^"]*)"`).FindStringSubmatch(body); m != nil {
			next = m[1]
		}
		if status != 200 {
			rows = strconv.Itoa(status)
		}
		if rows != c.rows || next != c.next {
			t.Errorf("%s: rows %s and next %q, want %s and %q: %s", c.query, rows, next, c.rows, c.next, body)
		}
	}
	w := o.record("GET", "/admin/v1/usage?by=key&limit=1&format=csv", "", "Bearer "+adminToken)
	if got, want := w.Header().Get("Link"), `</admin/v1/usage?after=acme%2Fk%2F2&by=key&format=csv&limit=1>; rel="next"`; got != want || strings.Count(w.Body.String(), "\n") != 2 {
		t.Errorf("as CSV: Link %s, want %s\n%s", got, want, w.Body.String())
	}
}
