package upstream

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// oneWire is a driver of one operation that notes what it is asked.
type oneWire struct {
	op    Op
	asked *[]string
	name  string
	err   error // of Close
}

func (d oneWire) Supports(op Op, _ string) bool { return op == d.op }

func (d oneWire) Do(_ context.Context, call *Call) (*Reply, error) {
	*d.asked = append(*d.asked, d.name+" "+string(call.Op))
	return nil, nil
}

func (d oneWire) Close() error {
	*d.asked = append(*d.asked, d.name+" close")
	return d.err
}

// listing is a driver that lists its models.
type listing struct{ oneWire }

func (listing) ListModels(context.Context) (*ModelList, error) { return nil, ErrNoList }

func TestEachCallOfAJoinedDriverGoesToTheOneThatSpeaksItsWire(t *testing.T) {
	var asked []string
	failed := errors.New("not closed")
	d := Join(listing{oneWire{ChatCompletion, &asked, "main", nil}}, oneWire{Messages, &asked, "other", failed})
	for _, op := range []Op{ChatCompletion, Messages, Responses} {
		_, _ = d.Do(t.Context(), &Call{Op: op})
	}
	if err := d.Close(); !errors.Is(err, failed) {
		t.Errorf("the error of closing is %v, want %v", err, failed)
	}
	want := []string{"main chat", "other messages", "main responses", "main close", "other close"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	for op, want := range map[Op]bool{ChatCompletion: true, Messages: true, Responses: false} {
		if got := Supports(d, op, "m"); got != want {
			t.Errorf("it supports %s: %v, want %v", op, got, want)
		}
	}
	if _, ok := ListerOf(d); !ok {
		t.Error("it does not list the models of its main driver")
	}
}
