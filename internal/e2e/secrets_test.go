package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The canaries: nothing else in the world reads like them.
const (
	promptCanary    = "canary-prompt-5d1f"
	argumentCanary  = "canary-argument-93ab"
	fileCanary      = "canary-file-77c0"
	keptCanary      = "canary-kept-answer-e1e1"   // an idempotent answer, which is kept
	passedCanary    = "canary-passed-answer-0b0b" // any other answer
	duplicateCanary = "canary-duplicate-4e4e"     // an Idempotency-Key
	strangerCanary  = "sk-canary-stranger-0123456789"
	vendorCanary    = "vendor-key-0123456789"
)

func TestNoKeyAndNoPromptIsFoundInAnySink(t *testing.T) {
	stores(t, secretsStayIn, 1)
}

func secretsStayIn(t *testing.T, store string, _ int) {
	v := newVendor(t)
	v.answer = echo
	watcher := newOTLPCollector(t)
	p := newInstallation(t, settings{store: store, vendor: v.url, credit: "25"}.text()+watcher.section(), "--log-level", "debug")
	n, c := p.start(t), newClient(t, 10)
	made := n.newKey("--account", "acme", "--name", "visitor", "--budget", "5")
	before := n
	for _, a := range session(t, c, n, made) {
		for _, secret := range []string{acmeKey, made, vendorCanary, strangerCanary} {
			if strings.Contains(a.body, secret) || strings.Contains(fmt.Sprint(a.header), secret) {
				t.Errorf("an answer holds the key %s: %s %v", secret, a, a.header)
			}
		}
	}
	callTools(t, n, made)
	first := sinks(t, c, n, store)
	n.kill()
	n = p.start(t)
	if a := c.chat(n, request{text: promptCanary}); a.status != 200 {
		t.Errorf("after the restart: %s", a)
	}
	again := sinks(t, c, n, store)
	again["stderr of the killed"] = before.log.String()
	n.stop() // which sends what is left
	again["opentelemetry"] = watcher.got()
	for name, part := range map[string]string{
		"opentelemetry": "gen_ai.operation.name", "admin metrics": "tollhouse_requests_total{model=\"m\"", "stderr of the killed": "msg=request",
	} {
		if !strings.Contains(again[name], part) {
			t.Errorf("%s has no %s", name, part)
		}
	}
	for _, all := range []map[string]string{first, again} {
		assertAbsent(t, all, acmeKey, made, strangerCanary, vendorCanary, promptCanary, argumentCanary, fileCanary,
			base64.StdEncoding.EncodeToString([]byte(fileCanary)), passedCanary)
		assertOnlyInKeptAnswers(t, all, keptCanary)
		assertOnlyInKeptAnswers(t, all, duplicateCanary)
		if !strings.Contains(all["table answer"], keptCanary) || !strings.Contains(all["table receipt"], "acme") {
			t.Error("the sinks were not read, or nothing was kept")
		}
	}
	if len(before.log.String()) < 1_000 {
		t.Errorf("the log says only\n%s", before.log)
	}
}

// assertAbsent demands that no sink holds one of the texts.
func assertAbsent(t *testing.T, sinks map[string]string, texts ...string) {
	t.Helper()
	for name, content := range sinks {
		for _, text := range texts {
			if at := strings.Index(content, text); at >= 0 {
				t.Errorf("%s holds %q: …%q…", name, text, content[max(at-80, 0):min(at+80, len(content))])
			}
		}
	}
}

// assertOnlyInKeptAnswers requires that a text is only where idempotent answers are kept.
func assertOnlyInKeptAnswers(t *testing.T, sinks map[string]string, text string) {
	t.Helper()
	for name, content := range sinks {
		if name != "table answer" && !strings.Contains(name, "ledger.db") && strings.Contains(content, text) {
			t.Errorf("%s holds %q", name, text)
		}
	}
}

