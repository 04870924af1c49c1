package router_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const hello = `{"model":"m", "temperature":1.0,"messages":[]}`

func TestAChannelThatCannotWorkIsRefusedByName(t *testing.T) {
	good := router.Channel{Name: "good", Upstream: plays("ok"), Models: map[string]string{"m": "up"}}
	for what, spoil := range map[string]func(*router.Channel){
		"has no upstream":                    func(c *router.Channel) { c.Upstream = nil },
		"weight -1 is negative":              func(c *router.Channel) { c.Weight = -1 },
		"-1 calls at a time":                 func(c *router.Channel) { c.MaxConcurrent = -1 },
		"number -2 of calls a minute":        func(c *router.Channel) { c.RPM = -2 },
		"the drain -1ns is negative":         func(c *router.Channel) { c.Drain = -1 },
		"a field that it passes has no name": func(c *router.Channel) { c.Pass = []string{""} },
		"has no models":                      func(c *router.Channel) { c.Models = nil },
		"time-out is negative":               func(c *router.Channel) { c.Timeout.Idle = -1 },
		`"m": "" has an empty id`:            func(c *router.Channel) { c.Models = map[string]string{"m": ""} },
		`the model "*" leads to "up"`:        func(c *router.Channel) { c.Models = map[string]string{"*": "up"} },
		`does not serve the model "up"`:      func(c *router.Channel) { c.Upstream = &vendor{only: "other"} },
		`"model" cannot be dropped`:          func(c *router.Channel) { c.Drop = []string{"model"} },
		`"messages" cannot be dropped`:       func(c *router.Channel) { c.Drop = []string{"messages"} },
		`"stream" cannot be dropped`:         func(c *router.Channel) { c.Drop = []string{"stream"} },
		`"stream_options" cannot be dropped`: func(c *router.Channel) { c.Drop = []string{"stream_options"} },
		`"stream" cannot be renamed "s"`:     func(c *router.Channel) { c.Rename = map[string]string{"stream": "s"} },
		`"a" cannot be renamed "messages"`:   func(c *router.Channel) { c.Rename = map[string]string{"a": "messages"} },
		`"a" cannot be renamed "b"`:          func(c *router.Channel) { c.Rename = map[string]string{"a": "b", "b": "c"} },
		`"a" cannot be renamed ""`:           func(c *router.Channel) { c.Rename = map[string]string{"a": ""} },
		"another channel has the same name":  func(c *router.Channel) { c.Name = "good" },
	} {
		bad := good
		bad.Name = "bad"
		spoil(&bad)
		_, err := router.New([]router.Channel{good, bad}, router.Options{})
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), `channel "`+bad.Name+`"`) {
			t.Errorf("error %v, want it to name the channel and say: %s", err, what)
		}
	}
	if _, err := router.New([]router.Channel{{Upstream: plays("ok")}}, router.Options{}); err == nil {
		t.Error("a channel without a name was taken")
	}
}

func TestARouterKnowsItsModels(t *testing.T) {
	r := newRouter(t, router.Options{},
		router.Channel{Name: "a", Upstream: plays("ok"), Models: map[string]string{"z": "z1", "b": "b"}},
		router.Channel{Name: "b", Upstream: plays("ok"), Models: map[string]string{"b": "b2"}, Priority: 2, Weight: 3})
	if diff := cmp.Diff([]string{"b", "z"}, r.Models()); diff != "" {
		t.Error(diff)
	}
	for model, want := range map[string]bool{"b": true, "z": true, "z1": false, "": false, "*": false} {
		if r.Serves(model) != want || r.Supports(upstream.ChatCompletion, model) != want {
			t.Errorf("routes %q: %v", model, !want)
		}
	}
	want := []router.ChannelInfo{
		{Name: "a", Models: []string{"b", "z"}, Weight: 1, Usable: true, State: router.StateClosed},
		{Name: "b", Models: []string{"b"}, Priority: 2, Weight: 3, Usable: true, State: router.StateClosed},
	}
	if diff := cmp.Diff(want, r.Channels()); diff != "" {
		t.Error(diff)
	}
	if _, err := r.Do(t.Context(), call(t, hello)); code(err) != fault.NoChannel {
		t.Errorf("a model without a channel: %v", err)
	}
}

