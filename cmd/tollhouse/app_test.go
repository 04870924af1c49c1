package main

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAServerWithoutLameSaysSoAndRefusesMP3(t *testing.T) {
	without := func(p *program) { p.lookPath = func(string) (string, error) { return "", exec.ErrNotFound } }
	speech := file(t, "billing: count\nchannels: [{name: main, driver: sim, models: {alpha3-tts-flash: alpha3-tts-flash}}]\n")
	if i := startEdited(t, without, nil, "--config", speech); !strings.Contains(i.stdout.String(), "Warning: "+withoutMP3) || strings.Contains(i.stdout.String(), "Note: ") {
		t.Errorf("lame is missing, and the banner says\n%s", i.stdout)
	}
	for _, missing := range []bool{true, false} {
		edit := without
		if !missing {
			edit = func(p *program) { p.lookPath = func(string) (string, error) { return "/usr/bin/lame", nil } }
		}
		i := startEdited(t, edit, nil, "--demo")
		if strings.Contains(i.stdout.String(), "Note: speech comes as WAV only") != missing {
			t.Errorf("lame is missing: %t, and the banner says\n%s", missing, i.stdout)
		}
		if !missing {
			continue
		}
		key := firstKey(t, i.stdout.String())
		status, body := i.ask(http.MethodPost, "/v1/audio/speech", key, `{"model":"alpha3-tts-flash","input":"hi"}`)
		if status != 400 || !strings.Contains(body, `"param":"response_format"`) {
			t.Errorf("MP3: %d %s", status, body)
		}
		status, body = i.ask(http.MethodPost, "/v1/audio/speech", key, `{"model":"alpha3-tts-flash","input":"hi","response_format":"wav"}`)
		if status != 200 || !strings.HasPrefix(body, "RIFF") {
			t.Errorf("WAV: %d %.80q", status, body)
		}
	}
}

func TestThoseWhoAskWhetherTheServerIsReadyShareOneQueryASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queries atomic.Int32
		answer := make(chan error)
		ready := cacheCheck(func(context.Context) error {
			queries.Add(1)
			return <-answer
		})
		ask := func(n int, result error) {
			t.Helper()
			var asking sync.WaitGroup
			for range n {
				asking.Go(func() {
					if err := ready(); (err == nil) != (result == nil) || err != nil && strings.Contains(err.Error(), "secret") {
						t.Errorf("got %v, want %v", err, result)
					}
				})
			}
			answer <- result
			asking.Wait()
		}
		ask(100, nil)
		if err := ready(); err != nil || queries.Load() != 1 {
			t.Errorf("within the second: %v after %d queries", err, queries.Load())
		}
		time.Sleep(checkMaxAge)
		ask(100, errors.New("secret"))
		if got := queries.Load(); got != 2 {
			t.Errorf("%d queries, want 2", got)
		}
	})
}
