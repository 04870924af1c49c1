package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/server"
)

// moody is a vendor that answers as it is told to.
type moody struct{ answer atomic.Pointer[mood] }

type mood struct {
	status int
	body   string
}

func (m *moody) is(status int, body string) { m.answer.Store(&mood{status, body}) }

func (m *moody) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a := m.answer.Load()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// main is how the first channel is.
func (i *instance) main(t *testing.T) server.ChannelView {
	t.Helper()
	var list struct{ Data []server.ChannelView }
	if err := json.Unmarshal([]byte(i.good("channel", "list", "--json")), &list); err != nil || len(list.Data) == 0 {
		t.Fatalf("%v %+v", err, list)
	}
	return list.Data[0]
}

func TestATestChangesAChannelsHealthOnlyWhereItWorks(t *testing.T) {
	m := new(moody)
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	i := start(t, acme, "--config", file(t, twoChannels(s.URL+"/v1")))
	test := func() {
		t.Helper()
		if r := i.command("channel", "test", "main"); r.code != exitFailed {
			t.Errorf("the test worked: %s", r.stdout)
		}
	}
	for _, a := range []mood{{500, `{}`}, {200, `{"id":"c1"}`}, {401, `{}`}} {
		m.is(a.status, a.body)
		for range 3 {
			test()
		}
	}
	if c := i.main(t); c.State != "ready" || c.Failures != 0 || c.LastError != "" {
		t.Errorf("failed tests count: %+v", c)
	}
	// Neither a 200 that is no answer nor the vendor's no to the test's request makes
	// two failures less.
	m.is(500, `{}`)
	calls(i, "m")
	calls(i, "m")
	m.is(200, `{"id":"c1"}`)
	test()
	m.is(400, `{}`)
	test()
	m.is(500, `{}`)
	calls(i, "m")
	if c := i.main(t); c.State == "ready" || c.Failures != 3 {
		t.Errorf("after three failures: %+v", c)
	}
	m.is(200, strings.Replace(vendorAnswer, "kimi-k3", "m", 1))
	i.good("channel", "test", "main")
	if c := i.main(t); c.State != "probing" {
		t.Errorf("after a test that worked: %+v", c)
	}
}

func TestATestPutsNoTextOfAVendorsIntoTheLog(t *testing.T) {
	for code, want := range map[string]string{"what was asked, in full": "upstream_error", "bad_n": "bad_n"} {
		base, _ := vendor(t, 400, `{"error":{"message":"No.","code":"`+code+`"}}`)
		i := start(t, acme, "--config", file(t, twoChannels(base)))
		i.command("channel", "test", "main")
		i.stderr.await(`action=channel\.test .*code=\S+`)
		if log := i.stderr.String(); !strings.Contains(log, "code="+want) || strings.Contains(log, "what was asked") {
			t.Errorf("the log has it:\n%s", i.stderr)
		}
	}
}
