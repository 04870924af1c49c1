package pgtest

import (
	"os"
	"runtime"
	"testing"
	"weak"
)

// started starts a server and keeps nothing but what stops it. It returns what
// the server's life hangs on, without being a reason for it to stay.
func started(t *testing.T) weak.Pointer[os.File] {
	t.Helper()
	s, err := Start()
	require(t, err)
	other := &Server{bin: s.bin, dir: s.dir, user: s.user}
	t.Cleanup(func() { _ = other.Stop("immediate") })
	return weak.Make(s.hold)
}

func TestAServerRunsOnWhereNothingButItsAddressIsKept(t *testing.T) {
	hold := started(t)
	runtime.GC()
	if hold.Value() == nil {
		t.Error("what ends the server was cleared from memory, and closed with that")
	}
}
