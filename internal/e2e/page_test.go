package e2e

import (
	"bytes"
	"regexp"
	"sync"
)

// page is what a process wrote, on which a test can wait.
type page struct {
	mu      sync.Mutex
	written sync.Cond
	text    bytes.Buffer
	closed  bool
}

func newPage() *page {
	p := new(page)
	p.written.L = &p.mu
	return p
}

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written.Broadcast()
	return p.text.Write(b)
}

// close says that nothing more comes.
func (p *page) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.written.Broadcast()
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// await waits until the page matches; nil if it was closed before.
func (p *page) await(re *regexp.Regexp) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if m := re.FindStringSubmatch(p.text.String()); m != nil {
			return m
		}
		if p.closed {
			return nil
		}
		p.written.Wait()
	}
}
