package store

import (
	"testing"
	"time"
)

func TestATimeOfAProcessIsMeasuredByTheDatabasesClock(t *testing.T) {
	shared, alone := &DB{dialect: Dialect{Clock: "now"}}, &DB{}
	fixed := &DB{dialect: shared.dialect, options: Options{Now: time.Now}}
	for _, skew := range []time.Duration{-time.Hour, 0, 365 * 24 * time.Hour} {
		theirs := time.Now().Add(skew).UnixNano() // the database's now
		until := time.Now().Add(time.Minute)
		if off := time.Duration(shared.ledgerTime(until, theirs)-theirs) - time.Minute; off.Abs() > 10*time.Second {
			t.Errorf("skew %s: a minute is off by %s", skew, off)
		}
		if alone.ledgerTime(until, theirs) != until.UnixNano() || fixed.ledgerTime(until, theirs) != until.UnixNano() {
			t.Errorf("skew %s: the process's own time was changed", skew)
		}
		if shared.ledgerTime(time.Time{}, theirs) != 0 {
			t.Error("no time became one")
		}
		if far := shared.ledgerTime(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), theirs); far <= theirs {
			t.Errorf("a time far off became %d", far)
		}
	}
}