func TestAWildcardChannelServesTheModelsItsUpstreamSupports(t *testing.T) {
	picky := plays("picky")
	picky.only = "n"
	r := newRouter(t, router.Options{}, every("picky", picky, 0), every("open", plays("open"), 1))
	for model, want := range map[string]string{"m": "open", "n": "picky"} {
		got, err := answer(t.Context(), r, call(t, strings.Replace(hello, `"m"`, `"`+model+`"`, 1)))
		if got != want || err != nil {
			t.Errorf("%s: %q, %v", model, got, err)
		}
	}
	if sole := router.Single(picky); sole.Serves("m") || !sole.Serves("n") || len(sole.Models()) != 0 {
		t.Error("a sole upstream's routes are not its own")
	}
	if _, err := router.Single(nil).Do(t.Context(), call(t, hello)); code(err) != fault.NoChannel {
		t.Errorf("nobody at all: %v", err)
	}
}

func TestChannelsOfOnePriorityShareByWeight(t *testing.T) {
	var draws []uint64
	o := router.Options{Rand: func(n uint64) uint64 {
		draws[0]++
		return draws[0] % n // every number below n in turn
	}}
	draws = []uint64{0}
	light, heavy, later := plays("l"), plays("h"), plays("x")
	h := every("heavy", heavy, 1)
	h.Weight = 3
	r := newRouter(t, o, every("later", later, 2), every("light", light, 1), h)
	for range 400 {
		if _, err := answer(t.Context(), r, call(t, hello)); err != nil {
			t.Fatal(err)
		}
	}
	if light.asked() != 100 || heavy.asked() != 300 || later.asked() != 0 {
		t.Errorf("light %d, heavy %d, later %d", light.asked(), heavy.asked(), later.asked())
	}
}

func TestTheUpstreamGetsItsOwnModelAndNoFieldThatItRefuses(t *testing.T) {
	body := `{"model":"m", "temperature":1.0,"top_p":null,"max_tokens":64,"x":[ 1 ]}`
	for name, row := range map[string]struct {
		channel router.Channel
		want    string
		model   string
		dropped []string
	}{
		"same id":  {router.Channel{Models: map[string]string{"m": "m"}}, body, "m", nil},
		"any id":   {router.Channel{Models: map[string]string{"*": "*"}}, body, "m", nil},
		"other id": {router.Channel{Models: map[string]string{"m": "u\"1"}}, strings.Replace(body, `"m"`, `"u\"1"`, 1), `u"1`, nil},
		"drop": {
			router.Channel{Models: map[string]string{"m": "m"}, Drop: []string{"temperature", "top_p", "n"}},
			`{"model":"m","max_tokens":64,"x":[ 1 ]}`, "m", []string{"temperature"},
		},
		"rename": {
			router.Channel{Models: map[string]string{"m": "m"}, Rename: map[string]string{"max_tokens": "max_completion_tokens", "n": "m"}},
			strings.Replace(body, "max_tokens", "max_completion_tokens", 1), "m", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := plays("ok")
			row.channel.Name, row.channel.Upstream = "c", v
			c := call(t, body)
			reply, err := newRouter(t, router.Options{}, row.channel).Do(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			sent, err := v.calls[0].Body.Bytes()
			if string(sent) != row.want || err != nil || v.calls[0].Model != row.model {
				t.Errorf("model %s, body\n%s\nwant\n%s", v.calls[0].Model, sent, row.want)
			}
			if !slices.Equal(reply.Dropped, row.dropped) || reply.Channel != "c" || reply.Status != 200 || reply.Header == nil {
				t.Errorf("reply %+v", reply)
			}
			if own, _ := c.Body.Bytes(); string(own) != body || c.Model != "m" {
				t.Error("the caller's call was modified")
			}
		})
	}
	form := &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Body: upstream.BytesBody([]byte("--form"))} // travels as it is
	v := plays("ok")
	r := newRouter(t, router.Options{}, router.Channel{Name: "c", Upstream: v, Models: map[string]string{"m": "u"}, Drop: []string{"n"}})
	if _, err := answer(t.Context(), r, form); err != nil {
		t.Fatal(err)
	}
	if sent, err := v.calls[0].Body.Bytes(); string(sent) != "--form" || err != nil || v.calls[0].Model != "u" {
		t.Errorf("%q, %v, model %s", sent, err, v.calls[0].Model)
	}
}

