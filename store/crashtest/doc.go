// Package crashtest kills processes that have a ledger open, at named fault
// points and at random moments, and checks that the ledger has lost nothing,
// doubled nothing and left nothing open.
//
// It is tests only. A test starts its own binary again as a child that works on
// a database and says on a pipe what it is about to ask of the store, and what
// the store has acknowledged: the pipe is the client, and it outlives the
// child. The child ends itself by SIGKILL at a fault point, or the test ends it
// at a random moment. Then the test opens the database and compares every row
// with what the client was told.
//
//	go test ./store/crashtest                                    # some rounds; about 200 with TOLLHOUSE_LONG=1
//	TOLLHOUSE_LONG=1 go test ./store/crashtest -rounds 1000 -per-point 50 -timeout 2h
//	go test ./store/crashtest -seed 7 -artifacts                 # the rounds of a failure; keeps the files of SQLite
//
// A seed fixes what is asked for and where a process is to end; it does not fix
// how far its goroutines and the database have come by then.
//
// SIGKILL ends a process and not the machine: what the system has not yet put
// on the disk survives it. That a commit waits for the disk is not seen here.
package crashtest
