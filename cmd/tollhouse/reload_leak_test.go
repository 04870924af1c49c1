package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// connections counts those that a server has open.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (c *connections) note(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == http.StateClosed || s == http.StateHijacked {
		delete(c.open, conn)
		return
	}
	c.open[conn] = true
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Every reload has another key, and so other connections; each is used, the one
// before it while it is replaced.
func TestAThousandReloadsLeaveNoGoroutineAndNoConnectionBehind(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	l := newLocksmith(t)
	for i := range rounds + 1 {
		l.good[fmt.Sprint("vendor-key-", i)] = true
	}
	c := &connections{open: map[net.Conn]bool{}}
	s := httptest.NewUnstartedServer(l)
	s.Config.ConnState = c.note
	s.Start()
	t.Cleanup(s.Close)
	l.url = s.URL + "/v1"
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "vendor-key-0")
	i := start(t, acme, "--config", file(t, "store: 'memory:'\n"+locked(l.url, keys)), "--log-level", "error")
	cl := &adminCommand{p: &program{env: environment{}.lookup}, flags: adminFlags{admin: i.admin, data: i.data}}
	one := func(n int) {
		t.Helper()
		write(t, keys, fmt.Sprint("vendor-key-", n))
		var late sync.WaitGroup
		late.Go(func() { _ = calls(i, "m") }) // with the key before or with this one
		var answer map[string]string
		if err := cl.do(t.Context(), http.MethodPost, "/admin/v1/reload", nil, &answer); err != nil {
			t.Fatal(err)
		}
		if status := calls(i, "m"); status != 200 {
			t.Fatalf("after %d reloads a call got %d", n, status)
		}
		late.Wait()
	}
	one(1)
	before := runtime.NumGoroutine()
	for n := 2; n <= rounds; n++ {
		one(n)
	}
	began := time.Now()
	for runtime.NumGoroutine() > before+10 || c.count() > 4 {
		if time.Since(began) > time.Minute {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before; %d connections\n%s", runtime.NumGoroutine(), before, c.count(), buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
	t.Logf("%d goroutines before, %d after %d reloads; %d connections", before, runtime.NumGoroutine(), rounds, c.count())
}
