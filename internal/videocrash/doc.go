// Package videocrash kills processes that make videos, and has eight nodes
// quarrel about the same ones, to prove that no crash and no race makes a job
// twice, loses a task, charges wrongly or tells of an end under two ids.
//
// It is tests only:
//
//	go test ./internal/videocrash                             # 10 kills; 60 with TOLLHOUSE_LONG=1
//	TOLLHOUSE_LONG=1 go test ./internal/videocrash -run Kill -kills 1000 -timeout 1h
//	go test ./internal/videocrash -run Kill -seed 7 -artifacts # the rounds of a failure; keeps the databases
//	go test ./internal/videocrash -run xxx -bench . -benchtime 1x
package videocrash
