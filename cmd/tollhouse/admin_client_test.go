package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
)

func serving(t *testing.T) *instance { return start(t, acme, "--config", file(t, simConfig("m"))) }

func TestAKeyWorksFromItsCreationAndAsLongAsItIsEnabled(t *testing.T) {
	i := serving(t)
	var made struct{ ID, Key, Account, Name string }
	if out := i.good("key", "create", "--account", "acme"); !regexp.MustCompile(`^sk-\w+\n\nIts id is key_\w+; its account is acme\. The key is shown only once: the server keeps only its hash\.\n$`).MatchString(out) {
		t.Errorf("a new key is printed as\n%s", out)
	}
	out := i.good("key", "create", "--account", "acme", "--name", "ci", "--json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Account != "acme" || made.Name != "ci" {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, c := range []struct {
		verb string
		want int
	}{{"enable", 200}, {"disable", 403}, {"enable", 200}, {"delete", 401}} {
		i.good("key", c.verb, made.ID)
		if status, body := i.ask(http.MethodGet, "/v1/models", made.Key, ""); status != c.want {
			t.Errorf("after %s: %d %s", c.verb, status, body)
		}
	}
	if r := i.command("key", "delete", made.ID); r.code != exitFailed || !strings.Contains(r.stderr, "There is no key") {
		t.Errorf("a second delete: %d %q", r.code, r.stderr)
	}
	if strings.Contains(i.stderr.String(), made.Key) {
		t.Error("the key is in the log")
	}
}

func TestAKeyIsBoundByItsFlags(t *testing.T) {
	i := serving(t)
	key := strings.Fields(i.good("key", "create", "--account", "acme", "--models", "other,m2", "--expires", "30d", "--rpm", "7", "--max-concurrent", "2"))[0]
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("m", false)); status != 403 {
		t.Errorf("another model got %d %s", status, body)
	}
	list := i.good("key", "list", "--account", "acme")
	until := time.Now().Add(30 * 24 * time.Hour).UTC().Format("2006-01-")
	if !regexp.MustCompile(`enabled +other,m2 +7 +- +2 +- +` + until).MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
	poor := strings.Fields(i.good("key", "create", "--account", "acme", "--budget", "0.000000001"))[0]
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", poor, chatBody("m", false)); status != 402 {
		t.Errorf("a key without budget got %d %s", status, body)
	}
	if list := i.good("key", "list"); !strings.Contains(list, "BUDGET LEFT") || !regexp.MustCompile(`enabled +all( +-){3} +0\.000000001 +-`).MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
}

func TestUsageIsSummedByModelAndKey(t *testing.T) {
	i := serving(t)
	for _, empty := range []string{"usage", "waste", "webhook list"} {
		if out := i.good(strings.Fields(empty)...); out != "none\n" {
			t.Errorf("%s prints\n%s", empty, out)
		}
		if out := i.good(append(strings.Fields(empty), "--json")...); !strings.Contains(out, `"data": []`) {
			t.Errorf("%s prints as JSON\n%s", empty, out)
		}
	}
	calls(i, "m")
	resp := i.open(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("m", false))
	_ = resp.Body.Close()
	if out := i.good("request", resp.Header.Get("X-Request-Id")); !regexp.MustCompile(`(?s)^REQUEST +req_\w+\n.*account +acme\n.*model +m\n.*status +captured\n.*charge +0\.\d+ USD\n`).MatchString(out) {
		t.Errorf("the request:\n%s", out)
	}
	if out := i.good("usage"); !regexp.MustCompile(`MODEL +REQUESTS +INPUT +OUTPUT +CHARGE\nm +2 `).MatchString(out) {
		t.Errorf("by model:\n%s", out)
	}
	if out := i.good("usage", "--account", "acme", "--since", "1h", "--by", "key"); !regexp.MustCompile(`\nkey_\w+ +2 `).MatchString(out) {
		t.Errorf("by key:\n%s", out)
	}
	var doc usageReport
	if err := json.Unmarshal([]byte(i.good("usage", "--by", "day", "--json")), &doc); err != nil || doc.By != "day" || len(doc.Data) != 1 || doc.Data[0].Requests != 2 {
		t.Errorf("as JSON: %+v, %v", doc, err)
	}
	if out := i.good("usage", "--by", "account"); !regexp.MustCompile(`ACCOUNT +REQUESTS +INPUT +OUTPUT +CHARGE\nacme +2 `).MatchString(out) {
		t.Errorf("by account:\n%s", out)
	}
	for args, some := range map[string]bool{"--since 2020-01-01": true, "--until 2020-01-01": false, "--since 48h --until 24h": false, "--since 2020-01-01T00:00:00Z --until 2100-01-01": true} {
		if out := i.good(strings.Fields("usage " + args)...); (out != "none\n") != some {
			t.Errorf("usage %s:\n%s", args, out)
		}
	}
	if r := tollhouse(t, nil, "usage", "--until", "soon"); r.code != exitUsage || !strings.Contains(r.stderr, "--until must be a time back such as 24h or 30d, a day such as 2026-10-01") {
		t.Errorf("until soon: %d %q", r.code, r.stderr)
	}
	made := strings.Fields(i.good("key", "create", "--account", "acme", "--name", "short-lived"))
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", made[0], chatBody("m", false)); status != 200 {
		t.Fatalf("the call got %d %s", status, body)
	}
	i.good("key", "delete", strings.TrimSuffix(made[4], ";"))
	if out := i.good("usage", "--by", "key"); !regexp.MustCompile(`\nkey_\w+ +1 .* acme +short-lived\n`).MatchString(out) {
		t.Errorf("by key, one of which was deleted:\n%s", out)
	}
	if out := i.good("ledger", "verify"); !strings.Contains(out, "sound") {
		t.Errorf("verify: %s", out)
	}
}

