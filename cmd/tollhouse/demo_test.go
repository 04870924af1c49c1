package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/server/openapi/openapitest"
)

// curl sends what a printed curl command would.
func curl(t *testing.T, command string) (int, http.Header, string) {
	t.Helper()
	address := regexp.MustCompile(`http://\S+`).FindString(command)
	method, body := http.MethodGet, ""
	if m := regexp.MustCompile(`-d '([^']*)'`).FindStringSubmatch(command); m != nil {
		method, body = http.MethodPost, m[1]
	}
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`-H "([^:"]+): ([^"]+)"`).FindAllStringSubmatch(command, -1) {
		req.Header.Set(m[1], m[2])
	}
	resp, err := openapitest.Client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// printedCurls are the commands of a banner, their lines joined.
func printedCurls(banner string) []string {
	return regexp.MustCompile(`(?m)^  curl .*$`).FindAllString(strings.ReplaceAll(banner, "\\\n", " "), -1)
}

func TestTheDemosCommandsWorkAsPrinted(t *testing.T) {
	i := start(t, nil, "--demo")
	curls := printedCurls(i.stdout.String())
	if len(curls) != 2 {
		t.Fatalf("the banner has %d commands:\n%s", len(curls), i.stdout)
	}
	status, header, body := curl(t, curls[0])
	if status != 200 || header.Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the chat gave %d %v\n%s", status, header, body)
	}
	if !strings.Contains(body, `"model":"delta-k3"`) {
		t.Errorf("the chunks do not name the model:\n%s", body)
	}
	status, _, body = curl(t, curls[1])
	if status != 200 || !strings.Contains(body, `"posted":"24.99`) || !strings.Contains(body, `"held":"0.00"`) {
		t.Errorf("the balance afterwards is %d %s", status, body)
	}
	key := regexp.MustCompile(`sk-\w+`).FindString(curls[0])
	status, body = i.ask(http.MethodGet, "/v1/receipts/"+header.Get("X-Request-Id"), key, "")
	if status != 200 || !strings.Contains(body, `"reason":"complete"`) {
		t.Errorf("the receipt is %d %s", status, body)
	}
}

func TestTheDemoSaysThatItIsSimulated(t *testing.T) {
	i := start(t, nil, "--demo")
	if banner := i.stdout.String(); !strings.Contains(banner, "every answer is simulated, and nothing leaves this process") || strings.Contains(banner, "allow_private") {
		t.Errorf("the banner does not say so:\n%s", banner)
	}
}

func TestEveryStartOfTheDemoHasAFreshKey(t *testing.T) {
	key := regexp.MustCompile(`sk-\w+`)
	a, b := start(t, nil, "--demo"), start(t, nil, "--demo")
	first, second := key.FindString(a.stdout.String()), key.FindString(b.stdout.String())
	if first == second || first == "" {
		t.Errorf("keys %q and %q", first, second)
	}
	if status, body := b.ask(http.MethodGet, "/v1/models", first, ""); status != 401 {
		t.Errorf("the other server's key got %d %s", status, body)
	}
}

func TestTheDemoRunsWhereNothingCanBeWritten(t *testing.T) {
	i := start(t, nil, "--demo", "--data", file(t, "a file, not a directory"))
	if i.admin != adminOff || !strings.Contains(i.stdout.String(), "Warning: the admin API is off") {
		t.Errorf("the banner is\n%s", i.stdout)
	}
}
