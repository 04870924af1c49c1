package all

import (
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestEachOperationHasACompleteSpec(t *testing.T) {
	for _, op := range upstream.Ops() {
		if op == upstream.PollVideo { // nobody calls it: it is of a task that was accepted
			continue
		}
		t.Run(string(op), func(t *testing.T) {
			s := Find(op)
			if s == nil {
				t.Fatal("there is none")
			}
			if s.Path == "" || len(s.Kinds) == 0 || (s.Parse == nil) == (s.ParseForm == nil) || len(s.Units) == 0 && s.StandIn == "" {
				t.Errorf("got %+v, want a path, kinds, units or a stand-in, and one of Parse and ParseForm", s)
			}
			if i := slices.IndexFunc(Specs(), func(other *operation.Spec) bool { return other != s && other.Path == s.Path }); i >= 0 {
				t.Errorf("got the path %s for %s too", s.Path, Specs()[i].Op)
			}
		})
	}
}

func TestEachSampleOfARequestIsValid(t *testing.T) {
	for _, s := range Specs() {
		models := []string{"m"}
		for _, m := range s.Demo {
			models = append(models, m.ID)
		}
		for _, model := range models {
			for _, members := range []func(string) string{s.Probe, s.Example} {
				if members == nil {
					continue
				}
				sample := members(model)
				r, err := s.Parse([]byte(`{"model":"` + model + `",` + sample + `}`))
				if err == nil {
					err = r.Check(&operation.Facts{}, nil, nil)
				}
				if err != nil {
					t.Errorf("%s, %s: %s: %v", s.Op, model, sample, err)
				}
			}
		}
	}
}
