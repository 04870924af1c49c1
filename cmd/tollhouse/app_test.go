package main

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net/http"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheMemoryIsWhatTheFileTheEnvironmentOrTheContainerSays(t *testing.T) {
	const gib = 1 << 30
	const v1, v2 = "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for name, c := range map[string]struct {
		set, asked int64
		files      map[string]string
		want       int64
	}{
		"nobody says":                    {math.MaxInt64, 0, nil, math.MaxInt64},
		"the file":                       {math.MaxInt64, 4 * gib, nil, 4 * gib},
		"the file over the environment":  {3 * gib, 4 * gib, nil, 4 * gib},
		"the environment":                {3 * gib, 0, map[string]string{v2: "1073741824\n"}, 3 * gib},
		"the container":                  {math.MaxInt64, 0, map[string]string{v2: "10737418240\n"}, 9663676416},
		"a container of the first kind":  {math.MaxInt64, 0, map[string]string{v1: "10737418240\n"}, 9663676416},
		"a container without a limit":    {math.MaxInt64, 0, map[string]string{v2: "max\n"}, math.MaxInt64},
		"the same of the first kind":     {math.MaxInt64, 0, map[string]string{v1: "9223372036854771712\n"}, math.MaxInt64},
		"a container that says nonsense": {math.MaxInt64, 0, map[string]string{v2: "-1"}, math.MaxInt64},
	} {
		debug.SetMemoryLimit(c.set)
		limitMemory(c.asked, func(name string) ([]byte, error) {
			if text, ok := c.files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		})
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestAServerWithoutLameSaysSoAndRefusesMP3(t *testing.T) {
	for _, missing := range []bool{true, false} {
		i := startEdited(t, func(p *program) {
			p.lookPath = func(string) (string, error) {
				if missing {
					return "", exec.ErrNotFound
				}
				return "/usr/bin/lame", nil
			}
		}, nil, "--demo")
		if strings.Contains(i.stdout.String(), "install the program lame") != missing {
			t.Errorf("lame is missing: %t, and the banner says\n%s", missing, i.stdout)
		}
		if !missing {
			continue
		}
		key := regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
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
