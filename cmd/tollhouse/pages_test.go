package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

func TestListsHaveAllPages(t *testing.T) {
	const many = 1001 // one more than a page has
	data := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(data, "tollhouse.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { // the store makes many at once
			if err := db.CreateAccount(t.Context(), fmt.Sprint("a", i), 0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var keys []auth.Key
	for i := range many {
		name := fmt.Sprint("a", i)
		keys = append(keys, auth.Key{ID: "key_" + name, Account: name, Hash: auth.HashOf(name)})
	}
	if err := db.Replace(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"account", "key"} {
		r := tollhouse(t, nil, kind, "list", "--json", "--admin", adminOff, "--data", data)
		var got listing[struct{ Account string }]
		if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != exitOK {
			t.Fatalf("%s: %+v, %v", kind, r, err)
		}
		names := map[string]bool{}
		for _, row := range got.Data {
			names[row.Account] = true
		}
		if len(got.Data) != many || len(names) != many || got.HasMore {
			t.Errorf("%s: %d rows, %d of them different, more: %t; want %d", kind, len(got.Data), len(names), got.HasMore, many)
		}
	}
}
