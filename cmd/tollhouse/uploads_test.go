package main

import (
	"path/filepath"
	"testing"
)

func TestUploadsLieInTheDataDirectoryWhereThereIsNoOther(t *testing.T) {
	temporary, data := t.TempDir(), "data"
	if got := uploads(temporary, data); got != temporary {
		t.Errorf("%s, want %s", got, temporary)
	}
	if got := uploads(filepath.Join(temporary, "none"), data); got != data {
		t.Errorf("%s, want %s", got, data)
	}
}
