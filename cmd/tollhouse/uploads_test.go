package main

import (
	"path/filepath"
	"testing"
)

func TestUploadsLieInTheDataDirectoryWhereThereIsNoOther(t *testing.T) {
	temporary, data := t.TempDir(), "data"
	if got := uploadDir(temporary, data); got != temporary {
		t.Errorf("%s, want %s", got, temporary)
	}
	if got := uploadDir(filepath.Join(temporary, "none"), data); got != data {
		t.Errorf("%s, want %s", got, data)
	}
}
