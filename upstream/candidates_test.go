package upstream_test

import (
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// oneOnly is a channel whose upstream knows no n.
func oneOnly(up upstream.Upstream) upstream.Channel {
	c := every("one", up, 1)
	c.Drop = []string{"n"}
	return c
}

func TestSeveralCandidatesAreNeverMadeOneInSilence(t *testing.T) {
	for n, refused := range map[string]bool{
		"2": true, "128": true, `"3"`: true, "1.5": true, "1": false, "null": false,
	} {
		v, other := plays("ok"), plays("ok")
		r := router(t, upstream.RouterOptions{}, oneOnly(v), every("other", other, 2))
		var seen []upstream.Attempt
		c := call(t, `{"model":"m","n":`+n+`}`)
		c.Observe = func(a upstream.Attempt) { seen = append(seen, a) }
		text, err := answer(t.Context(), r, c)
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
		if v.asked() != 0 || other.asked() != 0 || len(seen) != 1 {
			t.Errorf("n %s: asked %d and %d times, %d attempts", n, v.asked(), other.asked(), len(seen))
		}
	}
}

func TestARefusalBeforeTheVendorSaysNothingOfItsHealth(t *testing.T) {
	v := plays(failed(500), failed(500), failed(500), failed(500), failed(500), failed(500), failed(500), failed(500), failed(500), failed(500))
	r := router(t, upstream.RouterOptions{}, oneOnly(v))
	for range 10 {
		_, _ = answer(t.Context(), r, call(t, hello))
	}
	rests := func(c upstream.ChannelInfo) bool { return !c.Usable }
	if !slices.ContainsFunc(r.Channels(), rests) {
		t.Fatal("the channel does not rest")
	}
	if _, err := answer(t.Context(), r, call(t, `{"model":"m","n":2}`)); code(err) != fault.InvalidRequest {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(r.Channels(), rests) {
		t.Error("a request that the vendor never saw ended the channel's rest")
	}
}