// echo is a vendor that tells all it knows, whatever it is asked.
func echo(w http.ResponseWriter, r *http.Request, c vendorCall) bool {
	said := promptCanary + " " + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	failure := fmt.Sprintf(`{"error":{"message":"You said %s","type":"t","code":"c","param":null}}`, said)
	fail := func(status int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	switch _, what, _ := strings.Cut(c.text(), " fail "); what {
	case "400":
		fail(400, failure)
	case "401": // its text is logged, so it is asked without the prompt
		fail(401, fmt.Sprintf(`{"error":{"message":"Incorrect API key provided: %s.","type":"t","code":"invalid_api_key","param":null}}`, vendorCanary))
	case "429", "500", "503":
		status := map[string]int{"429": 429, "500": 500, "503": 503}[what]
		fail(status, failure)
	case "object":
		fail(200, failure)
	case "garbage":
		fail(200, `{"id": `+said)
	case "frame":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\ndata: %s\n\n", content(c), failure)
	case "hang":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", passedCanary)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		return answered(w, c)
	}
	return true
}

// content is what the answer says.
func content(c vendorCall) string {
	if strings.Contains(c.text(), "keep") {
		return keptCanary
	}
	return passedCanary
}

// answered is a good answer with a canary in it.
func answered(w http.ResponseWriter, c vendorCall) bool {
	text := content(c)
	if c.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", text)
		return true
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":%s}`, text, usage(3))
	return true
}

// session does all that can go well or badly with canaries in it.
func session(t *testing.T, c *client, n *node, made string) (answers []answer) {
	t.Helper()
	ask := func(want int, q request) {
		t.Helper()
		q.text = promptCanary + q.text
		a := c.chat(n, q)
		if a.status != want {
			t.Errorf("%+v: %s, want %d", q, a, want)
		}
		answers = append(answers, a)
	}
	once := func(suffix string) map[string]string {
		return map[string]string{"Idempotency-Key": duplicateCanary + suffix}
	}
	ask(200, request{})
	ask(200, request{stream: true, key: made})
	for range 2 {
		ask(200, request{text: " keep", header: once("1")})
		ask(200, request{text: " keep", header: once("2"), stream: true})
	}
	ask(409, request{text: " another", header: once("1")})
	ask(401, request{key: strangerCanary})
	ask(400, request{model: "unknown"})
	for what, status := range map[string]int{"400": 400, "401": 502, "429": 429, "500": 500, "503": 503, "object": 502, "garbage": 502} {
		ask(status, request{text: " fail " + what})
		ask(status, request{text: " fail " + what, header: once(what)})
	}
	ask(200, request{text: " fail frame", stream: true})
	ask(200, request{text: " keep fail frame", stream: true, header: once("frame")})
	disconnect(t, c, n, request{text: promptCanary + " fail hang", stream: true})
	for _, body := range []string{
		fmt.Sprintf(`{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","description":%q}}}],"messages":[
			{"role":"user","content":[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":%q}}]},
			{"role":"tool","tool_call_id":"call_1","content":%q}]}`, argumentCanary, promptCanary, base64.StdEncoding.EncodeToString([]byte(fileCanary)), `{"a":"`+argumentCanary+`"}`, fileCanary),
		`{"model":"m","messages":"` + promptCanary + `"}`,
		`{"model":"m","messages":[{"role":"user","content":"` + promptCanary,
	} {
		answers = append(answers, c.fetch(http.MethodPost, "http://"+n.api+"/v1/chat/completions", made, body))
	}
	if a := answers[len(answers)-3]; a.status != 200 {
		t.Errorf("a request with tools and a picture: %s", a)
	}
	return answers
}

// callTools has tools asked, well and badly: what they say is the agent's alone.
func callTools(t *testing.T, n *node, key string) {
	t.Helper()
	prompt := func(what string) string { return fmt.Sprintf(`{"model":"m","prompt":%q}`, promptCanary+what) }
	if said := n.tool(key, "chat", prompt("")); !strings.Contains(said, passedCanary) {
		t.Errorf("the tool said %s", said)
	}
	for _, what := range []string{" fail 400", " fail 500", " fail garbage", " fail 401"} {
		said := n.tool(key, "chat", prompt(what))
		if !strings.Contains(said, `"isError":true`) {
			t.Errorf("%s: the tool said %s", what, said)
		}
		for _, secret := range []string{acmeKey, key, vendorCanary} {
			if strings.Contains(said, secret) {
				t.Errorf("%s: the tool told %s: %s", what, secret, said)
			}
		}
	}
	n.tool(strangerCanary, "chat", prompt(""))
	n.tool(key, "chat", `{"model":"m","prompt":["`+promptCanary+`"],"`+argumentCanary+`":1}`)
	n.tool(key, argumentCanary, `{}`)
}

// disconnect leaves in the middle of a stream.
func disconnect(t *testing.T, c *client, n *node, q request) {
	t.Helper()
	resp, err := c.open(n, q)
	must(t, err)
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Error(err)
	}
	_ = resp.Body.Close()
	id := resp.Header.Get("X-Request-Id")
	until(t, patience, "the call that was left is settled", func() bool { return c.get(n, "/v1/receipts/"+id, acmeKey).status == 200 })
}

