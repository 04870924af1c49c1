package main

import (
	"path/filepath"
	"testing"

	"github.com/tollhouse-ai/gateway/store"
)

// Else the gateway would not keep a task and its answer in the transaction in
// which the money moves.
func TestInADatabaseMoneyTasksAndAnswersAreOneStore(t *testing.T) {
	s, err := openStorage(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "b.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	if any(s.ledger) != any(s.tasks) || any(s.ledger) != any(s.idempotency) {
		t.Errorf("the ledger is %T, the tasks are in %T and the answers in %T", s.ledger, s.tasks, s.idempotency)
	}
}

func TestAnAddressOfEveryInterfaceIsReachedOnThisMachine(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", ":80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80", "[::]:80": "127.0.0.1:80",
		"[::1]:80": "[::1]:80", "host.example:80": "host.example:80", "nothing": "nothing",
	} {
		if got := dialable(address); got != want {
			t.Errorf("%s is reached at %s, not %s", address, got, want)
		}
	}
}