// A vendor of two wires has other names for fields in one of them alone.
func TestMessagesAreNotRenamedWhereTheUpstreamHasChatCompletionsToo(t *testing.T) {
	const body, renamed = `{"model":"m","max_tokens":64}`, `{"model":"m","max_completion_tokens":64}`
	for _, row := range []struct {
		name string
		op   upstream.Op
		only upstream.Op // that the upstream has; empty for all
		want string
	}{
		{"messages beside chat", upstream.Messages, "", body},
		{"a count beside chat", upstream.CountTokens, "", body},
		{"chat beside messages", upstream.ChatCompletion, "", renamed},
		{"messages alone", upstream.Messages, upstream.Messages, renamed},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := plays("ok")
			v.onlyOp = row.only
			r := newRouter(t, router.Options{}, router.Channel{
				Name: "c", Upstream: v, Models: map[string]string{"m": "m"}, Rename: map[string]string{"max_tokens": "max_completion_tokens"},
			})
			c := call(t, body)
			c.Op = row.op
			if _, err := answer(t.Context(), r, c); err != nil {
				t.Fatal(err)
			}
			if sent, err := v.calls[0].Body.Bytes(); string(sent) != row.want || err != nil {
				t.Errorf("sent %s, error %v, want %s", sent, err, row.want)
			}
		})
	}
}

func TestAChannelSaysWhetherPromptsAreMarkedForTheCache(t *testing.T) {
	for _, marks := range []bool{true, false} {
		v := plays("ok")
		r := newRouter(t, router.Options{}, router.Channel{Name: "c", Upstream: v, Models: map[string]string{"m": "u"}, CachePrompts: marks})
		c := call(t, hello)
		c.CachePrompts = true // which only a channel can say
		if _, err := answer(t.Context(), r, c); err != nil || v.calls[0].CachePrompts != marks {
			t.Errorf("got %t, want %t, %v", v.calls[0].CachePrompts, marks, err)
		}
	}
}

func TestAnAnswerThatIsNotAcceptedIsAskedForElsewhere(t *testing.T) {
	bad := &closable{Reader: strings.NewReader("error frame")}
	first := plays(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return &upstream.Reply{Status: 200, Body: bad}, nil
	})
	r := newRouter(t, router.Options{}, every("1", first, 1), every("2", plays("fine"), 2))
	var asked []string
	var seen []upstream.Attempt
	asks := asking{r, func(ctx context.Context, reply *upstream.Reply) error {
		asked = append(asked, reply.Channel)
		data, err := io.ReadAll(reply.Body)
		if string(data) != "fine" || ctx.Err() != nil {
			return fault.New(fault.BadGateway, "error frame")
		}
		return err
	}, func(a upstream.Attempt) { seen = append(seen, a) }}
	reply, err := asks.Do(t.Context(), call(t, hello))
	if err != nil {
		t.Fatal(err)
	}
	if reply.Channel != "2" || !bad.closed {
		t.Errorf("an answer of %s; the refused one is closed: %v", reply.Channel, bad.closed)
	}
	if diff := cmp.Diff([]string{"1", "2"}, asked); diff != "" {
		t.Error(diff)
	}
	if len(seen) != 2 || seen[0].Channel != "1" || code(seen[0].Err) != fault.BadGateway || seen[1].Err != nil || seen[1].Model != "m" {
		t.Errorf("observed %+v", seen)
	}
}

