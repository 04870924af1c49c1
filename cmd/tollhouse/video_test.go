package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// film is the model of the tests, which a vendor on this machine makes.
const film = "gamma-2-0-260128"

// filmer is a vendor of videos whose tasks are in one state from the beginning.
func filmer(t *testing.T, state string) (base string) {
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

// filmed is a file with that vendor.
func filmed(base string) string {
	return `channels:
  - {name: film, driver: ark, base_url: "` + base + `", models: {gamma-2-0-260128: theirs}}
prices:
  gamma-2-0-260128: {output: "7.00"}
accounts:
  - {name: acme, credit: "25.00", keys: [{env: ACME_KEY}]}
video: {poll: 1ms}
`
}

// video runs a command of a key's holder, who does not wait between two looks.
func (i *instance) video(args ...string) result {
	i.t.Helper()
	return i.videoAs(acme["ACME_KEY"], func(*program) {}, args...)
}

func (i *instance) videoAs(key string, edit func(*program), args ...string) result {
	i.t.Helper()
	var stdout, stderr bytes.Buffer
	env := environment{"TOLLHOUSE_URL": i.api, "TOLLHOUSE_KEY": key}
	p := &program{env: env.lookup, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, pace: time.Millisecond}
	edit(p)
	code := p.run(i.t.Context(), append([]string{"video"}, args...))
	return result{code, stdout.String(), stderr.String()}
}

// demoing is a demo whose videos take no time.
func demoing(t *testing.T) (i *instance, key string) {
	t.Helper()
	i = startEdited(t, func(p *program) { p.hasty = true }, nil, "--demo")
	return i, regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
}

func TestTheDemoShowsTheWholeLifeOfAVideo(t *testing.T) {
	i, key := demoing(t)
	url, got := receiver(t, http.StatusOK)
	for n, model := range []string{"beta2.6-t2v", film} {
		r := i.videoAs(key, func(*program) {}, "submit", "--model", model, "--prompt", "A paper boat.", "--duration", "5", "--resolution", "720p", "--webhook", url, "--wait")
		if r.code != exitDone || !regexp.MustCompile(`(?s)^ID +\S+\nMODEL +`+model+`\nSTATUS +succeeded\nSUBMITTED +20\S+Z\nENDED +20\S+Z\nVIDEO +data:video/mp4;base64,`).MatchString(r.stdout) {
			t.Fatalf("%s: %d %s%s", model, r.code, r.stdout, r.stderr)
		}
		if !regexp.MustCompile(`^\S+ is (processing|queued)\n`).MatchString(r.stderr) {
			t.Errorf("%s: the progress is %q", model, r.stderr)
		}
		h := <-got
		verified(t, secretOf(t, i, demoAccount), h)
		id := strings.Fields(r.stdout)[1]
		if !strings.Contains(string(h.body), `"type":"video.generation.succeeded","data":{"id":"`+id+`"`) {
			t.Errorf("%s: the webhook is %.200s", model, h.body)
		}
		if n == 0 {
			if _, body := i.ask(http.MethodGet, "/v1/balance", key, ""); !strings.Contains(body, `"posted":"24.50","held":"0.00"`) {
				t.Errorf("after 5 seconds at 0.10 the balance is %s", body)
			}
		}
	}
}

func TestAVideoIsSubmittedShownAndWaitedFor(t *testing.T) {
	i := start(t, acme, "--config", file(t, filmed(filmer(t, "succeeded"))))
	r := i.video("submit", "--model", film, "--prompt", "A boat.")
	if r.code != exitDone || r.stderr != "" || !strings.HasSuffix(r.stdout, "\n`tollhouse video wait cgt-1` waits for it.\n") || !strings.Contains(r.stdout, "STATUS     queued\n") {
		t.Fatalf("submit: %d %q %q", r.code, r.stdout, r.stderr)
	}
	if r = i.video("wait", "cgt-1"); r.code != exitDone || !strings.Contains(r.stdout, "VIDEO      https://cdn.example/a.mp4\n") {
		t.Errorf("wait: %d %q %q", r.code, r.stdout, r.stderr)
	}
	r = i.video("get", "cgt-1", "--json")
	var doc map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || doc["status"] != "succeeded" || doc["object"] != "video.generation" || r.stderr != "" {
		t.Errorf("get: %d %q %v", r.code, r.stdout, err)
	}
	if r = i.video("get", "cgt-7"); r.code != exitRefused || r.stderr != "tollhouse video get: There is no video task \"cgt-7\". (ResourceNotFound, status 404)\n" {
		t.Errorf("no such video: %d %q", r.code, r.stderr)
	}
}

func TestAVideoThatFailedEndsTheWaitingWith1(t *testing.T) {
	i := start(t, acme, "--config", file(t, filmed(filmer(t, "failed"))))
	r := i.video("submit", "--model", film, "--prompt", "A boat.", "--wait")
	if r.code != exitRefused || !strings.Contains(r.stderr, "there is no video, and it costs nothing: The output was flagged. (OutputVideoSensitiveContentDetected)") || !strings.Contains(r.stdout, "STATUS     failed\n") {
		t.Errorf("%d %q %q", r.code, r.stdout, r.stderr)
	}
	if r = i.video("get", "cgt-1"); r.code != exitDone || !strings.Contains(r.stdout, "ERROR      The output was flagged.") {
		t.Errorf("%d %q %q", r.code, r.stdout, r.stderr)
	}
}

func TestAnInterruptEndsTheWaitingAndNotTheVideo(t *testing.T) {
	i := start(t, acme, "--config", file(t, filmed(filmer(t, "running"))))
	i.video("submit", "--model", film, "--prompt", "A boat.")
	signals := make(chan os.Signal, 1)
	stderr := &cutter{at: "is running", cut: func() { signals <- os.Interrupt }}
	r := i.videoAs(acme["ACME_KEY"], func(p *program) { p.signals, p.stderr = signals, stderr }, "wait", "cgt-1")
	const want = "tollhouse video wait: stopped waiting. The video goes on by itself: `tollhouse video wait cgt-1` waits for it again\n"
	if said := stderr.text.String(); r.code != exitRefused || r.stdout != "" || !strings.HasSuffix(said, want) {
		t.Errorf("%d %q %q", r.code, r.stdout, said)
	}
	if r := i.video("get", "cgt-1"); !strings.Contains(r.stdout, "STATUS     running\n") {
		t.Errorf("afterwards it is %s%s", r.stdout, r.stderr)
	}
}

// cutter is an output that does something once it has a text.
type cutter struct {
	at   string
	cut  func()
	text bytes.Buffer
}

func (c *cutter) Write(b []byte) (int, error) {
	n, err := c.text.Write(b)
	if c.cut != nil && strings.Contains(c.text.String(), c.at) {
		c.cut()
		c.cut = nil
	}
	return n, err
}

func TestATerminalHasOneLineOfProgress(t *testing.T) {
	i := start(t, acme, "--config", file(t, filmed(filmer(t, "succeeded"))))
	r := i.videoAs(acme["ACME_KEY"], func(p *program) { p.terminal = func(io.Writer) bool { return true } },
		"submit", "--model", film, "--prompt", "A boat.", "--wait")
	if r.code != exitDone || strings.Contains(r.stderr, "\n") || !regexp.MustCompile(`^(\r\x1b\[Kcgt-1 is (queued|running) \(\d+s\))+\r\x1b\[K$`).MatchString(r.stderr) {
		t.Errorf("%d %q", r.code, r.stderr)
	}
}

func TestABodyIsSentWithWhatTheFlagsAdd(t *testing.T) {
	i := start(t, acme, "--config", file(t, filmed(filmer(t, "succeeded"))))
	body := `{"model":"` + film + `","content":[{"type":"text","text":"A boat."}],"seed":7}`
	in := func(text string) func(*program) { return func(p *program) { p.stdin = strings.NewReader(text) } }
	for _, c := range []struct {
		args string
		edit func(*program)
		want string // on stderr
		code int
	}{
		{"--body -", in(body), "", exitDone},
		{"--duration 6 --body " + file(t, body), in(""), "", exitDone},
		{"--resolution 720p --body -", in(strings.Replace(body, ",\"seed\"", ",\"duration\":5,\"seed\"", 1)), "", exitDone},
		{"--duration 5 --body -", in(strings.Replace(body, ",\"seed\"", ",\"duration\":5,\"seed\"", 1)), `the body has "duration" already`, exitUsage},
		{"--prompt x --body -", in(body), `the body has "content" already`, exitUsage},
		{"--model m --body -", in(body), `the body has "model" already`, exitUsage},
		{"--body -", in(`{"content":[]}`), "--model is missing", exitUsage},
		{"--model m --body -", in(`[]`), "--body - is not a JSON object", exitRefused},
		{"--model m --body -", in(`null`), "--body - is not a JSON object", exitRefused},
		{"--body -", in(body[:20]), "--body - is not a JSON object", exitRefused},
		{"--body nowhere.json", in(""), "nowhere.json", exitRefused},
		{"--model " + film + " --prompt A --duration 99", in(""), "InvalidParameter.DurationOutOfRange, status 400", exitRefused},
	} {
		r := i.videoAs(acme["ACME_KEY"], c.edit, append([]string{"submit"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) || (c.want == "") != (r.stderr == "") {
			t.Errorf("%s: %d %q %q", c.args, r.code, r.stdout, r.stderr)
		}
	}
}

func TestAnIdempotencyKeyMakesASubmissionRepeatable(t *testing.T) {
	i := start(t, acme, "--config", file(t, strings.Replace(filmed(filmer(t, "running")), "poll: 1ms", "poll: 1ms, duplicate_window: 1h", 1)))
	submit := func(key string) result {
		return i.video("submit", "--model", film, "--prompt", "A boat.", "--json", "--idempotency-key", key)
	}
	first, again, other := submit("a"), submit("a"), submit("b")
	if first.code != exitDone || again.stdout != first.stdout || !strings.Contains(other.stdout, "cgt-2") {
		t.Errorf("first %+v\nagain %+v\nother %+v", first, again, other)
	}
	if r := i.video("submit", "--model", film, "--prompt", "A boat."); r.code != exitRefused || !strings.Contains(r.stderr, "idempotency_conflict, status 409") {
		t.Errorf("without one it is taken for a mistake: %d %q", r.code, r.stderr)
	}
}

func TestWrongWordsAboutVideosAndWebhooksAreUsage(t *testing.T) {
	key := environment{"TOLLHOUSE_KEY": "sk-0123456789abcdefghij"}
	for _, c := range []struct {
		env  environment
		args string
		want string
	}{
		{nil, "webhook secret", "--account is missing"},
		{nil, "webhook secret acme", `takes no arguments, and got "acme"`},
		{nil, "webhook list --limit 0", "--limit must be from 1 to 1000"},
		{nil, "webhook list --limit 1001", "--limit must be from 1 to 1000"},
		{nil, "webhook resend", "ID is missing"},
		{nil, "webhook", "webhook needs one of its commands: `tollhouse webhook secret`, `tollhouse webhook list`, `tollhouse webhook resend`"},
		{nil, "video", "`tollhouse video submit`, `tollhouse video get`, `tollhouse video wait`"},
		{nil, "video get vid_1", "--key or TOLLHOUSE_KEY is missing"},
		{key, "video get", "ID is missing"},
		{key, "video wait a b", `"b" is one argument too many`},
		{key, "video submit", "--prompt or --body is missing"},
		{key, "video submit --prompt x", "--model is missing"},
		{key, "video submit --prompt x --model m --duration -5", "duration"},
		{key, "video get vid_1 --url 127.0.0.1:8080", "--url must be an address such as http://127.0.0.1:8080"},
		{key, "video get vid_1 --url ftp://h", "--url must be an address"},
		{key, "video get vid_1 --url http://u:p@h", "--url must be an address"},
	} {
		r := tollhouse(t, c.env, strings.Fields(c.args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("%s: %d %q %q", c.args, r.code, r.stderr, r.stdout)
		}
	}
}
