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
