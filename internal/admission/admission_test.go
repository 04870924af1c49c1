package admission

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

const mib = 1 << 20

// refused reports whether an error is a refusal of a gateway that is full.
func refused(err error, message string) bool {
	f := fault.From(err)
	return f != nil && f.HTTPStatus() == 503 && f.RetryAfter == time.Second && f.Message == message+" Send the request again."
}

const (
	noMemory = "The gateway has no memory left for a body of this size."
	short    = "The gateway is short of memory and takes no new calls."
)

// Memory is short from 1,000 bytes on until it is below 938, and is looked at every 100 ms.
func TestNewCallsAreRefusedWhileMemoryIsShort(t *testing.T) {
	used, looks, now := int64(0), 0, time.Unix(1_700_000_000, 0)
	a := New(Options{MaxCalls: 9, Memory: 1000, InUse: func() int64 { looks++; return used }, Now: func() time.Time { return now }})
	enter := func() error {
		var s Slot
		err := a.Enter(t.Context(), keyOf("acme", "k"), 0, &s)
		a.Leave(&s)
		return err
	}
	if err := enter(); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		used  int64
		after time.Duration
		short bool
	}{
		{999, 100 * time.Millisecond, false},
		{1000, 99 * time.Millisecond, false}, // nobody has looked yet
		{1000, time.Millisecond, true},
		{938, 100 * time.Millisecond, true},
		{937, 99 * time.Millisecond, true},
		{937, time.Millisecond, false},
		{999, 100 * time.Millisecond, false},
	} {
		used, now = c.used, now.Add(c.after)
		if err := enter(); c.short != refused(err, short) || !c.short && err != nil || a.Load().Short != c.short {
			t.Errorf("row %d: %v, %+v", i, err, a.Load())
		}
	}
	if looks != 6 {
		t.Errorf("looked %d times", looks)
	}
	used, now = 1000, now.Add(time.Second)
	if err := enter(); !refused(err, short) {
		t.Errorf("got %v", err)
	}
	used, now = 0, now.Add(time.Second)
	if a.Load().Short {
		t.Error("memory is short still, as no call came")
	}
}

func TestLargeBodiesShareAPartOfTheMemory(t *testing.T) {
	for name, row := range map[string]struct{ memory, used, fits, not int64 }{ // one account has three quarters
		"a quarter":                     {400, 0, 75, 76},
		"64 MiB at the least":           {200, 0, 48, 49},
		"no more than what is left":     {400, 350, 37, 38},
		"nothing where nothing is left": {400, 400, 0, 1},
	} {
		a := New(Options{MaxCalls: 9, Memory: row.memory * mib, InUse: func() int64 { return min(row.used, row.memory-1) * mib }, Now: time.Now})
		var s Slot
		acme := keyOf("acme", "k")
		if err := a.Enter(t.Context(), acme, 0, &s); err != nil { // which looks at the memory
			t.Fatal(err)
		}
		if enter, reserve := a.Enter(t.Context(), acme, row.not*mib, &s), a.Reserve(acme, row.not*mib, &s); !refused(enter, noMemory) || !refused(reserve, noMemory) {
			t.Errorf("%s: %d MiB: %v and %v", name, row.not, enter, reserve)
		}
		if err := a.Enter(t.Context(), acme, 1<<40, &s); err != nil { // what never fits is not told to come back
			t.Errorf("%s: %v", name, err)
		}
		if enter, reserve := a.Enter(t.Context(), acme, row.fits*mib, &s), a.Reserve(acme, row.fits*mib, &s); enter != nil || reserve != nil || a.Load().Bodies != row.fits*mib || a.Load().Refused != 2 {
			t.Errorf("%s: %d MiB: %v and %v, %+v", name, row.fits, enter, reserve, a.Load())
		}
		for range 2 { // the second time does nothing
			a.Leave(&s)
		}
		if l := a.Load(); l.Bodies != 0 || l.Running != 0 {
			t.Errorf("%s: in the end %+v", name, l)
		}
	}
}

