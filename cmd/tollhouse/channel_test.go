package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/server"
)

// twoChannels is a file of a channel whose vendor is at base and of a simulated
// one behind it.
func twoChannels(base string) string {
	return fmt.Sprintf(`billing: count
channels:
  - {name: main, driver: openai, base_url: "%s", keys: [vendor-key-0123], models: {m: m}}
  - {name: spare, driver: sim, priority: 1, models: {m: m, alpha-image-2.0: x}}
accounts:
  - {name: acme, keys: [{env: ACME_KEY}]}
`, base)
}

func TestAPausedChannelGetsNoCallsUntilItIsResumed(t *testing.T) {
	v := newFakeVendor(t, 200, vendorAnswerOf("m"))
	name := file(t, twoChannels(v.url+"/v1"))
	i := start(t, acme, "--config", name)
	count := func(want int64) {
		t.Helper()
		if status := calls(i, "m"); status != 200 || v.calls.Load() != want {
			t.Errorf("a call got %d, and the vendor was asked %d times, not %d", status, v.calls.Load(), want)
		}
	}
	count(1)
	if out := i.good("channel", "pause", "main"); !regexp.MustCompile(`CHANNEL +STATE +UNTIL .*\nmain +paused +-`).MatchString(out) {
		t.Errorf("paused:\n%s", out)
	}
	count(1)
	if status, body := i.ask(http.MethodGet, "/readyz", "", ""); status != 200 || !strings.Contains(body, `"warnings":{"channels":"1 paused channel"}`) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	// A pause outlasts a reload, which tells of it.
	write(t, name, twoChannels(v.url+"/v1")+"limits: {rpm: 1000}\n")
	i.signals <- syscall.SIGHUP
	i.stderr.Await(`channels are still paused" channels=\[main\]`)
	count(1)
	i.good("channel", "pause", "spare")
	if status, body := i.ask(http.MethodGet, "/readyz", "", ""); status != 503 || !strings.Contains(body, "every channel is paused, or its circuit is open") {
		t.Errorf("/readyz with all of them paused: %d %s", status, body)
	}
	if status := calls(i, "m"); status != 502 {
		t.Errorf("with all of them paused a call got %d", status)
	}
	i.good("channel", "resume", "main")
	count(2)
	var list struct{ Data []adminapi.Channel }
	if err := json.Unmarshal([]byte(i.good("channel", "list", "--json")), &list); err != nil || len(list.Data) != 2 {
		t.Fatalf("%v %+v", err, list)
	}
	if m := list.Data[0]; m.Name != "main" || m.State != "ready" || m.Requests != 2 || m.Failures != 0 || list.Data[1].State != "paused" {
		t.Errorf("%+v", list.Data)
	}
	for _, want := range []string{
		"action=channel.pause outcome=done .*agent=tollhouse/.* target=main", "action=channel.pause outcome=done .*target=spare", "action=channel.resume outcome=done .*target=main",
	} {
		if !regexp.MustCompile(want).MatchString(i.stderr.String()) {
			t.Errorf("the log has no %q:\n%s", want, i.stderr)
		}
	}
}

func TestAServerWhoseVendorsAllAskToWaitIsReadyAndWarns(t *testing.T) {
	limiting := newFakeVendor(t, http.StatusTooManyRequests, "", "Retry-After", "60")
	i := start(t, acme, "--config", file(t, twoChannels(limiting.url+"/v1")))
	const warning = "the circuit of every channel in use is open, or some model of it is in a cooldown"
	ready := func(want string) {
		t.Helper()
		if status, body := i.ask(http.MethodGet, "/readyz", "", ""); status != 200 || !strings.Contains(body, want) || strings.Contains(body, warning) != strings.Contains(want, warning) {
			t.Errorf("%d %s", status, body)
		}
	}
	if status := calls(i, "m"); status != 200 { // by the other channel
		t.Fatalf("a call got %d", status)
	}
	ready(`"channels":"ok"`)
	if out := i.good("waste"); !regexp.MustCompile(`^CHANNEL +UPSTREAM MODEL +FAILED +BILLABLE +WASTE\nmain +m +1 +0 +0\.00\n$`).MatchString(out) {
		t.Errorf("the waste:\n%s", out)
	}
	i.good("channel", "pause", "spare")
	ready(`"warnings":{"channels":"1 paused channel; ` + warning + `"}`)
}