// sinks are everything that a node leaves behind or tells its operator, by name.
func sinks(t testing.TB, c *client, n *node, store string) map[string]string {
	t.Helper()
	all := map[string]string{"stdout": n.out.String(), "stderr": n.log.String()}
	for path, text := range files(t, n.at.data) {
		all[path] = text
	}
	if path, ok := isFile(store); ok {
		for path, text := range files(t, filepath.Dir(path)) {
			all[path] = text
		}
	}
	for name, text := range openDatabase(t, store).tables(store) {
		all["table "+name] = text
	}
	for _, path := range []string{"accounts", "accounts/acme", "keys", "usage?by=model", "usage?by=key", "server", "ledger/verify"} {
		all["admin "+path] = c.fetch("GET", "http://"+n.admin+"/admin/v1/"+path, n.token(), "").ok(t, path).body
	}
	all["admin metrics"] = n.metrics()
	for _, path := range []string{"/readyz", "/healthz", "/v1/balance", "/v1/usage", "/v1/usage?format=csv&by=key", "/v1/models"} {
		all[path] = c.get(n, path, acmeKey).ok(t, path).body
	}
	return all
}

// files are the contents of all files below a directory, by path.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	must(t, err)
	return all
}

// tables are the contents of every table, with the bytes of every column.
func (b database) tables(store string) map[string]string {
	b.t.Helper()
	list := "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	if _, file := isFile(store); file {
		list = "SELECT name FROM sqlite_master WHERE type = 'table'"
	}
	names := strings.Fields(b.text(list))
	if len(names) < 9 {
		b.t.Fatalf("the database has only the tables %v", names)
	}
	all := map[string]string{}
	for _, name := range names {
		all[name] = b.text(`SELECT * FROM "` + name + `"`)
	}
	return all
}

// text is all that a query gives.
func (b database) text(query string) string {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), query)
	if err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	must(b.t, err)
	var all strings.Builder
	row, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		to[i] = &row[i]
	}
	for rows.Next() {
		must(b.t, rows.Scan(to...))
		for _, v := range row {
			if bytes, ok := v.([]byte); ok {
				v = string(bytes)
			}
			_, _ = fmt.Fprintln(&all, v) // a builder takes everything
		}
	}
	must(b.t, rows.Err())
	return all.String()
}

// ok demands a good answer.
func (a answer) ok(t testing.TB, what string) answer {
	t.Helper()
	if a.err != nil || a.status != 200 {
		t.Errorf("%s: %s", what, a)
	}
	return a
}

// otlpCollector stands in for a collector of OpenTelemetry, and keeps all that it gets.
type otlpCollector struct {
	*httptest.Server
	mu  sync.Mutex
	all bytes.Buffer
}

func newOTLPCollector(t testing.TB) *otlpCollector {
	t.Helper()
	w := new(otlpCollector)
	w.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _ = fmt.Fprintln(&w.all, r.URL, r.Header)
		_, _ = io.Copy(&w.all, r.Body)
	}))
	t.Cleanup(w.Close)
	return w
}

// section is what a configuration says of it.
func (w *otlpCollector) section() string { return "telemetry: {otlp: \"" + w.URL + "\"}\n" }

func (w *otlpCollector) got() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// stop ends the node as an operator does.
func (n *node) stop() {
	n.t.Helper()
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-n.ended
}
