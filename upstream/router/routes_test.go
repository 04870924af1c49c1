package router_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestAChannelPassesIDsThroughWithoutTheirBeginning(t *testing.T) {
	every := plays("every")
	groq := plays("groq")
	channels := []router.Channel{
		{Name: "every", Upstream: every, Models: map[string]string{"*": "*", "mine": "theirs"}},
		{Name: "groq", Upstream: groq, Priority: -1, Models: map[string]string{"groq/*": "*", "groq/fast/*": "*", "quick": "llama"}},
	}
	for _, row := range []struct{ model, channel, id string }{
		{"groq/llama", "groq", "llama"},
		{"groq/groq/compound", "groq", "groq/compound"},
		{"groq/fast/llama", "groq", "llama"},
		{"quick", "groq", "llama"},
		{"llama", "every", "llama"},
		{"groq/", "every", "groq/"},
		{"groqx", "every", "groqx"},
		{"mine", "every", "theirs"},
	} {
		t.Run(row.model, func(t *testing.T) {
			r := newRouter(t, router.Options{}, channels...)
			got, err := answer(t.Context(), r, call(t, `{"model":"`+row.model+`","messages":[]}`))
			if err != nil || got != row.channel {
				t.Fatalf("the channel is %q, error %v, want %s", got, err, row.channel)
			}
			v := map[string]*vendor{"every": every, "groq": groq}[row.channel]
			sent := v.calls[len(v.calls)-1]
			body, _, err := sent.Body.Open()
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(body)
			if want := `{"model":"` + row.id + `","messages":[]}`; sent.Model != row.id || string(data) != want {
				t.Errorf("the vendor got the model %s in %s, want %s", sent.Model, data, want)
			}
		})
	}
	r := newRouter(t, router.Options{}, channels[1])
	if got := strings.Join(r.Models(), " "); got != "quick" {
		t.Errorf("the models that are named are %s", got)
	}
	if r.Serves("llama") || r.Serves("groq/") || !r.Serves("groq/llama") {
		t.Error("a beginning is not needed, or is enough")
	}
}

// noModel is a vendor's refusal of a model, as drivers make it.
func noModel(status int) error {
	f := &upstream.Failure{Status: status, Sent: true, NoModel: true}
	return f.Fault()
}

func TestAModelThatAVendorDoesNotHaveIsInCooldownThereAndNothingElse(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	both := map[string]string{"a": "a", "b": "b"}
	first, second := plays(noModel(404), "first"), plays("second")
	r := newRouter(t, router.Options{Now: func() time.Time { return now }},
		router.Channel{Name: "first", Upstream: first, Models: both}, router.Channel{Name: "second", Upstream: second, Models: both, Priority: 1})
	for _, step := range []struct {
		name, model, want string
		after             time.Duration
	}{
		{"the other channel has it", "a", "second", 0},
		{"and is asked at once from then on", "a", "second", 0},
		{"other models stay where they are", "b", "first", 0},
		{"it is tried again a minute later", "a", "first", time.Minute},
	} {
		now = now.Add(step.after)
		got, err := answer(t.Context(), r, call(t, `{"model":"`+step.model+`","messages":[]}`))
		if err != nil || got != step.want {
			t.Errorf("%s: %q, error %v, want %s", step.name, got, err, step.want)
		}
	}
	if got := first.asked(); got != 3 {
		t.Errorf("the first channel was asked %d times, want 3", got)
	}
}

func TestTheOnlyChannelOfAModelIsAskedForItWhateverItSaid(t *testing.T) {
	v := plays(noModel(404), noModel(404), "it is there now")
	r := newRouter(t, router.Options{}, router.Channel{Name: "c", Upstream: v, Models: map[string]string{"a": "a"}})
	c := call(t, `{"model":"a","messages":[]}`)
	for range 2 {
		if _, err := answer(t.Context(), r, c); fault.From(err).HTTPStatus() != 404 {
			t.Errorf("got %v", err)
		}
	}
	if got, err := answer(t.Context(), r, c); err != nil || got != "it is there now" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Made-up models must not use up what is there for retries, nor memory.
func TestAModelThatNobodyNamesIsAskedForOnce(t *testing.T) {
	first, second := plays(noModel(404)), plays("second")
	r := newRouter(t, router.Options{}, every("first", first, 0), every("second", second, 1))
	if _, err := answer(t.Context(), r, call(t, hello)); fault.From(err).HTTPStatus() != 404 || second.asked() != 0 {
		t.Errorf("got %v, and the second channel was asked %d times", err, second.asked())
	}
	if info := r.Channels()[0]; info.State != router.StateClosed || info.Failures != 0 {
		t.Errorf("%+v", info)
	}
}

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
