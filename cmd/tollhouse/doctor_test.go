package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const vendorsModels = `{"object":"list","data":[{"id":"m","object":"model"}]}`

// examined is the report of doctor by check; several findings of one check are joined.
type examined struct {
	code   int
	output string
	by     map[string]string // "RESULT: MESSAGE", by check
}

// examineWith runs the command with free ports and a data directory of its own, unless args
// say otherwise.
func examineWith(t *testing.T, env environment, args ...string) examined {
	t.Helper()
	free := func(flag string) {
		if !strings.Contains(strings.Join(args, " "), flag) {
			args = append(args, flag, "127.0.0.1:0")
		}
	}
	free("--listen")
	if !strings.Contains(strings.Join(args, " "), "--data") {
		args = append(args, "--data", filepath.Join(t.TempDir(), "data"))
	}
	return examine(t, env, args...)
}

// examine runs the command with these arguments alone.
func examine(t *testing.T, env environment, args ...string) examined {
	t.Helper()
	r := tollhouse(t, env, append([]string{"doctor", "--json"}, args...)...)
	var report struct {
		Data               []finding
		Problems, Warnings int
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	if (report.Problems > 0) != (r.code == exitFailed) {
		t.Errorf("%d problems, and the exit code is %d", report.Problems, r.code)
	}
	by := map[string]string{}
	for _, f := range report.Data {
		by[f.Check] += f.Result + ": " + f.Message + "\n"
	}
	return examined{r.code, r.stdout + r.stderr, by}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	good := newFakeVendor(t, 200, vendorsModels)
	refusing := newFakeVendor(t, 401, `{"error":{"message":"no","code":"invalid_api_key"}}`)
	without := newFakeVendor(t, 404, `not found`)
	slow := newFakeVendor(t, 200, vendorsModels, "Date", time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat))
	wrong := newFakeVendor(t, 200, vendorsModels, "Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
	signed := httptest.NewUnstartedServer(good)
	signed.Config.ErrorLog = log.New(io.Discard, "", 0)
	signed.StartTLS()
	defer signed.Close()
	taken := strings.TrimPrefix(without.url, "http://") // by another program
	channel := func(base, more string) string {
		return "billing: count\nchannels: [{name: main, driver: openai, base_url: '" + base + "', keys: [{env: MAIN_KEY}], models: {m: m}" + more + "}]\n"
	}
	key := environment{"MAIN_KEY": "sk-of-the-vendor-0123456789"}
	with := func(name, value string) environment { return environment{"MAIN_KEY": key["MAIN_KEY"], name: value} }
	for _, c := range []struct {
		name, file  string // no --config where the file is empty
		env         environment
		args        []string
		check, want string
	}{
		{"nothing", channel(good.url, ""), key, nil, "channel main", "ok: the vendor at 127.0.0.1"},
		{"nothing, of the clock", channel(good.url, ""), key, nil, "clock", "ok: the system clock is within"},
		{"a mistake in the file", "billing: cuont\n", nil, nil, "configuration", "problem: FILE:1:10: billing: it must be one of prepaid, count"},
		{"a variable that is not set", channel(good.url, ""), nil, nil, "configuration", "problem: FILE:2:"},
		{"no file", "", nil, []string{"--config", "/nonexistent/t.yaml"}, "configuration", "or create the file with `tollhouse init --config /nonexistent/t.yaml`"},
		{"neither file nor variable", "", nil, nil, "configuration", "problem: there is nothing to serve"},
		{"a variable", "", environment{"OPENAI_API_KEY": "sk-0123456789", "OPENAI_BASE_URL": good.url}, nil, "variables", "ok: used: OPENAI_API_KEY"},
		{"a variable that the file does not use", channel(good.url, ""), with("GROQ_API_KEY", "gsk_0123456789"), nil, "variables", "warning: set, but no channel of the file uses them: GROQ_API_KEY"},
		{"prepaid that passes all through and sells nothing", "channels: [{name: main, driver: openai, base_url: 'http://127.0.0.1:9', models: {'*': '*'}, begins: [gpt-]}, {name: b, driver: sim, models: {m: m}}]\nprices: {m: {input: '1', output: '1'}}\n", nil, nil, "configuration", "prepaid billing serves only models that have a price"},
		{"a price of no model", "billing: count\nchannels: [{name: main, driver: sim, models: {m: m}}]\nprices: {x: {input: '1', output: '1'}}\n", nil, nil, "prices", "warning: no channel serves x"},
		{"a placeholder", channel(good.url, ""), environment{"MAIN_KEY": "your-api-key-here"}, nil, "key of main", "warning: key 1 of 1 looks like the placeholder"},
		{"quotes", channel(good.url, ""), environment{"MAIN_KEY": `"sk-0123456789"`}, nil, "key of main", "has quotes around it"},
		{"a short key", channel(good.url, ""), environment{"MAIN_KEY": "sk-1"}, nil, "key of main", "shorter than any vendor's key"},
		{"a key of another vendor", channel(good.url, ""), environment{"MAIN_KEY": "sk-ant-0123456789"}, nil, "key of main", "is one of Anthropic's"},
		{"a key that is refused", channel(refusing.url, ""), key, nil, "channel main", "(status 401): replace the key that `keys` of channel main names"},
		{"no list of models", channel(without.url, ""), key, nil, "channel main", "warning: the vendor at 127.0.0.1"},
		{"nobody listens", channel("http://127.0.0.1:1", ""), key, nil, "channel main", "problem: 127.0.0.1:1 cannot be reached"},
		{"a name that is none", channel("http://vendor.invalid", ""), key, nil, "channel main", "problem: "},
		{"no TLS", channel(strings.Replace(good.url, "http:", "https:", 1), ""), key, nil, "channel main", "whether base_url must begin with http://"},
		{"a certificate of nobody", channel(signed.URL, ""), key, nil, "channel main", "problem: the certificate of 127.0.0.1"},
		{"a clock that is slow", channel(slow.url, ""), key, nil, "clock", "warning: it differs by "},
		{"a clock that is wrong", channel(wrong.url, ""), key, nil, "clock", "problem: it differs by "},
		{"a time-out that never applies", channel(good.url, ", timeout: {headers: 2h}"), key, nil, "time-outs", "channel main: timeout.headers (2h0m0s) is longer than timeout.total (30m0s)"},
		{"a port that is taken", channel(good.url, ""), key, []string{"--listen", taken}, "listen", "problem: cannot listen on " + taken + " ("},
		{"an address of other machines", channel(good.url, ""), key, []string{"--listen", "0.0.0.0:0"}, "listen", "warning: other machines can reach 0.0.0.0:0"},
		{"a store in memory", channel(good.url, "") + "store: 'memory:'\n", key, nil, "store", "warning: it is in memory"},
		{"no store yet", channel(good.url, ""), key, nil, "store", "the first start makes it"},
		{"no secret for what is kept", channel(good.url, "") + "responses: {store: on}\n", key, nil, "secrets", "warning: responses are encrypted with a secret that the database itself holds"},
		{"too much memory is fine without a container", channel(good.url, "") + "server: {memory: 1GiB}\n", key, nil, "memory", "1024 MiB by the configuration"},
		{"a call", channel(newFakeVendor(t, 200, vendorAnswer).url, ""), key, []string{"--call"}, "call of main", "ok: m answered in "},
		{"a call that fails", channel(refusing.url, ""), key, []string{"--call"}, "call of main", "problem: m failed: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, args := "no file", append([]string{"--admin", "off"}, c.args...)
			if c.file != "" {
				path = file(t, c.file)
				args = append(args, "--config", path)
			}
			got := examineWith(t, c.env, args...)
			if text := strings.ReplaceAll(got.by[c.check], path, "FILE"); !strings.Contains(text, c.want) {
				t.Errorf("%s says %q, want %q in\n%s", c.check, text, c.want, got.output)
			}
			if got.by["keys"] != "" && got.by["key of main"] != "" {
				t.Errorf("the keys are good and are not:\n%s", got.output)
			}
			for _, value := range c.env {
				if len(value) > 6 && !strings.HasPrefix(value, "http") && strings.Contains(got.output, value) {
					t.Errorf("a key is printed:\n%s", got.output)
				}
			}
		})
	}
}

