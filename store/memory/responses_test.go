package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestResponsesInMemory(t *testing.T) {
	storetest.RunResponses(t, func(_ testing.TB, now func() time.Time) state.Store { return &memory.Responses{Now: now} })
}

func TestTheAccountThatHasMostOfTheMemoryLosesItsOldestResponses(t *testing.T) {
	m := &memory.Responses{MaxBytes: 100_000}
	keep := func(account string, i int) {
		r := state.Response{Account: account, ID: fmt.Sprint("resp_", i), Items: []string{fmt.Sprint("msg_", i)}, Expires: time.Now().Add(time.Hour), Body: make([]byte, 10_000)}
		must(t, m.Put(t.Context(), r))
	}
	keep("small", 0)
	for i := range 50 {
		keep("large", i)
	}
	for _, row := range []struct {
		account, id string
		want        bool
	}{{"small", "resp_0", true}, {"large", "resp_0", false}, {"large", "msg_0", false}, {"large", "resp_41", false}, {"large", "resp_42", true}, {"large", "msg_49", true}} {
		if got, err := m.Get(t.Context(), row.account, row.id); err != nil || (got != nil) != row.want {
			t.Errorf("%s of %s: got %v, %v", row.id, row.account, got, err)
		}
	}
	keep("small", 51)
	must(t, m.Put(t.Context(), state.Response{Account: "small", ID: "resp_huge", Expires: time.Now().Add(time.Hour), Body: make([]byte, 200_000)}))
	if got, err := m.Get(t.Context(), "small", "resp_huge"); err != nil || got != nil {
		t.Errorf("one that is larger than all may be is kept: %v, %v", got, err)
	}
}
