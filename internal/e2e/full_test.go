//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOnAFullDiskCallsGetOnly503AndServiceReturnsWhenThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("NOT TESTED, a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	v := newVendor(t)
	store := "sqlite:" + filepath.Join(dir, "books.db")
	p := newPlace(t, settings{store: store, vendor: v.url, credit: "25"}.text())
	n := p.start(t)
	c, w := newCrowd(t, 20), newWitness()
	stop := w.load(c, 6, func(int) *node { return n }, mixed)
	until(t, patience, "a hundred good answers", func() bool { return w.whole() >= 100 })

	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	until(t, patience, "the disk is full", func() bool {
		return c.chat(n, request{text: "is there room", max: 1, key: "sk-nobody-0123456789abcdef"}).status != 0 && c.get(n, "/readyz", "").status == 503
	})
	asked := v.asked("is there room")
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < time.Second {
		c.chat(n, request{text: "is there room", max: 1}).unavailable(t, "a chat on a full disk")
		<-tick.C
	}
	if now := v.asked("is there room"); now != asked {
		t.Errorf("the vendor was asked %d times on a full disk", now-asked)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	took := until(t, patience, "service returns", func() bool {
		q := request{text: "there is room", max: 1}
		a := c.chat(n, q)
		w.note(q, a)
		return a.whole()
	})
	t.Logf("served again %s after there was room", took)
	stop()
	b := openBooks(t, store)
	w.agrees(t, b)
	n.sound()
	_ = b.db.Close() // before the file system goes
	n.kill()
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := strings.Repeat("x", 4096); ; {
		if _, err := f.WriteString(block); err != nil {
			return
		}
	}
}
