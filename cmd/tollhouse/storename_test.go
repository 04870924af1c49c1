package main

import (
	"errors"
	"testing"
)

func TestTheNameOfAStoreTellsDatabasesApartWithoutTheirPasswords(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:hunter2@h/db":                        "postgres://u@h:5432/db",
		"postgresql://u:hunter2@h:5432/db?sslmode=disable": "postgres://u@h:5432/db",
		"postgres://u@h/db?password=hunter2":               "postgres://u@h:5432/db",
		"postgres://u@h:5433/db":                           "postgres://u@h:5433/db",
		"postgres://u@h/other":                             "postgres://u@h:5432/other",
		"postgres://u@[::1]/db":                            "postgres://u@[::1]:5432/db",
		"postgres:///db?user=u&host=/sock":                 "postgres://u@/db?host=%2Fsock&port=5432",
		"postgres:///db?user=u&host=/other":                "postgres://u@/db?host=%2Fother&port=5432",
		"postgres://u@h/db?search_path=s":                  "postgres://u@h:5432/db?search_path=s",
		"postgres://u@a:1,b:2/db":                          "postgres://u@/db?host=a%2Cb&port=1%2C2",
		"postgres://u:hunter2@h:port/db":                   "postgres:",
		"memory:":                                          "memory:",
		"sqlite:/a/../b.db":                                "sqlite:/b.db",
	} {
		if got := storeName(address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}

func TestWhatADatabaseSaidTwiceIsToldOnce(t *testing.T) {
	e := &storeError{"x", errors.New("failed:\n\ta: refused\n\ta:  refused\n\tb: refused")}
	if got := e.Error(); got != "the store x cannot be opened: failed: a: refused b: refused" {
		t.Error(got)
	}
}
