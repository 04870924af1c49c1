package billing

// ring keeps the newest items in the order they were pushed and drops the
// oldest beyond limit. It grows as it fills. Items are numbered from 1.
type ring[T any] struct {
	limit  int
	items  []T
	pushed uint64 // how many ever were; the number of the newest
}

// push adds item and returns the one that it displaced, if any.
func (r *ring[T]) push(item T) (dropped T, full bool) {
	r.pushed++
	if len(r.items) < r.limit {
		r.items = append(r.items, item)
		return dropped, false
	}
	i := r.index(r.pushed)
	dropped, r.items[i] = r.items[i], item
	return dropped, true
}

// oldest is the number of the first item that is still kept.
func (r *ring[T]) oldest() uint64 { return r.pushed - uint64(len(r.items)) + 1 }

func (r *ring[T]) index(number uint64) int { return int((number - 1) % uint64(r.limit)) }

// all yields what is kept, oldest first.
func (r *ring[T]) all(yield func(number uint64, item T) bool) {
	for n := r.oldest(); n <= r.pushed; n++ {
		if !yield(n, r.items[r.index(n)]) {
			return
		}
	}
}
