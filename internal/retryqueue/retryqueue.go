// Package retryqueue tries things again that failed, after waits that grow, in
// bounded memory.
package retryqueue

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Backoff gives the waits between attempts: each is twice as long as the one before,
// up to Most. It is used by one goroutine.
type Backoff struct {
	First, Most time.Duration
	// Rand returns a number from 0 to n-1. It makes a wait up to a quarter shorter, so that
	// items that failed together are not retried together. nil means exact waits.
	Rand func(n int64) int64
	last time.Duration
}

// Next is the wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.First), b.Most)
	if quarter := int64(b.last / 4); b.Rand != nil && quarter > 0 {
		return b.last - time.Duration(b.Rand(quarter))
	}
	return b.last
}

// Reset has the next wait be the first again: an attempt succeeded.
func (b *Backoff) Reset() { b.last = 0 }

// Options bound a Queue. All of them are needed.
type Options struct {
	Size    int     // items that wait at one time, those included that are being tried
	AtOnce  int     // attempts at one time
	Backoff Backoff // the waits of each key, which has a copy of its own
}

// Queue holds items until an attempt at them succeeds. Items of one key are tried one after
// the other, and different keys at the same time. So a failing key does not delay the others.
// It is safe for concurrent use.
type Queue[T any] struct {
	options Options
	try     func(ctx context.Context, item T, tries int) error

	mu    sync.Mutex
	keys  map[string][]entry[T] // only those that have items
	size  int
	start func(key string) // begins the attempts of a key; nil while Run does not run
}

type entry[T any] struct {
	item  T
	tries int // that failed
}

// New makes a queue. try gets an item and how many attempts of it have failed here.
// With an error it is tried again; nil ends it, also where it is given up.
func New[T any](o Options, try func(ctx context.Context, item T, tries int) error) *Queue[T] {
	return &Queue[T]{options: o, try: try, keys: make(map[string][]entry[T])}
}

// Add leaves an item to Run; false if the queue is full.
func (q *Queue[T]) Add(key string, item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size >= q.options.Size {
		return false
	}
	q.size++
	before := q.keys[key]
	q.keys[key] = append(before, entry[T]{item: item})
	if len(before) == 0 && q.start != nil {
		q.start(key)
	}
	return true
}

// Len is how many items wait, those included that are being tried.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// Run tries the items until ctx ends, and returns when no attempt runs any more. What
// is left then stays. Only one Run or Drain may be active at a time.
func (q *Queue[T]) Run(ctx context.Context) {
	slots := make(chan struct{}, q.options.AtOnce)
	var running sync.WaitGroup
	begin := func(key string) { running.Go(func() { q.runKey(ctx, key, slots) }) }
	q.mu.Lock()
	q.start = begin
	for key := range q.keys {
		begin(key)
	}
	q.mu.Unlock()
	<-ctx.Done()
	q.mu.Lock()
	q.start = nil
	q.mu.Unlock()
	running.Wait()
}

// Drain tries each item once more, without waits, for at most that time. It is for a shutdown,
// after Run, whose ctx it takes.
func (q *Queue[T]) Drain(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	q.mu.Lock()
	keys := maps.Clone(q.keys)
	q.mu.Unlock()
	slots := make(chan struct{}, q.options.AtOnce)
	var running sync.WaitGroup
	defer running.Wait()
	for key, items := range keys {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		running.Go(func() {
			defer func() { <-slots }()
			for range items {
				if ctx.Err() != nil {
					return
				}
				q.tryFirst(ctx, key)
			}
		})
	}
}

// runKey tries what one key has until nothing is left or ctx ends.
func (q *Queue[T]) runKey(ctx context.Context, key string, slots chan struct{}) {
	wait := q.options.Backoff
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		failed, more := q.tryFirst(ctx, key)
		<-slots
		switch {
		case !more:
			return
		case !failed:
			wait.Reset()
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Next()):
		}
	}
}

// tryFirst tries the first item of a key. A failed item goes to the end, so that it does not
// stop the others of its key.
func (q *Queue[T]) tryFirst(ctx context.Context, key string) (failed, more bool) {
	q.mu.Lock()
	first := q.keys[key][0]
	q.mu.Unlock()
	failed = q.try(ctx, first.item, first.tries) != nil
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.keys[key]
	items[0] = entry[T]{} // or what it refers to would stay in memory
	items = items[1:]
	if failed {
		first.tries++
		items = append(items, first)
	} else {
		q.size--
	}
	if len(items) == 0 {
		delete(q.keys, key)
		return failed, false
	}
	q.keys[key] = items
	return failed, true
}
