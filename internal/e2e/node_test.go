package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/servertest"
)

// installation is what a node is started from, again and again.
type installation struct {
	config string // the file
	data   string // the data directory
	env    []string
	args   []string
}

// node is a process that serves.
type node struct {
	t          testing.TB
	at         installation
	cmd        *exec.Cmd
	api, admin string // addresses
	out, log   *servertest.Output
	ended      chan struct{}
	once       *sync.Once
}

// acmeKey is the API key of the account that the configuration files own.
const acmeKey = "sk-acme-0123456789abcdef"

// newInstallation writes a configuration into a directory of the test's own.
func newInstallation(t testing.TB, config string, args ...string) installation {
	t.Helper()
	dir := t.TempDir()
	p := installation{
		config: filepath.Join(dir, "tollhouse.yaml"), data: filepath.Join(dir, "data"),
		env: []string{"ACME_KEY=" + acmeKey, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}, args: args,
	}
	p.write(t, config)
	return p
}

// write replaces the configuration.
func (p installation) write(t testing.TB, config string) {
	t.Helper()
	must(t, os.WriteFile(p.config, []byte(config), 0o600))
}

// banner is the pattern of what a node prints, with its addresses.
const banner = `(?s)API +http://(\S+)/v1\n  Admin +http://(\S+)`

// start starts a node and waits for its banner.
func (p installation) start(t testing.TB) *node {
	t.Helper()
	n := p.launch(t)
	n.ready(t)
	return n
}

// launch starts a node.
func (p installation) launch(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, at: p}
	n.run(t)
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			n.complaints()
		}
	})
	return n
}

// run starts the process.
func (n *node) run(t testing.TB) {
	t.Helper()
	p, ended := n.at, make(chan struct{})
	n.out, n.log, n.ended, n.once = new(servertest.Output), new(servertest.Output), ended, new(sync.Once)
	args := append([]string{"serve", "--config", p.config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", p.data}, p.args...)
	n.cmd = exec.Command(built.path(t), args...)
	n.cmd.Env, n.cmd.Stdout, n.cmd.Stderr = p.env, n.out, n.log
	must(t, n.cmd.Start())
	go func(cmd *exec.Cmd, out, log *servertest.Output) {
		_ = cmd.Wait() // a killed process is no surprise here
		_ = out.Close()
		_ = log.Close()
		close(ended)
	}(n.cmd, n.out, n.log)
}

// ready waits for the banner. A node that found the database too slow to start
// with is started again, as whoever runs it would: the machine was busy.
func (n *node) ready(t testing.TB) {
	t.Helper()
	for tries := 1; ; tries++ {
		slow := time.AfterFunc(2*time.Minute, n.kill)
		m := n.out.Await(banner)
		slow.Stop()
		if m != nil {
			n.api, n.admin = m[1], m[2]
			return
		}
		<-n.ended
		if tries == 10 || !strings.Contains(n.log.String(), "the database did not answer in time") {
			t.Fatalf("serve ended before its banner:\n%s%s", n.out, n.log)
		}
		n.run(t)
	}
}

// kill ends the process as a crash does, and waits until it is gone.
func (n *node) kill() {
	n.once.Do(func() { _ = n.cmd.Process.Kill() }) // it may have ended
	<-n.ended
}

// output is what a command wrote.
type output struct {
	stdout, stderr string
	ok             bool
}

// command runs the program beside the node.
func (n *node) command(args ...string) output {
	n.t.Helper()
	return n.at.command(n.t, append(args, "--admin", n.admin)...)
}

// command runs the program with the configuration and data of the installation.
func (p installation) command(t testing.TB, args ...string) output {
	t.Helper()
	cmd := exec.Command(built.path(t), append(args, "--data", p.data, "--config", p.config)...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, &stdout, &stderr
	err := cmd.Run()
	return output{stdout.String(), stderr.String(), err == nil}
}

// good runs a command that has to succeed.
func (n *node) good(args ...string) string {
	n.t.Helper()
	r := n.command(args...)
	if !r.ok {
		n.t.Fatalf("%v: %s", args, r.stderr)
	}
	return r.stdout
}

// complaints logs what the process had to complain of, so that a failure which
// comes once in a thousand runs can be understood.
func (n *node) complaints() {
	n.t.Helper()
	left := 20
	for line := range strings.Lines(n.log.String()) {
		if left > 0 && complaint.MatchString(line) {
			n.t.Logf("%s says: %s", n.api, line)
			left--
		}
	}
}

var complaint = regexp.MustCompile(`WARN|ERROR|database is back`)

// sound demands that `ledger verify` finds nothing.
func (n *node) sound() {
	n.t.Helper()
	r := n.command("ledger", "verify")
	if r.ok && strings.Contains(r.stdout, "The ledger is sound") {
		return
	}
	n.t.Errorf("ledger verify: %s%s", r.stdout, r.stderr)
}

// newKey makes an API key.
func (n *node) newKey(args ...string) string {
	n.t.Helper()
	return strings.Fields(n.good(append([]string{"key", "create"}, args...)...))[0]
}

// several starts nodes at once, each with a data directory of its own.
func several(t testing.TB, count int, config string, args ...string) []*node {
	t.Helper()
	nodes := make([]*node, count)
	for i := range nodes {
		nodes[i] = newInstallation(t, config, args...).launch(t)
	}
	for _, n := range nodes {
		n.ready(t)
	}
	return nodes
}

// tool calls a tool of the MCP server and gives what comes of it.
func (n *node) tool(key, name, arguments string) string {
	n.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments)
	return n.plain(http.MethodPost, "http://"+n.api+"/mcp", key, body)
}

// metrics is a scrape.
func (n *node) metrics() string {
	n.t.Helper()
	return n.plain(http.MethodGet, "http://"+n.admin+"/metrics", n.token(), "")
}

// plain asks for what is no part of the API that its document tells of. It gives
// the status and the body.
func (n *node) plain(method, address, bearer, body string) string {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, address, strings.NewReader(body))
	must(n.t, err)
	r.Header.Set("Authorization", "Bearer "+bearer)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("MCP-Protocol-Version", "2025-06-18")
	}
	resp, err := http.DefaultClient.Do(r)
	must(n.t, err)
	a := read(resp)
	must(n.t, a.err)
	return fmt.Sprintf("%d %s", a.status, a.body)
}

// token is the node's admin token.
func (n *node) token() string {
	n.t.Helper()
	return strings.TrimSpace(n.at.command(n.t, "admin", "token").stdout)
}