func TestDoctorSeesWhatOthersCanOpen(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if _, err := ensureToken(data); err != nil {
		t.Fatal(err)
	}
	config := file(t, simConfig("m"))
	for name, mode := range map[string]os.FileMode{data: 0o777, filepath.Join(data, tokenFile): 0o644, config: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	files := examineWith(t, acme, "--admin", "off", "--config", config, "--data", data).by["files"]
	for _, want := range []string{"problem: others can write to " + config, "problem: others can write to the directory " + data, "problem: others can read " + filepath.Join(data, tokenFile)} {
		if !strings.Contains(files, want) {
			t.Errorf("it does not say %q:\n%s", want, files)
		}
	}
}

func TestDoctorWorksBesideARunningServer(t *testing.T) {
	name := file(t, simConfig("m")+"admin: 127.0.0.1:0\n")
	i := start(t, acme, "--config", name)
	listens := strings.TrimPrefix(i.api, "http://")
	i.good("channel", "pause", "main")
	for text, args := range map[string][]string{
		"by its data directory": {"--config", name, "--data", i.data, "--listen", listens},
		"by its address":        {"--config", name, "--data", i.data, "--listen", listens, "--admin", i.admin},
	} {
		got := examineWith(t, acme, append(args, "--call")...)
		for check, want := range map[string]string{
			"server": "ok: one is running: its admin API is at " + i.admin, "listen": "ok: " + listens + " is in use by the running server", "store": "ok: the running server has sqlite:", "ready": "warning: the running server reports about channels: every channel is paused",
			"running main": "warning: paused: `tollhouse channel resume main`", "call of main": "ok: m answered in ",
		} {
			if !strings.Contains(got.by[check], want) || got.code != exitOK {
				t.Errorf("%s: %s says %q, want %q:\n%s", text, check, got.by[check], want, got.output)
			}
		}
	}
	// The server's variables need not be here.
	if got := examineWith(t, nil, "--config", name, "--data", i.data, "--listen", listens, "--admin", i.admin); got.code != exitOK || !strings.Contains(got.by["configuration"], "warning: "+name+":7:") {
		t.Errorf("without its variables:\n%s", got.output)
	}
	if got := examineWith(t, acme, "--config", name, "--data", i.data, "--admin", "127.0.0.1:1"); got.code != exitFailed || !strings.Contains(got.by["server"], "says that one runs at "+i.admin) {
		t.Errorf("at another address:\n%s", got.output)
	}
}

// TestDoctorChecksTheFileOfThisDirectoryAndSendsItNoKey has a file that no flag or variable
// names, as of a cloned repository: its addresses may be an attacker's.
func TestDoctorChecksTheFileOfThisDirectoryAndSendsItNoKey(t *testing.T) {
	var asked atomic.Int64
	vendor := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer vendor.Close()
	env := environment{"OPENAI_API_KEY": "sk-of-the-vendor-0123456789"}
	text := "billing: count\nadmin: 127.0.0.1:0\nchannels: [{name: main, driver: openai, base_url: '" + vendor.URL + "', keys: [{env: OPENAI_API_KEY}], models: {m: m}}]\n"
	for _, c := range []struct {
		line string // of the file
		want map[string]string
	}{
		{"listen: 127.0.0.1:0", map[string]string{
			"configuration": "ok: tollhouse.yaml in this directory is good: 1 channel", "listen": "ok: 127.0.0.1:0 is free", "admin": "ok: 127.0.0.1:0 is free",
			"channel main": "warning: skipped: run `tollhouse doctor --config tollhouse.yaml` to test vendors with their keys", "calls": "warning: skipped: run",
		}},
		{"listen: '${OPENAI_API_KEY}.invalid:80'", map[string]string{"listen": "warning: skipped: the address in tollhouse.yaml is not a loopback address"}},
		{"listen: 192.0.2.1:80", map[string]string{"listen": "warning: skipped"}},
		{"currency: [USD]", map[string]string{
			"server": "ok: not looked for, because the configuration cannot be read", "configuration": "problem: tollhouse.yaml:4:11: currency must be a single value: it must be three capital letters such as USD",
			"listen": "warning: not checked, because the configuration cannot be read: correct", "admin": "warning: not checked",
		}},
	} {
		chdirPrivate(t)
		write(t, defaultFile, text+c.line+"\n")
		got := examine(t, env, "--call")
		for check, want := range c.want {
			if !strings.Contains(got.by[check], want) {
				t.Errorf("%s: %s says %q, want %q", c.line, check, got.by[check], want)
			}
		}
		if asked.Load() != 0 || strings.Contains(got.output, "sk-of-the-vendor") {
			t.Errorf("%s: the vendor was asked %d times:\n%s", c.line, asked.Load(), got.output)
		}
	}
	write(t, defaultFile, text)
	if examine(t, env, "--config", defaultFile, "--listen", "127.0.0.1:0"); asked.Load() == 0 {
		t.Error("the vendor of a file that is named was not asked")
	}
}

func TestDoctorBeforeTheFirstStartTakesTheAddressThatServeWillHave(t *testing.T) {
	got := examineWith(t, acme, "--config", file(t, simConfig("m")), "--admin", "127.0.0.1:0")
	if got.code != exitOK || !strings.HasPrefix(got.by["server"], "ok: none is running") || !strings.HasPrefix(got.by["admin"], "ok: 127.0.0.1:0 is free") {
		t.Errorf("%d\n%s", got.code, got.output)
	}
}

func TestDoctorPrintsALineForEachCheck(t *testing.T) {
	r := tollhouse(t, nil, "doctor", "--config", file(t, "billing: count\nchannels: [{name: main, driver: sim, models: {m: m}}]\n"), "--listen", "127.0.0.1:0", "--admin", "off", "--data", t.TempDir())
	if r.code != exitOK || !strings.Contains(r.stdout, "\nok       channel main   simulated: nothing is asked\n") || !strings.HasSuffix(r.stdout, "\n\nNo problems, 0 warnings.\n") || r.stderr != "" {
		t.Errorf("%d %q\n%s", r.code, r.stderr, r.stdout)
	}
}

func TestDoctorTellsACooldownFromAnOpenCircuit(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"a","state":"ready","requests":2}`: "ok: ready, 2 requests, 0 failures",
		`{"name":"a","state":"paused"}`:             "warning: paused: `tollhouse channel resume a` sends calls to it again",
		`{"name":"a","state":"resting","until":"2026-01-02T03:04:05Z","last_error":"server_error 500"}`:               "problem: its circuit breaker is open until 2026-01-02T03:04:05Z; last error: server_error 500; `tollhouse channel test a` shows more",
		`{"name":"a","state":"resting","until":"2026-01-02T03:04:05Z","last_error":"rate_limit 429","cooldown":true}`: "warning: in a cooldown until 2026-01-02T03:04:05Z: its vendor said when to come back, or does not have a model; last error: rate_limit 429",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{"data":[`+body+`]}`) }))
		defer s.Close()
		d := doctor{p: new(program), server: &adminClient{http: s.Client().Transport, host: s.Listener.Addr().String()}}
		d.checkRunningChannels(t.Context())
		if got := d.findings[0].Result + ": " + d.findings[0].Message; got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func TestDoctorTellsWhatKeepsTheRunningServerFromTakingCalls(t *testing.T) {
	for body, want := range map[string]string{
		`{"status":"ok","checks":{"channels":"ok","store":"ok"}}`:                                         "ok: the running server takes calls\n",
		`{"status":"unavailable","checks":{"channels":"All are paused.","store":"ok"}}`:                   "warning: the running server reports about channels: All are paused.\n",
		`{"status":"ok","checks":{"channels":"ok"},"warnings":{"channels":"1 paused channel"}}`:           "ok: the running server takes calls\n", // `running NAME` says more
		`{"status":"unavailable","checks":{"store":"It is away."},"warnings":{"keys":"One is damaged."}}`: "problem: the running server reports about store: It is away.\nwarning: the running server reports about keys: One is damaged.\n",
		`no JSON`: "warning: the running server did not report whether it is ready: invalid character 'o' in literal null (expecting 'u')\n",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) }))
		defer s.Close()
		var d doctor
		d.checkReady(t.Context(), s.Listener.Addr().String())
		got := ""
		for _, f := range d.findings {
			got += f.Result + ": " + f.Message + "\n"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}
