package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestADatabaseThatOthersCouldOpenIsClosedToThem(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	i := start(t, environment{"OPENAI_API_KEY": "sk-x"})
	i.stop()
	db := filepath.Join(i.data, "tollhouse.db")
	for name, mode := range map[string]fs.FileMode{db: 0o644, i.data: 0o777} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	i = again(t, i, environment{"OPENAI_API_KEY": "sk-x"})
	if info, err := os.Stat(db); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if log := i.stderr.String(); !strings.Contains(log, "database file was readable by others") {
		t.Errorf("the log is %s", log)
	}
	if page := i.stdout.String(); strings.Count(page, "others can write to the directory") != 1 || strings.Contains(page, "others can open") {
		t.Errorf("the banner is\n%s", page)
	}
}

func TestAFileThatCannotBeClosedToOthersIsTold(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	path := filepath.Join(t.TempDir(), "a b.db")
	write(t, path, "")
	write(t, path+"-wal", "")
	if err := os.Chmod(path+"-wal", 0o640); err != nil {
		t.Fatal(err)
	}
	for name, chmod := range map[string]func(string, fs.FileMode) error{
		"refused": func(string, fs.FileMode) error { return fs.ErrPermission },
		"ignored": func(string, fs.FileMode) error { return nil },
	} {
		closed, open := restrictAccess(path, chmod)
		if len(closed) != 0 || len(open) != 1 || !strings.Contains(open[0], "chmod 600 '"+path+"-wal'") {
			t.Errorf("%s: %q, %q", name, closed, open)
		}
	}
	if closed, open := restrictAccess(path, os.Chmod); len(closed) != 1 || len(open) != 0 {
		t.Errorf("%q, %q", closed, open)
	}
}
