package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

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

func TestAKeyOfDashScopeServesSpeech(t *testing.T) {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/services/aigc/multimodal-generation/generation" || r.Header.Get("Authorization") != "Bearer k-alibaba" {
			t.Errorf("%s %v", r.URL.Path, r.Header)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event:result\ndata:{\"output\":{\"audio\":{\"data\":%q},\"finish_reason\":\"stop\"}}\n\n", base64.StdEncoding.EncodeToString([]byte("abcdefgh")))
	}))
	defer vendor.Close()
	i := start(t, environment{"DASHSCOPE_API_KEY": "k-alibaba", "DASHSCOPE_BASE_URL": vendor.URL})
	key := regexp.MustCompile(`sk-\w+`).FindString(i.stdout.String())
	status, body := i.ask(http.MethodPost, "/v1/audio/speech", key, `{"model":"alpha3-tts-instruct-flash","input":"hi","instructions":"slow"}`)
	if status != 200 || !strings.HasPrefix(body, "RIFF") || !strings.HasSuffix(body, "abcdefgh") {
		t.Errorf("%d %q", status, body)
	}
}
