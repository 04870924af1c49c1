package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// scripted is an address that gives its answers one after the other, the last
// one again and again. An answer that is empty breaks the connection off.
func scripted(t *testing.T, answers ...string) (base string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(asked.Add(1)) - 1
		answer := answers[min(n, len(answers)-1)]
		if answer == "" {
			panic(http.ErrAbortHandler)
		}
		status, body, _ := strings.Cut(answer, " ")
		code := 0
		_, _ = fmt.Sscan(status, &code)
		w.Header().Set("Content-Type", "application/json")
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "7")
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func record(status string) string {
	return `200 {"id":"vid_1","object":"video.generation","model":"m","status":"` + status + `","created_at":1,"updated_at":2}`
}

func refusedWith(status int, code, message string) string {
	return fmt.Sprintf(`%d {"error":{"message":%q,"type":"t","code":%q,"param":null}}`, status, message, code)
}

func TestAnErrorOfTheAPIIsToldWithWhatToDo(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{refusedWith(401, "unauthorized", "No such key."), "No such key. (unauthorized, status 401); `tollhouse key create --account NAME` makes a key, and TOLLHOUSE_KEY gives it to this command"},
		{refusedWith(402, "insufficient_balance", "Too poor."), "Too poor. (insufficient_balance, status 402); `tollhouse account credit NAME AMOUNT` adds money"},
		{refusedWith(404, "ResourceNotFound", "No task."), "No task. (ResourceNotFound, status 404)"},
		{refusedWith(429, "ConcurrencyExceeded", "Too many."), "Too many. (ConcurrencyExceeded, status 429); try again in 7s"},
		{refusedWith(503, "service_unavailable", "Draining."), "Draining. (service_unavailable, status 503)"},
		{`404 <html>`, "(with status 404) is not tollhouse's API: name the right address with --url"},
		{`302 {}`, "(with status 302) is not tollhouse's API: name the right address with --url"},
		{`200 <html>`, "(with status 200) is not tollhouse's API: name the right address with --url"},
		{`200 {"id":"x"}`, "(with status 200) is not tollhouse's API: name the right address with --url"},
		{``, "broke off before it answered (EOF)"},
	} {
		base, _ := scripted(t, c.answer)
		r := tollhouse(t, environment{"TOLLHOUSE_KEY": "sk-k", "TOLLHOUSE_URL": base}, "video", "get", "vid_1")
		if r.code != exitRefused || !strings.HasSuffix(r.stderr, c.want+"\n") || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("%s: %d %q %q", c.answer, r.code, r.stderr, r.stdout)
		}
	}
}

func TestWhoWaitsIsPatientWithAServerThatIsAwayForAMoment(t *testing.T) {
	away := refusedWith(503, "service_unavailable", "Draining.")
	for _, c := range []struct {
		name    string
		answers []string
		code    int
		want    string // on stderr
	}{
		{"errors that pass", []string{record("queued"), away, away, "", away, record("queued"), away, record("succeeded")}, exitDone, ""},
		{"errors that stay", []string{record("queued"), away}, exitRefused, "Draining. (service_unavailable, status 503). The video goes on by itself: `tollhouse video wait vid_1` waits for it again"},
		{"a broken server", []string{record("queued"), ""}, exitRefused, "broke off before it answered (EOF). The video goes on by itself"},
		{"another's key", []string{record("queued"), refusedWith(403, "permission_denied", "Disabled.")}, exitRefused, "Disabled. (permission_denied, status 403)"},
		{"a purged task", []string{record("queued"), refusedWith(404, "ResourceNotFound", "No task.")}, exitRefused, "No task. (ResourceNotFound, status 404)"},
		{"a cancelled task", []string{record("queued"), record("cancelled")}, exitRefused, "there is no video, and it costs nothing: it is cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, _ := scripted(t, c.answers...)
			r := (&instance{t: t, api: base}).video("wait", "vid_1")
			if r.code != c.code || !strings.Contains(r.stderr, c.want) || !strings.HasPrefix(r.stderr, "vid_1 is queued\n") || strings.Count(r.stderr, " is queued\n") != 1 {
				t.Errorf("%d %q %q", r.code, r.stderr, r.stdout)
			}
		})
	}
}

func TestASubmissionWhoseAnswerIsLostIsNotRepeated(t *testing.T) {
	for flags, want := range map[string]string{
		"":                        "it may have taken the video all the same. With an --idempotency-key a submission can be repeated safely",
		"--idempotency-key lucky": "repeat the command with the same --idempotency-key to learn of the video that it may have taken",
	} {
		base, asked := scripted(t, "")
		args := append([]string{"submit", "--model", "m", "--prompt", "p"}, strings.Fields(flags)...)
		r := (&instance{t: t, api: base}).video(args...)
		if r.code != exitRefused || !strings.Contains(r.stderr, want) || asked.Load() != 1 {
			t.Errorf("%q: asked %d times, %d %q", flags, asked.Load(), r.code, r.stderr)
		}
	}
}

func TestWithoutAnAddressTheOneIsAskedThatServeListensOn(t *testing.T) {
	base, _ := scripted(t, record("succeeded"))
	listen := strings.TrimPrefix(base, "http://")
	_, port, _ := strings.Cut(listen, ":")
	const key = "sk-k"
	for name, env := range map[string]environment{
		"its own variable": {"TOLLHOUSE_URL": base + "/v1/", "TOLLHOUSE_LISTEN": "127.0.0.1:1"},
		"serve's variable": {"TOLLHOUSE_LISTEN": listen},
		"every interface":  {"TOLLHOUSE_LISTEN": ":" + port},
		"every IPv6 one":   {"TOLLHOUSE_LISTEN": "[::]:" + port},
		"the file":         {"TOLLHOUSE_CONFIG": file(t, "listen: "+listen+"\nchannels: [{keys: ['${NOT_SET}']}]\n")},
	} {
		env["TOLLHOUSE_KEY"] = key
		if r := tollhouse(t, env, "video", "get", "vid_1"); r.code != exitDone || !strings.Contains(r.stdout, "succeeded") {
			t.Errorf("%s: %d %q", name, r.code, r.stderr)
		}
	}
	for name, env := range map[string]environment{
		"no server answers at http://127.0.0.1:1: start one with `tollhouse serve`": {"TOLLHOUSE_LISTEN": "127.0.0.1:1"},
		"nowhere.yaml": {"TOLLHOUSE_CONFIG": "nowhere.yaml"},
	} {
		env["TOLLHOUSE_KEY"] = key
		if r := tollhouse(t, env, "video", "get", "vid_1"); r.code != exitRefused || !strings.Contains(r.stderr, name) {
			t.Errorf("%s: %d %q", name, r.code, r.stderr)
		}
	}
}