func TestWhatTheServerRefusesIsOneLineAndExitCode1(t *testing.T) {
	i := serving(t)
	for _, c := range []struct{ args, want string }{
		{"account create acme", "already is an account"},
		{"account create bad/name", "An account name is"},
		{"account create rich --credit 1e9", `--credit must be a decimal such as 25.00, with at most 9 digits after the point and below 9223372036, not "1e9"`},
		{"account show nobody", "There is no account \"nobody\". `tollhouse account list` lists the accounts.\n"},
		{"account credit nobody 5", "There is no account"},
		{"account credit acme 0.0000000001", `the AMOUNT must be a decimal such as 25.00, with at most 9 digits after the point and below 9223372036, not "0.0000000001"`},
		{"key create --account acme --budget 5,00", `--budget must be a decimal such as 25.00`},
		{"key create --account nobody", "There is no account"},
		{"key disable key_none", "There is no key with the id key_none. `tollhouse key list` lists the keys"},
		{"webhook resend evt_none", "There is no webhook \"evt_none\". `tollhouse webhook list` lists the webhooks"},
		{"usage --account nobody", "There is no account"},
		{"waste --account nobody", "There is no account"},
		{"request req_none", "There is no receipt \"req_none\". A receipt has the X-Request-Id of its answer as its id"},
	} {
		r := i.command(strings.Fields(c.args)...)
		if r.code != exitFailed || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" || strings.Contains(r.stderr, "try again") {
			t.Errorf("%s: %d %q %q", c.args, r.code, r.stderr, r.stdout)
		}
	}
}