func TestAnAnswerOfARouterInARouterIsTheOutersOwn(t *testing.T) {
	inner := newRouter(t, router.Options{}, every("inner", plays("ok"), 0))
	read, ended := 0, 0
	asks := asking{newRouter(t, router.Options{}, every("outer", inner, 0)),
		func(context.Context, *upstream.Reply) error { read++; return nil }, func(upstream.Attempt) { ended++ }}
	reply, err := asks.Do(t.Context(), call(t, hello))
	if err != nil || read != 1 || ended != 1 || reply.Channel != "outer" || len(reply.Attempts) != 1 || reply.Attempts[0].Channel != "outer" {
		t.Errorf("%v, read %d, ended %d", err, read, ended)
	}
}

func TestAnAttemptIsObservedWithItsTime(t *testing.T) {
	now := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	o := router.Options{Now: func() time.Time { return now }}
	v := plays(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		now = now.Add(7 * time.Second)
		return says(strings.NewReader("ok")), nil
	})
	r := newRouter(t, o, router.Channel{Name: "c", Upstream: v, Models: map[string]string{"m": "u"}})
	var got upstream.Attempt
	if _, err := answer(t.Context(), asking{Router: r, ended: func(a upstream.Attempt) { got = a }}, call(t, hello)); err != nil {
		t.Fatal(err)
	}
	want := upstream.Attempt{Channel: "c", Model: "u", Started: now.Add(-7 * time.Second), Duration: 7 * time.Second, Sent: true, Status: 200}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAPanicIsAnErrorAndTheNextRequestWorks(t *testing.T) {
	var nobody *vendor
	scripts := map[string]any{
		"in the upstream": step(func(context.Context, *upstream.Call) (*upstream.Reply, error) { panic("secret detail") }),
		"in a read": step(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
			return says(readFunc(func([]byte) (int, error) { panic("secret detail") })), nil
		}),
		"in a nil upstream": step(nobody.Do),
	}
	for name, script := range scripts {
		v := plays(script, "ok")
		r := router.Single(v)
		_, err := answer(t.Context(), r, call(t, hello))
		e := fault.From(err)
		if e == nil || e.Code != fault.InternalError || strings.Contains(e.Message, "detail") || !strings.Contains(e.Error(), "goroutine") {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := answer(t.Context(), r, call(t, hello)); got != "ok" || err != nil {
			t.Errorf("%s, then: %q, %v", name, got, err)
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestAnUpstreamWithoutReplyAndErrorIsABadGateway(t *testing.T) {
	for name, script := range map[string]step{
		"no reply": func(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, nil },
		"no body":  func(context.Context, *upstream.Call) (*upstream.Reply, error) { return &upstream.Reply{}, nil },
	} {
		if _, err := router.Single(plays(script)).Do(t.Context(), call(t, hello)); code(err) != fault.BadGateway {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAClientThatLeavesIsNoFailureOfTheChannel(t *testing.T) {
	asked := make(chan struct{})
	waits := step(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, (&upstream.Failure{Sent: true, Err: ctx.Err()}).Fault()
	})
	stalls := step(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
		asked <- struct{}{}
		return says(readFunc(func([]byte) (int, error) { <-ctx.Done(); return 0, ctx.Err() })), nil
	})
	shutdown := fault.New(fault.ServiceUnavailable, "The gateway is shutting down.")
	for name, row := range map[string]struct {
		script step
		cause  error
		want   fault.Code
	}{
		"while waiting":     {waits, nil, fault.ClientGone},
		"while reading":     {stalls, nil, fault.ClientGone},
		"for our own cause": {waits, shutdown, fault.ServiceUnavailable},
	} {
		first, second := plays(row.script), plays("ok")
		r := newRouter(t, router.Options{}, every("1", first, 1), every("2", second, 2))
		for range 5 {
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-asked
				cancel(row.cause)
			}()
			if _, err := answer(ctx, r, call(t, hello)); code(err) != row.want {
				t.Errorf("%s: %v", name, err)
			}
		}
		if first.asked() != 5 || second.asked() != 0 || !r.Channels()[0].Usable {
			t.Errorf("%s: first %d, second %d, %+v", name, first.asked(), second.asked(), r.Channels())
		}
	}
}
