package router_test

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestWhoServesAModelThatIsDiscovered(t *testing.T) {
	lists := func(name string, ids ...string) router.Channel {
		found := make(map[string]string)
		for _, id := range ids {
			found[id] = id
		}
		return router.Channel{Name: name, Upstream: plays(name), Discovered: found}
	}
	maps := func(c router.Channel, public, id string) router.Channel {
		c.Models = map[string]string{public: id}
		return c
	}
	defers := every("every", plays("every"), 0)
	defers.DefersToDiscovered = true
	keeps := defers
	keeps.Discovered = map[string]string{"gpt-5": "gpt-5"}
	for _, row := range []struct {
		name     string
		channels []router.Channel
		model    string
		want     string // the channels that serve it
		listed   string // all models of the router
	}{
		{"one that lists it", []router.Channel{lists("a", "llama", "qwen")}, "llama", "a", "llama qwen"},
		{"two that list it", []router.Channel{lists("a", "llama"), lists("b", "llama")}, "llama", "a b", "llama"},
		{"no list yet", []router.Channel{lists("a")}, "llama", "", ""},
		{"another channel maps it", []router.Channel{maps(lists("openai"), "gpt-5", "gpt-5"), lists("cheap", "gpt-5")}, "gpt-5", "openai", "gpt-5"},
		{"both map it", []router.Channel{maps(lists("openai"), "gpt-5", "gpt-5"), maps(lists("cheap", "gpt-5"), "gpt-5", "gpt-5")}, "gpt-5", "openai cheap", "gpt-5"},
		{"its own map wins", []router.Channel{maps(lists("a", "llama"), "llama", "llama-v2")}, "llama", "a", "llama"},
		{"another channel passes it through", []router.Channel{every("every", plays("every"), 0), lists("cheap", "gpt-5")}, "gpt-5", "every", ""},
		{"another channel passes its beginning through", []router.Channel{maps(lists("groq"), "groq/*", "*"), lists("cheap", "groq/x", "y")}, "groq/x", "groq", "y"},
		{"one that defers", []router.Channel{defers, lists("cheap", "gpt-5")}, "gpt-5", "cheap", "gpt-5"},
		{"one that defers, and another id", []router.Channel{defers, lists("cheap", "gpt-5")}, "gpt-6", "every", "gpt-5"},
		{"one that defers keeps its own list", []router.Channel{keeps, lists("cheap", "gpt-5", "llama")}, "gpt-5", "every", "gpt-5 llama"},
		{"the driver cannot ask for it", []router.Channel{{Name: "a", Upstream: &vendor{script: []any{"a"}, only: "b"}, Discovered: map[string]string{"a": "a", "b": "b"}}}, "a", "", "b"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRouter(t, router.Options{}, row.channels...)
			served := make(map[string]bool)
			for range 60 {
				if got, err := answer(t.Context(), r, call(t, `{"model":"`+row.model+`","messages":[]}`)); err == nil {
					served[got] = true
				}
			}
			var by []string
			for _, c := range row.channels {
				if served[c.Name] {
					by = append(by, c.Name)
				}
			}
			if got := strings.Join(by, " "); got != row.want {
				t.Errorf("%s is served by %q, want %q", row.model, got, row.want)
			}
			if got := strings.Join(r.Models(), " "); got != row.listed {
				t.Errorf("the models are %q, want %q", got, row.listed)
			}
		})
	}
}

// A list that changes makes a router of the same channels.
func TestAnotherListLeavesTheStateOfAChannelAlone(t *testing.T) {
	var d day
	o := d.options()
	v := plays(failed(500))
	channel := func(ids ...string) router.Channel {
		c := router.Channel{Name: "c", Upstream: v, Discovered: make(map[string]string)}
		for _, id := range ids {
			c.Discovered["c/"+id] = id
		}
		return c
	}
	o.Previous = newRouter(t, o, channel("m"), router.Channel{Name: "other", Upstream: plays("other"), Models: map[string]string{"x": "x"}})
	for range 3 {
		_, _ = answer(t.Context(), o.Previous, call(t, `{"model":"c/m","messages":[]}`))
	}
	if err := o.Previous.Pause("other"); err != nil {
		t.Fatal(err)
	}
	before := o.Previous.Channels()
	after := newRouter(t, o, channel("m", "n"), router.Channel{Name: "other", Upstream: plays("other"), Models: map[string]string{"x": "x"}}).Channels()
	if before[0].State != router.StateOpen || after[0].State != before[0].State || after[0].Requests != before[0].Requests || !after[0].Until.Equal(before[0].Until) || after[1].State != router.StatePaused {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if got := strings.Join(after[0].Models, " "); got != "c/m c/n" || !after[0].Discovers {
		t.Errorf("the models are %q", got)
	}
}
