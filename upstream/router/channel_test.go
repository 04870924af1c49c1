package router_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// oneOnly is a channel whose upstream knows no n.
func oneOnly(up upstream.Upstream) router.Channel {
	c := every("one", up, 1)
	c.Drop = []string{"n"}
	return c
}

func TestSeveralCandidatesAreNeverMadeOneInSilence(t *testing.T) {
	for n, refused := range map[string]bool{
		"2": true, "128": true, `"3"`: true, "1.5": true, "1": false, "null": false,
	} {
		v := plays("ok")
		r := newRouter(t, router.Options{}, oneOnly(v))
		var seen []upstream.Attempt
		asks := asking{Router: r, ended: func(a upstream.Attempt) { seen = append(seen, a) }}
		text, err := answer(t.Context(), asks, call(t, `{"model":"m","n":`+n+`}`))
		if !refused {
			if err != nil || text != "ok" || v.calls[0].Body.Has("n") {
				t.Errorf("n %s: %q, %v", n, text, err)
			}
			continue
		}
		f := fault.From(err)
		if f == nil || f.Code != fault.InvalidRequest || f.HTTPStatus() != 400 || f.Param != "n" ||
			f.Message != "This model's upstream gives one candidate only: leave n out or send 1." {
			t.Errorf("n %s: %v", n, err)
		}
		if v.asked() != 0 || len(seen) != 1 {
			t.Errorf("n %s: asked %d times, %d attempts", n, v.asked(), len(seen))
		}
	}
}

func TestARefusalBeforeTheVendorSaysNothingOfItsHealth(t *testing.T) {
	r := newRouter(t, router.Options{}, oneOnly(plays(failed(500))))
	for range 10 {
		_, _ = answer(t.Context(), r, call(t, hello))
	}
	if r.Channels()[0].Usable {
		t.Fatal("the channel's breaker is not open")
	}
	if _, err := answer(t.Context(), r, call(t, `{"model":"m","n":2}`)); code(err) != fault.InvalidRequest {
		t.Fatal(err)
	}
	if r.Channels()[0].Usable {
		t.Error("a request that the vendor never saw closed the channel's breaker")
	}
}

func TestTheLastErrorHasNoTextOfAVendors(t *testing.T) {
	for code, want := range map[fault.Code]string{
		"InternalError.Algo":  "InternalError.Algo (upstream status 500)",
		"the caller's prompt": "upstream_error (upstream status 500)",
	} {
		bad := &fault.Error{Code: code, Message: "Text.", Status: 500, Err: &upstream.Failure{Status: 500, Sent: true}}
		r := newRouter(t, router.Options{}, every("1", plays(bad), 1))
		if _, err := r.Do(t.Context(), call(t, hello)); err == nil {
			t.Fatal("no error")
		}
		if got := r.Channels()[0].LastError; got != want {
			t.Errorf("%q is told as %q, want %q", code, got, want)
		}
	}
}

func TestWhatChannelsDoWithFieldsCanBeAsked(t *testing.T) {
	one, two := every("one", plays("ok"), 0), every("two", plays("ok"), 0)
	one.Models, two.Models = map[string]string{"m": "m", "own": "own"}, map[string]string{"m": "m"}
	one.Drop, one.Pass, one.Rename = []string{"n", "gone"}, []string{"Service_Tier"}, map[string]string{"a": "b", "c": "service_tier", "n": "x"}
	r := newRouter(t, router.Options{}, one, two)
	for name, row := range map[string]struct{ model, field, drops, passes string }{
		"a field that one of two takes": {"m", "service_tier", "false", "false"},
		"a field that each takes":       {"own", "service_tier", "false", "true"},
		"a field that is dropped":       {"own", "gone", "true", "true"},
		"a field that one of two drops": {"m", "gone", "true", "false"},
		"any other field":               {"own", "other", "false", "false"},
	} {
		drops, passes := r.Drops(row.model, row.field), r.Routes(upstream.ChatCompletion, row.model).Passes(row.field, row.field, false)
		if fmt.Sprint(drops) != row.drops || fmt.Sprint(passes) != row.passes {
			t.Errorf("%s: dropped %t, passed %t", name, drops, passes)
		}
	}
	var renamed []string
	stop := errors.New("enough")
	visit := func(from, to string) error { renamed = append(renamed, from+">"+to); return stop }
	if err := r.Routes(upstream.ChatCompletion, "m").EachRename(visit); err != stop || !slices.Equal(renamed, []string{"a>b"}) {
		t.Errorf("%v, %v", renamed, err)
	}
}