func TestATestOfAChannelTellsWhetherItWorks(t *testing.T) {
	v := newFakeVendor(t, 200, vendorAnswerOf("m"))
	i := start(t, acme, "--config", file(t, twoChannels(v.url+"/v1")))
	i.good("channel", "pause", "main")
	if out := i.good("channel", "test", "main"); !regexp.MustCompile(`CHANNEL .*\nmain +m +chat +ok +\d+ ms +- +-\n`).MatchString(out) || v.calls.Load() != 1 {
		t.Errorf("asked %d times:\n%s", v.calls.Load(), out)
	}
	if out := i.good("channel", "test", "spare"); !regexp.MustCompile(`\nspare +m +chat +ok, simulated`).MatchString(out) {
		t.Error(out)
	}
	if out := i.good("channel", "test", "spare", "--model", "alpha-image-2.0", "--yes"); !regexp.MustCompile(`\nspare +alpha-image-2.0 +image +ok, simulated`).MatchString(out) {
		t.Error(out)
	}
	for _, c := range []struct{ args, want string }{
		{"test nobody", `There is no channel "nobody". The channels are main, spare.`},
		{"pause nobody", `There is no channel "nobody". The channels are main, spare.`},
		{"test main --model other", `does not serve the model "other"`},
		{"test main --model *", `does not serve the model "*"`},
		{"test spare --model alpha-image-2.0", "costs money: say that you want it (--yes)"},
	} {
		if r := i.command(append([]string{"channel"}, strings.Fields(c.args)...)...); r.code != exitFailed || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("%s: %d %q %q", c.args, r.code, r.stderr, r.stdout)
		}
	}
	// Nobody pays for it, and no books are kept of it.
	if out := i.good("usage"); strings.Contains(out, "\nm ") {
		t.Errorf("usage:\n%s", out)
	}
	if state := i.good("channel", "list"); !regexp.MustCompile(`\nmain +paused`).MatchString(state) {
		t.Errorf("after its test the channel is not paused:\n%s", state)
	}
}

// vendorResponse is the answer of a vendor of OpenAI's Responses.
const vendorResponse = `{"id":"resp_1","object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,"model":"m",` +
	`"output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hi","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":1,"total_tokens":4}}`

