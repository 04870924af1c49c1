package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// locksmith is a vendor that takes some keys and no others.
type locksmith struct {
	url  string
	mu   sync.Mutex
	good map[string]bool
	seen map[string]int // calls by key
	hold chan struct{}  // where not nil, answers wait until it is closed
	came chan struct{}  // gets one for each call that waits
}

func newLocksmith(t *testing.T, keys ...string) *locksmith {
	t.Helper()
	l := &locksmith{seen: map[string]int{}, came: make(chan struct{}, 10)}
	l.take(keys...)
	s := httptest.NewServer(l)
	t.Cleanup(s.Close)
	l.url = s.URL + "/v1"
	return l
}

// take says which keys are good from now on.
func (l *locksmith) take(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.good = map[string]bool{}
	for _, k := range keys {
		l.good[k] = true
	}
}

// calls is how often a key was used since the last time that it was asked.
func (l *locksmith) calls(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer delete(l.seen, key)
	return l.seen[key]
}

// ServeHTTP implements http.Handler.
func (l *locksmith) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	l.mu.Lock()
	l.seen[key]++
	good, hold := l.good[key], l.hold
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !good {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s","code":"invalid_api_key"}}`, key)
		return
	}
	if hold != nil {
		l.came <- struct{}{}
		<-hold
	}
	_, _ = w.Write([]byte(strings.Replace(vendorAnswer, "kimi-k3", "m", 1)))
}

// locked is a file whose one channel has its keys in a file.
func locked(base, keys string) string {
	return fmt.Sprintf(`billing: count
channels:
  - {name: main, driver: openai, base_url: "%s", keys: [{file: %s}], models: {m: m}}
accounts:
  - {name: acme, keys: [{env: ACME_KEY}]}
`, base, keys)
}

// look has the server look twice at its files, as it does in two seconds.
func (i *instance) look() {
	for range 3 { // the third is taken when the second was dealt with
		i.ticks <- time.Time{}
	}
}

func TestAKeyIsRotatedWithoutARestart(t *testing.T) {
	l := newLocksmith(t, "old-key-0123456789")
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "old-key-0123456789\n")
	i := start(t, acme, "--config", file(t, locked(l.url, keys)))
	ask := func(n int) {
		t.Helper()
		for range n {
			if status := calls(i, "m"); status != 200 {
				t.Errorf("a call got %d", status)
			}
		}
	}
	ask(2)
	// Both are good: both are used.
	l.take("old-key-0123456789", "new-key-0123456789")
	write(t, keys, "new-key-0123456789\nold-key-0123456789\n")
	i.look()
	l.calls("old-key-0123456789")
	ask(6)
	if a, b := l.calls("old-key-0123456789"), l.calls("new-key-0123456789"); a != 3 || b != 3 {
		t.Errorf("with both in the file the old one was used %d times, the new one %d times", a, b)
	}
	// The old one is revoked before it is out of the file: nobody notices.
	l.take("new-key-0123456789")
	began := time.Now()
	ask(10)
	most := 4 + int(time.Since(began)/time.Second) // it is tried again after each rest, of a second or more
	if n := l.calls("old-key-0123456789"); n > most {
		t.Errorf("a key that is refused was used %d times, not %d at the most", n, most)
	}
	write(t, keys, "new-key-0123456789\n")
	i.look()
	ask(4)
	if a := l.calls("old-key-0123456789"); a != 0 {
		t.Errorf("a key that is not in the file any more was used %d times", a)
	}
	i.stop()
	if log := i.stderr.String(); strings.Contains(log, "old-key") || strings.Contains(log, "new-key") {
		t.Errorf("a key is in the log:\n%s", log)
	}
}

func TestACallEndsWithTheKeyThatItBeganWith(t *testing.T) {
	l := newLocksmith(t, "old-key-0123456789", "new-key-0123456789")
	l.hold = make(chan struct{})
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "old-key-0123456789")
	i := start(t, acme, "--config", file(t, locked(l.url, keys)))
	status := make(chan int)
	ask := func() { status <- calls(i, "m") }
	go ask()
	<-l.came
	write(t, keys, "new-key-0123456789")
	i.look()
	go ask()
	<-l.came
	close(l.hold)
	if a, b := <-status, <-status; a != 200 || b != 200 {
		t.Errorf("the calls got %d and %d", a, b)
	}
	if a, b := l.calls("old-key-0123456789"), l.calls("new-key-0123456789"); a != 1 || b != 1 {
		t.Errorf("the old key was used %d times, the new one %d times", a, b)
	}
}

func TestAFileOfKeysThatCannotBeUsedIsRefusedAndTheOldKeysStay(t *testing.T) {
	l := newLocksmith(t, "old-key-0123456789", "new-key-0123456789")
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "old-key-0123456789")
	name := file(t, locked(l.url, keys))
	i := start(t, acme, "--config", name)
	write(t, keys, "")
	i.look()
	if want := name + ":3:"; i.stderr.await("the old one stays in force") == nil || !strings.Contains(i.stderr.String(), want) || !strings.Contains(i.stderr.String(), "the file is empty") {
		t.Errorf("the log does not tell %q:\n%s", want, i.stderr)
	}
	if status := calls(i, "m"); status != 200 || l.calls("old-key-0123456789") != 1 {
		t.Errorf("with an empty file a call got %d", status)
	}
	i.look()
	if n := strings.Count(i.stderr.String(), "the old one stays in force"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
	// One that is away is being replaced: it is waited for.
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	i.look()
	write(t, keys, "new-key-0123456789")
	i.look()
	if status := calls(i, "m"); status != 200 || l.calls("new-key-0123456789") != 1 {
		t.Errorf("when it is mended a call got %d:\n%s", status, i.stderr)
	}
}

// A configuration that is refused for its file of keys is loaded when that is
// there, though nobody touches the configuration again.
func TestAFileOfKeysThatComesLaterIsNoticed(t *testing.T) {
	l := newLocksmith(t, "new-key-0123456789")
	name := file(t, planted("m"))
	i := start(t, acme, "--config", name)
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, name, strings.Replace(planted("m"), "driver: sim", "driver: openai, base_url: '"+l.url+"', keys: [{file: "+keys+"}]", 1))
	i.look()
	if i.stderr.await("the file cannot be read: no such file or directory") == nil {
		t.Fatal(i.stderr)
	}
	write(t, keys, "new-key-0123456789")
	i.look()
	if status := calls(i, "m"); status != 200 || l.calls("new-key-0123456789") != 1 {
		t.Errorf("a call got %d:\n%s", status, i.stderr)
	}
}