func TestLargeBodiesOfOneAccountLeaveRoomForThoseOfOthers(t *testing.T) {
	a := New(Options{MaxCalls: 99, Memory: 256 * mib, InUse: func() int64 { return 0 }, Now: time.Now})
	taken := 0
	for i := range 64 { // of 64 MiB, by several keys
		if a.Reserve(keyOf("alice", fmt.Sprint("k", i%3)), mib, new(Slot)) == nil {
			taken++
		}
	}
	if taken != 48 {
		t.Errorf("one account has %d MiB of 64, want 48", taken)
	}
	bob := keyOf("bob", "k")
	var s Slot
	if enter, reserve := a.Enter(t.Context(), bob, 3*mib/2, &s), a.Reserve(bob, 3*mib/2, &s); enter != nil || reserve != nil {
		t.Errorf("another account's body of 1.5 MiB: %v, %v", enter, reserve)
	}
}

func TestWithoutALimitOfMemoryNobodyLooksAndNothingIsWeighed(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	o := Options{InUse: func() int64 { t.Error("somebody looked"); return math.MaxInt64 }, Now: time.Now}
	o.SetDefaults()
	a, acme := New(o), keyOf("acme", "k")
	var s Slot
	if enter, reserve := a.Enter(t.Context(), acme, 1<<60, &s), a.Reserve(acme, 1<<60, &s); enter != nil || reserve != nil || a.Answers().Limited() {
		t.Errorf("%v, %v", enter, reserve)
	}
}

// Otherwise two that each have a part, and need more, would wait for each other.
func TestLargeAnswersWaitForMemoryAndTheOldestNeverDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{MaxCalls: 9, Memory: 256 * mib, InUse: func() int64 { return 0 }, Now: time.Now}) // 64 MiB for answers
		budget, waited := a.Answers(), make(chan error, 2)
		var all [3]Reservation
		var slots [3]Slot
		for i := range all { // each begins
			if err := budget.Reserve(t.Context(), &all[i], mib); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			go func() { waited <- budget.Reserve(t.Context(), &all[i+1], 63*mib) }()
			synctest.Wait()
		}
		if err := budget.Reserve(t.Context(), &all[0], 200*mib); err != nil || len(waited) != 0 || a.Load().Answers != 203*mib {
			t.Errorf("the oldest: %v, %d others go on, %+v", err, len(waited), a.Load())
		}
		for i := range all { // the next is the oldest then
			budget.Finish(&all[i], 0, &slots[i])
			synctest.Wait()
			if len(waited) != min(i+1, 2) {
				t.Errorf("%d go on after %d have ended", len(waited), i+1)
			}
		}
		if l := a.Load(); l.Answers != 0 {
			t.Errorf("in the end %+v", l)
		}
	})
}

// Its client may be as slow as it likes.
func TestAnAnswerThatWasReadIsInNobodysWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{MaxCalls: 9, Memory: 256 * mib, InUse: func() int64 { return 0 }, Now: time.Now})
		var first, second, third Reservation
		var slot, other Slot
		budget := a.Answers()
		if err := budget.Reserve(t.Context(), &first, 40*mib); err != nil {
			t.Fatal(err)
		}
		budget.Finish(&first, 30*mib, &slot) // which it keeps
		if err := budget.Reserve(t.Context(), &second, 60*mib); err != nil || a.Load().Answers != 90*mib {
			t.Errorf("the next: %v, %+v", err, a.Load())
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if err := budget.Reserve(ctx, &third, mib); err == nil {
			t.Error("an answer that nobody reads any more waits for memory")
		}
		budget.Finish(&third, 0, &other)
		budget.Finish(&second, 0, &other)
		a.Leave(&slot)
		if l := a.Load(); l.Answers != 0 {
			t.Errorf("in the end %+v", l)
		}
	})
}

func TestWhatADriverKeepsCountsUntilItIsReleased(t *testing.T) {
	a := New(Options{MaxCalls: 9, Memory: 256 * mib, InUse: func() int64 { return 0 }, Now: time.Now})
	release, err := a.Answers().Reserver()(t.Context(), 2*mib)
	if got := a.Load().Answers; err != nil || got != 2*mib {
		t.Fatalf("%d bytes are reserved, %v", got, err)
	}
	if release(); a.Load().Answers != 0 {
		t.Errorf("%+v is left", a.Load())
	}
	var free Budget
	if free.Reserver() != nil {
		t.Error("without a bound something is reserved")
	}
}
