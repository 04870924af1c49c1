package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// The data directory shows whose word counts: the token is made there.
func TestAFlagBeatsTheEnvironmentAndThatTheFile(t *testing.T) {
	base := t.TempDir()
	dir := func(name string) string { return filepath.Join(base, name) }
	config := file(t, planted("m")+"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndata: "+dir("file")+"\n")
	for _, c := range []struct {
		want string
		env  environment
		args []string
	}{
		{"file", nil, nil},
		{"env", environment{"TOLLHOUSE_DATA": dir("env")}, nil},
		{"flag", environment{"TOLLHOUSE_DATA": dir("env")}, []string{"--data", dir("flag")}},
	} {
		t.Run(c.want, func(t *testing.T) {
			env := environment{"ACME_KEY": acme["ACME_KEY"], "TOLLHOUSE_CONFIG": config}
			for k, v := range c.env {
				env[k] = v
			}
			stdout := newPage()
			p := &program{env: env.lookup, stdout: stdout, stderr: newPage(), signals: make(chan os.Signal, 1)}
			ended := make(chan int, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- p.run(ctx, append([]string{"serve"}, c.args...)); stdout.close() }()
			if stdout.await("API") == nil {
				t.Fatalf("serve ended with %d: %s", <-ended, p.stderr)
			}
			cancel()
			if code := <-ended; code != exitOK {
				t.Errorf("exit code %d", code)
			}
			info, err := os.Stat(filepath.Join(dir(c.want), tokenFile))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the token: %v, %v", info, err)
			}
			if err := os.RemoveAll(dir(c.want)); err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(base); len(left) > 0 {
				t.Errorf("something was written to %s too", left[0].Name())
			}
		})
	}
}

// vendor is a model vendor on the loopback that counts its calls.
func vendor(t *testing.T, status int, answer string) (base string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Seen-Authorization", r.Header.Get("Authorization"))
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", asked
}

const vendorAnswer = `{"id":"c1","object":"chat.completion","created":1,"model":"kimi-k3","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

func TestAVendorsKeyInTheEnvironmentIsEnough(t *testing.T) {
	moonshot, asked := vendor(t, 200, vendorAnswer)
	openai, others := vendor(t, 200, vendorAnswer)
	i := start(t, environment{
		"MOONSHOT_API_KEY": "sk-moon", "MOONSHOT_BASE_URL": moonshot,
		"OPENAI_API_KEY": "sk-open", "OPENAI_BASE_URL": openai,
	})
	banner := i.stdout.String()
	for _, want := range []string{"count (usage is recorded", "money is off", "moonshot (openai): 1 model"} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner lacks %q:\n%s", want, banner)
		}
	}
	curls := printedCurls(banner)
	if status, _, body := curl(t, strings.Replace(curls[0], `"stream":true`, `"stream":false`, 1)); status != 200 || !strings.Contains(body, `"model":"delta-k3"`) {
		t.Errorf("the printed call got %d %s", status, body)
	}
	if _, _, body := curl(t, curls[1]); !strings.Contains(body, `"requests":1`) {
		t.Errorf("the printed usage is %s", body)
	}
	if asked.Load() != 1 || others.Load() != 0 {
		t.Errorf("moonshot was asked %d times, openai %d times", asked.Load(), others.Load())
	}
	key := strings.TrimSpace(strings.Split(strings.Split(banner, "shown only now:")[1], "Paste")[0])
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", key, chatBody("gpt-5-mini", false)); status != 200 || others.Load() != 1 {
		t.Errorf("a model of openai's got %d %s", status, body)
	}
	if _, body := i.ask(http.MethodGet, "/v1/balance", key, ""); !strings.Contains(body, `"billing":"count"`) {
		t.Errorf("the balance is %s", body)
	}
}

func TestWithNothingToServeThereIsAdvice(t *testing.T) {
	r := tollhouse(t, nil, "serve")
	if r.code != exitFailed || !strings.Contains(r.stderr, "`tollhouse serve --demo`") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

func TestABadBaseURLOfAPresetIsNamedWithItsChannel(t *testing.T) {
	r := tollhouse(t, environment{"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "nowhere"}, "serve")
	if r.code != exitFailed || !strings.Contains(r.stderr, `channel "openai"`) {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

func TestTheBannerWarnsOfWhatIsUnsafe(t *testing.T) {
	quiet := start(t, acme, "--config", file(t, planted("m")))
	if strings.Contains(quiet.stdout.String(), "Warning") {
		t.Errorf("a warning for nothing:\n%s", quiet.stdout)
	}
	keyless := strings.Replace(planted("m"), ", keys: [{env: ACME_KEY}]", "", 1)
	keyless += "webhooks: {allow_private: true}\n"
	i := start(t, nil, "--config", file(t, keyless), "--listen", "0.0.0.0:0", "--admin", "[::]:0")
	for _, want := range []string{
		"there are no API keys yet: `tollhouse key create --account acme --config ", "plain HTTP on [::]:", "admin token travels in plain HTTP", "webhooks.allow_private lets whoever has a key",
	} {
		if !strings.Contains(i.stdout.String(), want) {
			t.Errorf("the banner lacks %q:\n%s", want, i.stdout)
		}
	}
	if !strings.Contains(i.stdout.String(), "http://127.0.0.1:") {
		t.Errorf("the banner names no address to go to:\n%s", i.stdout)
	}
}

func TestAnAddressInUseIsRefusedWithAdvice(t *testing.T) {
	i := start(t, nil, "--demo")
	taken := strings.TrimPrefix(i.api, "http://")
	r := tollhouse(t, nil, "serve", "--demo", "--data", t.TempDir(), "--listen", taken)
	if r.code != exitFailed || !strings.Contains(r.stderr, "--listen") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	r = tollhouse(t, nil, "serve", "--demo", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", taken)
	if r.code != exitFailed || !strings.Contains(r.stderr, "--admin") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

func TestLogsAreOneJSONObjectALine(t *testing.T) {
	i := start(t, acme, "--config", file(t, planted("m")), "--log-format", "json")
	calls(i, "m")
	i.stop()
	n := 0
	for line := range strings.Lines(i.stderr.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if fields["msg"] == "request" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d lines for one request:\n%s", n, i.stderr)
	}
}