// vendorMessage is the answer of a vendor of messages.
const vendorMessage = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}`

func TestATestTriesEachFormOfTextsThatTheVendorHas(t *testing.T) {
	for _, c := range []struct{ name, wire, missing, want string }{
		{"chat alone", "[chat]", "", `main +m +chat +ok `},
		{"responses alone", "[responses]", "", `main +m +responses +ok `},
		{"both", "[responses, chat]", "", `main +m +chat, responses +ok `},
		{"chat and messages", "[chat, messages]", "", `main +m +chat, messages +ok `},
		{"both, of which one is missing", "[chat, responses]", "/v1/responses", `main +m +responses +failed +\d+ ms +404 `},
		{"both, of which the other one is missing", "[chat, responses]", "/v1/chat/completions", `main +m +chat +failed +\d+ ms +404 `},
	} {
		t.Run(c.name, func(t *testing.T) {
			vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := map[string]string{"/v1/chat/completions": vendorAnswerOf("m"), "/v1/responses": vendorResponse, "/v1/messages": vendorMessage}[r.URL.Path]
				w.Header().Set("Content-Type", "application/json")
				if answer == "" || r.URL.Path == c.missing {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer vendor.Close()
			text := strings.Replace(twoChannels(vendor.URL+"/v1"), "keys:", "wire: "+c.wire+", keys:", 1)
			i := start(t, acme, "--config", file(t, text))
			r := i.command("channel", "test", "main")
			if (r.code == exitFailed) != (c.missing != "") || !regexp.MustCompile(c.want).MatchString(r.stdout) {
				t.Errorf("%d %s\n%s", r.code, r.stderr, r.stdout)
			}
		})
	}
}

// What the router tries again for a caller is not tried again for each of that. The log has no
// text of a vendor.
func TestAChannelThatFailsItsTestIsCalledOnceAndEndsTheCommandWith1(t *testing.T) {
	for _, c := range []struct {
		name                string
		status              int    // 0: nobody is there
		body, wait          string // the answer, and its Retry-After
		table, message, log string
		most                int64 // calls
	}{
		{"a refused key", 401, `{"error":{"message":"Incorrect API key provided: vendor-key-0123","code":"invalid_api_key"}}`, "", "401 +service_unavailable", "upstream status 401: .*Incorrect API key provided", "service_unavailable", 1},
		{"nobody there", 0, "", "", "- +service_unavailable", "connection refused", "service_unavailable", 0},
		{"too many calls", 429, "", "", "429 +", "", "", 1},
		{"too many calls for a minute", 429, "", "60", "429 +", "", "", 1},
		{"too many calls for a moment", 429, "", "1", "429 +", "", "", 2}, // who wants it back at once gets it, as from every caller
		{"a code that is a sentence", 400, `{"error":{"message":"No.","code":"what was asked, in full"}}`, "", "400 +", "", "upstream_error", 1},
		{"a code", 400, `{"error":{"message":"No.","code":"bad_n"}}`, "", "400 +", "", "bad_n", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newFakeVendor(t, c.status, c.body)
			base := v.url + "/v1"
			if c.wait != "" {
				v.header.Set("Retry-After", c.wait)
			}
			if c.status == 0 {
				base = "http://" + nowhere
			}
			i := start(t, acme, "--config", file(t, twoChannels(base)))
			r := i.command("channel", "test", "main")
			if r.code != exitFailed || !regexp.MustCompile(`\nmain +m +chat +failed +\d+ ms +`+c.table).MatchString(r.stdout) || !regexp.MustCompile(c.message).MatchString(r.stderr) || strings.Count(r.stderr, "\n") != 1 || v.calls.Load() > c.most {
				t.Errorf("the vendor was asked %d times: %d %q %s", v.calls.Load(), r.code, r.stderr, r.stdout)
			}
			var doc server.ChannelResult
			if r = i.command("channel", "test", "main", "--json"); json.Unmarshal([]byte(r.stdout), &doc) != nil || doc.OK || doc.Message == "" {
				t.Errorf("as JSON: %s", r.stdout)
			}
			i.stop()
			if log := i.stderr.String(); !regexp.MustCompile(`action=channel\.test .*code=`+c.log).MatchString(log) || strings.Contains(log, "what was asked") || strings.Contains(r.stdout+r.stderr+log, "vendor-key-0123") {
				t.Errorf("%s\n%s", r.stdout+r.stderr, log)
			}
		})
	}
}

// A vendor's text must not act on the operator's terminal.
func TestATerminalGetsNoControlsOfAVendors(t *testing.T) {
	message, err := json.Marshal("a\x1b]0;title\x07\x1b[2Jb\rc\u009bd\u202ee\u2066f\x7fg")
	if err != nil {
		t.Fatal(err)
	}
	vendor := newFakeVendor(t, 400, `{"error":{"message":`+string(message)+`,"code":"bad"}}`)
	name := file(t, twoChannels(vendor.url+"/v1"))
	i := start(t, acme, "--config", name)
	for _, args := range [][]string{{"channel", "test", "main"}, {"channel", "test", "main", "--json"}, {"doctor", "--call", "--config", name}, {"doctor", "--call", "--json", "--config", name}} {
		r := i.command(args...)
		if said := r.stdout + r.stderr; strings.ContainsAny(said, "\x1b\x07\r\x7f\u009b\u202e\u2066") || !strings.Contains(said, "title") {
			t.Errorf("%q printed %q", args, said)
		}
		var doc server.ChannelResult
		if args[0] == "channel" && len(args) == 4 && (json.Unmarshal([]byte(r.stdout), &doc) != nil || !strings.Contains(doc.Message, "c\u009bd\u202ee")) {
			t.Errorf("%q lost the vendor's text: %q", args, r.stdout)
		}
	}
}

// What a channel is asked depends on what its vendor can do.
func TestATestAsksWhatIsCheapestThere(t *testing.T) {
	for _, c := range []struct{ channel, args, want string }{
		{`driver: anthropic, models: {mine: claude-haiku-4-5}`, "", "mine +messages +"},
		{`driver: voyage, models: {vox-4: voyage-4}`, "", "vox-4 +embeddings +"},
		{`driver: openai, models: {a-film: x, text-embedding-v4: y, z: z}`, "", "a-film +chat +"},
		{`driver: dashscope, models: {alpha3-tts-flash: x, alpha-image-max: y}`, "", "Every model of the channel c costs money to test"},
		{`driver: dashscope, models: {beta2.6-t2v: x}`, "--model beta2.6-t2v --yes", "makes neither text, vectors, rankings, moderations, speech nor a picture"},
		{`driver: openai, models: {"*": "*"}`, "", "accepts any model: choose one with --model"},
	} {
		name := file(t, "billing: count\nchannels: [{name: c, base_url: 'http://127.0.0.1:1', keys: [k], "+c.channel+"}]\n")
		i := start(t, nil, "--config", name)
		r := i.command(append([]string{"channel", "test", "c"}, strings.Fields(c.args)...)...)
		if said := r.stdout + r.stderr; r.code != exitFailed || !regexp.MustCompile(c.want).MatchString(said) {
			t.Errorf("%s %s: %d %s", c.channel, c.args, r.code, said)
		}
		i.stop()
	}
}

func TestARowOfAChannelHasAFewModels(t *testing.T) {
	for _, discovers := range []bool{false, true} {
		for models, want := range map[string]string{"": "", "a b c d e": "a,b,c,d,e", "a b c d e f g": "a,b,c,d,e and 2 more"} {
			if got := modelsText(&adminapi.Channel{Models: strings.Fields(models), Discovers: discovers}); got != want {
				t.Errorf("the models %s, discovered: %t: %q, want %q", models, discovers, got, want)
			}
		}
	}
}

// main is how the first channel is.
func (i *instance) main(t *testing.T) adminapi.Channel {
	t.Helper()
	var list struct{ Data []adminapi.Channel }
	if err := json.Unmarshal([]byte(i.good("channel", "list", "--json")), &list); err != nil || len(list.Data) == 0 {
		t.Fatalf("%v %+v", err, list)
	}
	return list.Data[0]
}

func TestATestChangesAChannelsHealthOnlyWhereItWorks(t *testing.T) {
	m := newFakeVendor(t, 500, `{}`)
	i := start(t, acme, "--config", file(t, twoChannels(m.url+"/v1")))
	test := func() {
		t.Helper()
		if r := i.command("channel", "test", "main"); r.code != exitFailed {
			t.Errorf("the test worked: %s", r.stdout)
		}
	}
	for _, a := range []struct {
		status int
		body   string
	}{{500, `{}`}, {200, `{"id":"c1"}`}, {401, `{}`}} {
		m.set(a.status, a.body)
		for range 3 {
			test()
		}
	}
	if c := i.main(t); c.State != "ready" || c.Failures != 0 || c.LastError != "" {
		t.Errorf("failed tests count: %+v", c)
	}
	// Neither a 200 that is no answer nor the vendor's no to the test's request makes
	// two failures less.
	m.set(500, `{}`)
	calls(i, "m")
	calls(i, "m")
	m.set(200, `{"id":"c1"}`)
	test()
	m.set(400, `{}`)
	test()
	m.set(500, `{}`)
	calls(i, "m")
	if c := i.main(t); c.State == "ready" || c.Failures != 3 {
		t.Errorf("after three failures: %+v", c)
	}
	m.set(200, vendorAnswerOf("m"))
	i.good("channel", "test", "main")
	if c := i.main(t); c.State != "probing" {
		t.Errorf("after a test that worked: %+v", c)
	}
}