func TestWhereMoneyIsOffCreditsAndBudgetsAreRefused(t *testing.T) {
	i := start(t, environment{"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "http://" + nowhere})
	for _, args := range []string{"account create a --credit 5", "account credit default 5", "key create --account default --budget 5"} {
		if r := i.command(strings.Fields(args)...); r.code != exitFailed || !strings.Contains(r.stderr, "billing: count") {
			t.Errorf("%s: %d %q", args, r.code, r.stderr)
		}
	}
	i.good("account", "create", "a")
	if out := i.good("account", "list"); !regexp.MustCompile(`default +- +- +- +-`).MatchString(out) {
		t.Errorf("the list is\n%s", out)
	}
}

func TestAFileThatIsNotThereIsCalledByWhatNamedIt(t *testing.T) {
	for _, c := range []struct {
		env  environment
		args []string
		by   string
	}{
		{nil, []string{"serve", "--config", "nope.yaml"}, "--config"},
		{environment{"TOLLHOUSE_CONFIG": "nope.yaml"}, []string{"serve"}, "TOLLHOUSE_CONFIG"},
		{nil, []string{"check", "--config", "nope.yaml"}, "--config"},
		{nil, []string{"models", "--config", "nope.yaml"}, "--config"},
		{nil, []string{"account", "credit", "acme", "5", "--config", "nope.yaml"}, "--config"},
		{environment{"TOLLHOUSE_CONFIG": "nope.yaml"}, []string{"admin", "token"}, "TOLLHOUSE_CONFIG"},
	} {
		r := tollhouse(t, c.env, c.args...)
		if want := ": there is no file nope.yaml, which " + c.by + " names: correct the name, or create the file with `tollhouse init --config nope.yaml`\n"; r.code != exitFailed || !strings.HasSuffix(r.stderr, want) {
			t.Errorf("%v: %d %q, want %q", c.args, r.code, r.stderr, want)
		}
	}
}

func TestListsHaveAllPages(t *testing.T) {
	data, all := t.TempDir(), strings.Split("abcdefg", "")
	if _, err := ensureToken(data); err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]int{"a server": listPage, "an older one, which refuses so large a page": 1000} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q, list := r.URL.Query(), adminapi.List[map[string]string]{Object: "list"}
			if n, _ := strconv.Atoi(q.Get("limit")); n > most {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error":{"message":"The limit is 1000."}}`)
				return
			}
			for _, id := range all[slices.Index(all, q.Get("after"))+1:] { // the first two of them
				if list.HasMore = len(list.Data) == 2; list.HasMore {
					break
				}
				list.Data = append(list.Data, map[string]string{"account": id, "id": id})
			}
			_ = json.NewEncoder(w).Encode(list)
		}))
		defer s.Close()
		for _, kind := range []string{"account", "key"} {
			r := tollhouse(t, nil, kind, "list", "--json", "--admin", strings.TrimPrefix(s.URL, "http://"), "--data", data)
			var got adminapi.List[struct{ Account string }]
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != exitOK || got.HasMore {
				t.Fatalf("%s, %s: %+v, %v", name, kind, r, err)
			}
			names := ""
			for _, row := range got.Data {
				names += row.Account
			}
			if names != strings.Join(all, "") {
				t.Errorf("%s, %s: the rows are %s, want %s", name, kind, names, all)
			}
		}
	}
}

// A check of the ledger begins, then another command runs out of time: the check
// has had more time than that, and still gets its answer.
func TestACommandThatWaitsInVainSaysSoAndACheckOfTheLedgerMayLast(t *testing.T) {
	t.Parallel()
	verifying, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/admin/v1/server", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	mux.HandleFunc("/admin/v1/ledger/verify", func(w http.ResponseWriter, _ *http.Request) {
		close(verifying)
		<-release
		fmt.Fprint(w, `{}`)
	})
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // before its end the server does not see that the client is gone
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	host, data := strings.TrimPrefix(s.URL, "http://"), t.TempDir()
	if _, err := ensureToken(data); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) <-chan result {
		ended := make(chan result, 1)
		go func() {
			var stdout, stderr bytes.Buffer
			// In that time the server has to be found.
			p := &program{env: environment{}.lookup, stdout: &stdout, stderr: &stderr, timeout: 2 * time.Second}
			code := p.run(t.Context(), append(args, "--data", data, "--admin", host))
			ended <- result{code, stdout.String(), stderr.String()}
		}()
		return ended
	}
	verified := do("ledger", "verify")
	<-verifying
	used, created, credited := do("usage"), do("account", "create", "a"), do("account", "credit", "a", "5")
	if r, want := <-used, "tollhouse usage: the server at "+host+" did not answer in 2s\n"; r.code != exitFailed || r.stderr != want {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	if r := <-created; !strings.Contains(r.stderr, "did not answer in 2s: look whether the change was made") {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	if r := <-credited; !strings.Contains(r.stderr, " (to try again: --reference cli-") {
		t.Errorf("%d %q", r.code, r.stderr)
	}
	close(release)
	if r := <-verified; r.code != exitOK || !strings.Contains(r.stdout, "sound") {
		t.Errorf("verify: %d %q", r.code, r.stderr)
	}
}
