package main

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// look is how files were at one moment, by path; nil for one that was not there.
type fileStates map[string]fs.FileInfo

// readConfig reads and checks a configuration file. seen are the file and the
// files of keys that it names, each as it was before it was read. The error is
// a *config.Error where the file can be read.
func readConfig(name string, env config.Env) (c *config.Config, seen fileStates, err error) {
	seen = fileStates{}
	if seen[name], err = os.Stat(name); err != nil {
		seen[name] = nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, seen, err // "open NAME: no such file or directory"
	}
	c, err = config.Read(name, data, env)
	var refused *config.Error
	switch {
	case errors.As(err, &refused):
		seen.add(refused.KeyFiles)
	case err == nil:
		seen.add(c.KeyFiles)
	}
	return c, seen, err
}

func (l fileStates) add(files []config.KeyFile) {
	for _, f := range files {
		l[f.Path] = f.Info
	}
}

// again looks at the same files. One that is away for a moment, as while it is
// being replaced, is taken to be as it was.
func (l fileStates) restat() fileStates {
	now := make(fileStates, len(l))
	for path, before := range l {
		info, err := os.Stat(path)
		if err != nil {
			info = before
		}
		now[path] = info
	}
	return now
}

func (l fileStates) same(other fileStates) bool {
	for path, a := range l {
		b := other[path]
		switch {
		case a == nil && b == nil:
		case a == nil || b == nil:
			return false
		case a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || !os.SameFile(a, b):
			return false
		}
	}
	return len(l) == len(other)
}

// watch notices that a file was changed. It is safe for concurrent use.
type fileWatcher struct {
	mu   sync.Mutex
	read fileStates // the files as they were read; none where there is nothing to watch
	last fileStates // as they were at the last call of changed
}

// changed reports whether a file is another than the one that was read. A file
// that changed since the last call may still be being written, and waits for
// the next.
func (w *fileWatcher) changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.read.restat()
	settled := now.same(w.last)
	w.last = now
	return settled && !now.same(w.read)
}

// loaded says how the files were when they were read, refused or not.
func (w *fileWatcher) setRead(seen fileStates) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = seen
}
