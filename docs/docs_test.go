// Package docs holds the test that runs the commands of these pages.
package docs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The addresses and the key that the pages write.
const (
	writtenAPI   = "http://127.0.0.1:8080"
	writtenAdmin = "http://127.0.0.1:8081"
)

// block is a fenced block of a page.
type block struct {
	page, language string
	line           int
	text           string
}

// blocks finds the blocks of all pages, the README's among them.
func blocks(t *testing.T) (found []block) {
	t.Helper()
	pages, err := filepath.Glob("*/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("found only the pages %v (%v)", pages, err)
	}
	for _, page := range append(pages, "../README.md", "../ARCHITECTURE.md") {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var open *block
		n := 0
		for line := range strings.Lines(string(data)) {
			n++
			fence, ok := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case ok && open == nil:
				open = &block{page: page, language: fence, line: n}
			case ok:
				found, open = append(found, *open), nil
			case open != nil:
				open.text += line
			}
		}
		if open != nil {
			t.Errorf("%s:%d: the block does not end", page, open.line)
		}
	}
	return found
}

// program is the path of the program, in a directory that TestMain removes.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tollhouse-docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "tollhouse")
	code := m.Run()
	_ = os.RemoveAll(dir) // what stays is the system's to clear
	os.Exit(code)
}

// buildOnce builds the program for all tests. Without debug information it is
// linked faster.
var buildOnce = sync.OnceValue(func() error {
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", program, "../cmd/tollhouse").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// build makes the program, if no test has, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return program
}

// demo is a running demo and what its banner told.
type demo struct{ api, admin, key, data string }

var (
	apiRow   = regexp.MustCompile(`API +(http://\S+)/v1`)
	adminRow = regexp.MustCompile(`Admin +(http://\S+)`)
	keyLine  = regexp.MustCompile(`^ +(sk-\S+)$`)
)

// start runs the demo on free ports until the test ends.
func start(t *testing.T, binary string) demo {
	t.Helper()
	d := demo{data: t.TempDir()}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "serve", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", d.data)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the demo ended badly: %v", err)
		}
	})
	for lines := bufio.NewScanner(out); lines.Scan() && d.key == ""; {
		read(lines.Text(), apiRow, &d.api)
		read(lines.Text(), adminRow, &d.admin)
		read(lines.Text(), keyLine, &d.key)
	}
	if d.api == "" || d.admin == "" || d.key == "" {
		t.Fatalf("the banner lacks something: %+v", d)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // it ends with the process
	return d
}

func read(line string, row *regexp.Regexp, to *string) {
	if m := row.FindStringSubmatch(line); m != nil {
		*to = m[1]
	}
}

// environment is that of a reader who did what the pages say before.
func (d demo) environment(binary string) []string {
	return append(os.Environ(),
		"no_proxy=*", "KEY="+d.key, "TOLLHOUSE_DATA="+d.data, "TOLLHOUSE_ADMIN="+strings.TrimPrefix(d.admin, "http://"),
		"PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestTheCommandsOfTheDocumentsWork(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "sed", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here, so the commands of the documents cannot be tried", tool)
		}
	}
	binary := build(t)
	d := start(t, binary)
	const waits = "guides/video.md" // for its videos, beside the other pages
	inOrder, tried := map[bool][]block{}, 0
	for _, b := range blocks(t) {
		if b.language == "sh" && b.page != "../README.md" { // whose commands start servers and tests
			inOrder[b.page == waits] = append(inOrder[b.page == waits], b)
			tried++
		}
	}
	if tried < 10 {
		t.Errorf("tried only %d blocks", tried)
	}
	for video, all := range inOrder {
		t.Run(fmt.Sprintf("video=%t", video), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, b := range all {
				text := strings.NewReplacer(writtenAPI, d.api, writtenAdmin, d.admin).Replace(b.text)
				cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", text)
				cmd.Dir, cmd.Env = dir, d.environment(binary)
				out, err := cmd.CombinedOutput()
				if err != nil || strings.Contains(string(out), `"error":{`) {
					t.Errorf("%s:%d: %v\n%s\n%s", b.page, b.line, err, b.text, out)
				}
			}
		})
	}
}

// written says what the documents' variables hold.
var written = []string{"OPENAI_API_KEY=sk-vendor", "GROQ_API_KEY=gsk-vendor", "ACME_KEY=sk-0123456789abcdefghij"}

func TestTheConfigurationsOfTheDocumentsAreGood(t *testing.T) {
	binary, tried := build(t), 0
	for _, b := range blocks(t) {
		if b.language != "yaml" {
			continue
		}
		tried++
		file := filepath.Join(t.TempDir(), "tollhouse.yaml")
		if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), binary, "check", "--config", file)
		cmd.Env = append(os.Environ(), written...)
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "Warning") {
			t.Errorf("%s:%d: %v\n%s", b.page, b.line, err, out)
		}
	}
	if tried < 3 {
		t.Errorf("tried only %d configurations", tried)
	}
}

func TestTheDefaultAddressesAreThoseOfTheDocuments(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), build(t), "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{writtenAPI, writtenAdmin} {
		address := strings.TrimPrefix(url, "http://")
		if _, _, err := net.SplitHostPort(address); err != nil || !strings.Contains(string(out), address) {
			t.Errorf("serve --help does not name %s", address)
		}
	}
}
