package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// withChannels is an operator's API over two channels.
func withChannels(t *testing.T, edit func(*server.AdminOptions)) (*adminFixture, *router.Router) {
	t.Helper()
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, nil })
	routing, err := router.New([]router.Channel{
		{Name: "main", Upstream: up, Models: map[string]string{"m": "m"}, Weight: 3},
		{Name: "west/spare", Upstream: up, Models: map[string]string{"*": "*"}, Priority: 1},
	}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newAdminFixture(t, func(a *server.AdminOptions) {
		a.Channels = routing
		if edit != nil {
			edit(a)
		}
	}), routing
}

func TestAChannelIsPausedAndResumedOverTheAdminAPI(t *testing.T) {
	o, routing := withChannels(t, nil)
	const ready = `"state":"ready","models":["m"],"priority":0,"weight":3,"in_flight":0,"requests":0,"failures":0,"latency_ms":0}`
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "", 200, `{"object":"list","data":[{"name":"main",` + ready + `,{"name":"west/spare","state":"ready"`},
		{"POST", "/main/pause", 200, `{"name":"main","state":"paused"`},
		{"POST", "/main/pause", 200, `"state":"paused"`},
		{"GET", "", 200, `[{"name":"main","state":"paused"`},
		{"POST", "/west%2Fspare/pause", 200, `{"name":"west/spare","state":"paused"`},
		{"POST", "/main/resume", 200, ready},
		{"POST", "/main/resume", 200, ready},
		{"POST", "/nobody/pause", 404, `There is no channel \"nobody\". The channels are main, west/spare.`},
		{"POST", "/nobody/resume", 404, "The channels are main, west/spare."},
		{"POST", "/nobody/test", 404, "The channels are main, west/spare."},
		{"POST", "/main/test", 404, "cannot test"},
		{"GET", "/main/pause", 405, "POST"},
		{"GET", "/main", 404, "Not found"},
	} {
		if status, body := o.ask(c.method, "/admin/v1/channels"+c.path, ""); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	for _, c := range routing.Channels() {
		if (c.State == router.Paused) != (c.Name == "west/spare") {
			t.Errorf("%s is %s", c.Name, c.State)
		}
	}
}

func TestATestOfAChannelIsAnAnswerWhateverCameOfIt(t *testing.T) {
	var asked server.ChannelTest
	var result server.ChannelResult
	var refusal error
	o, _ := withChannels(t, func(a *server.AdminOptions) {
		a.TestChannel = func(_ context.Context, in server.ChannelTest) (server.ChannelResult, error) {
			asked = in
			return result, refusal
		}
	})
	result = server.ChannelResult{Channel: "main", Model: "m", Operation: "chat", MS: 12, Status: 401, Code: fault.NoChannel, Message: "No."}
	status, body := o.ask("POST", "/admin/v1/channels/main/test", "")
	if status != 200 || body != `{"channel":"main","model":"m","operation":"chat","ok":false,"simulated":false,"ms":12,"status":401,"code":"service_unavailable","message":"No."}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if !strings.Contains(o.log.String(), "action=channel.test outcome=done") || !strings.Contains(o.log.String(), "target=main model=m ok=false code=service_unavailable") {
		t.Error(o.log.String())
	}
	if status, _ := o.ask("POST", "/admin/v1/channels/main/test", `{"model":"n","yes":true}`); status != 200 || asked != (server.ChannelTest{Channel: "main", Model: "n", Yes: true}) {
		t.Errorf("%d, asked for %+v", status, asked)
	}
	if status, body := o.ask("POST", "/admin/v1/channels/main/test", `{"modell":"n"}`); status != 400 || !strings.Contains(body, "modell") {
		t.Errorf("%d %s", status, body)
	}
	refusal = fault.Invalid("yes", "It costs money.")
	if status, body := o.ask("POST", "/admin/v1/channels/main/test", ""); status != 400 || !strings.Contains(body, `"param":"yes"`) {
		t.Errorf("%d %s", status, body)
	}
}
