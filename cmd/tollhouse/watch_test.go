package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// watched reads a configuration of which it gives the watch.
func watched(t *testing.T, name string) *fileWatcher {
	t.Helper()
	_, seen, err := readConfig(name, acme.lookup)
	if err != nil {
		t.Fatal(err)
	}
	w := new(fileWatcher)
	w.setRead(seen)
	return w
}

// A file that is truncated first and written a moment later is loaded once, and
// as a whole: what has just changed is left alone until the next look.
func TestAFileThatIsBeingWrittenIsWaitedFor(t *testing.T) {
	name := file(t, planted("old-model"))
	w := watched(t, name)
	whole := planted("new-model") + strings.Repeat("# what else there is to say\n", 1000)
	for _, part := range []int{0, 20, len(planted("new-model")), len(whole) / 2, len(whole)} {
		write(t, name, whole[:part])
		if w.changed() {
			t.Errorf("it was to be read with %d of %d bytes written", part, len(whole))
		}
	}
	if !w.changed() {
		t.Error("it was not to be read when it was written")
	}
	_, seen, _ := readConfig(name, acme.lookup)
	w.setRead(seen)
	for range 3 {
		if w.changed() {
			t.Error("it was to be read twice")
		}
	}
}

func TestAChangeIsSeenByItsSizeItsTimeOrItsFile(t *testing.T) {
	for what, change := range map[string]func(name string) error{
		"size": func(name string) error { return os.WriteFile(name, []byte(planted("longer")), 0o600) },
		"time": func(name string) error { return os.Chtimes(name, time.Time{}, time.Unix(1, 0)) },
		"file": func(name string) error {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(name+".new", data, 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(name+".new", time.Time{}, info.ModTime()); err != nil {
				return err
			}
			return os.Rename(name+".new", name)
		},
		"nothing":    func(string) error { return nil },
		"absence":    os.Remove,
		"key, new":   func(name string) error { return os.WriteFile(name+".keys", []byte("new"), 0o600) },
		"key, gone":  func(name string) error { return os.Remove(name + ".keys") },
		"key, other": func(name string) error { return os.WriteFile(name+".other", []byte("new"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "c.yaml")
			write(t, name+".keys", "key-1")
			write(t, name, strings.Replace(planted("m"), "driver: sim", "driver: openai, keys: [{file: '"+name+".keys'}]", 1))
			w := watched(t, name)
			if err := change(name); err != nil {
				t.Fatal(err)
			}
			w.changed()
			want := what != "nothing" && what != "absence" && what != "key, gone" && what != "key, other"
			if got := w.changed(); got != want {
				t.Errorf("seen: %v", got)
			}
		})
	}
}

func TestWithoutAFileThereIsNothingToWatch(t *testing.T) {
	w := new(fileWatcher)
	for range 3 {
		if w.changed() {
			t.Error("something changed")
		}
	}
}
