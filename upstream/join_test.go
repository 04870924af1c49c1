package upstream

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

// oneWire is a driver of one operation that notes what it is asked.
type oneWire struct {
	op    Op
	asked *[]string
	name  string
	err   error // of Close
	fails error // of Do
}

func (d oneWire) Supports(op Op, _ string) bool { return op == d.op }

func (d oneWire) Do(_ context.Context, call *Call) (*Reply, error) {
	*d.asked = append(*d.asked, d.name+" "+string(call.Op))
	return nil, d.fails
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
	d := Join(listing{oneWire{ChatCompletion, &asked, "main", nil, nil}}, oneWire{Messages, &asked, "other", failed, nil})
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
	if _, ok := As[Lister](d); !ok {
		t.Error("the models of its main driver cannot be listed")
	}
}

// An address that has no messages must not take the chats of the same channel away.
func TestWhatTheSecondAddressDoesNotHaveIsA501(t *testing.T) {
	quoted := func(f *Failure) error {
		return f.Fault().With(func(e *fault.Error) { e.Body = []byte(`{"type":"error"}`) })
	}
	for name, row := range map[string]struct {
		err  error
		want int
	}{
		"no route":              {FromStatus(404).Fault(), 501},
		"no such method":        {FromStatus(405).Fault(), 501},
		"what the call names":   {quoted(FromStatus(404)), 404},
		"no such model":         {(&Failure{Status: 404, Sent: true, NoModel: true}).Fault(), 404},
		"another refusal":       {FromStatus(400).Fault(), 400},
		"a failure of a server": {FromStatus(500).Fault(), 500},
	} {
		d := Join(oneWire{ChatCompletion, new([]string), "main", nil, nil}, oneWire{Messages, new([]string), "other", nil, row.err})
		_, err := d.Do(t.Context(), &Call{Op: Messages})
		if f, _ := FailureOf(err); f.Status != row.want {
			t.Errorf("%s is %d, want %d", name, f.Status, row.want)
		}
	}
}
