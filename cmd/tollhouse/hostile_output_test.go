package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unasked is a vendor that sends another answer behind each.
func unasked(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nX: stolen\r\n\r\nstolen", len(notarized), notarized)
				_, _ = io.Copy(io.Discard, r) // until it is let go of
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestWhatAVendorSendsUnaskedIsNotPrinted runs the program itself, whose standard
// logger net/http prints to.
func TestWhatAVendorSendsUnaskedIsNotPrinted(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "tollhouse")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	name := file(t, "billing: count\nstore: \"memory:\"\nchannels:\n  - {name: main, driver: openai, base_url: "+unasked(t)+"/v1, models: {m: m}}\naccounts:\n  - {name: acme, keys: [{env: ACME_KEY}]}\n")
	cmd := exec.CommandContext(ctx, binary, "serve", "--config", name, "--listen", "127.0.0.1:0", "--admin", "off", "--data", filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), "ACME_KEY="+acme["ACME_KEY"])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	api := ""
	lines := bufio.NewScanner(out)
	for api == "" && lines.Scan() {
		if m := regexp.MustCompile(`API +(http://\S+)/v1`).FindStringSubmatch(lines.Text()); m != nil {
			api = m[1]
		}
	}
	for i := range 3 {
		req, err := http.NewRequestWithContext(ctx, "POST", api+"/v1/chat/completions", strings.NewReader(hostileBody))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+acme["ACME_KEY"])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if i == 0 && resp.StatusCode != 200 { // what follows an answer may still be taken for the next
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	if text := stderr.String() + string(rest); strings.Contains(text, "stolen") || strings.Count(text, `request_id`) < 3 {
		t.Errorf("printed:\n%s", text)
	}
}
