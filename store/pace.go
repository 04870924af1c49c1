package store

import "time"

const (
	paceBatch = 64  // operations in a batch that tells what one of many costs
	paceFloor = 128 // operations that may always wait
	keyedPart = 2   // of a keyed request's patience its claim may wait for 1/keyedPart: its hold waits too
)

// throughput is how fast the database takes operations. With it a request that could
// not begin in time is refused at once: it would only make the others late, and
// what is done for callers who have left has to be undone.
type throughput struct {
	maxWait time.Duration // of the caller of a hold
	perOp   time.Duration // of an operation in a large batch; 0 before there was one
	running int           // operations in the batch that is being committed
}

// record notes a batch. A small one, which mostly waits for the disk, does not
// tell how slow a large one would be, but it may tell that the database is faster
// than it was.
func (p *throughput) record(ops int, took time.Duration) {
	if ops == 0 {
		return
	}
	each := took / time.Duration(ops)
	switch {
	case p.perOp == 0 && ops >= paceBatch:
		p.perOp = each
	case ops >= paceBatch || each < p.perOp:
		p.perOp = (3*p.perOp + each) / 4
	}
}

// tooSlow reports whether an operation that joins a queue could not be done within
// 1/part of the patience. A quarter of that is left for its own batch.
func (p *throughput) tooSlow(queued, part int) bool {
	return queued >= paceFloor && time.Duration(queued+p.running)*p.perOp > p.maxWait/time.Duration(part)*3/4
}

// overloaded reports whether a request with an idempotency key must not begin.
func (c *committer) overloaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full(keyedPart)
}

// batchTime is how long a batch of ops takes, at most half of the patience: then it
// has to be tried.
func (p *throughput) batchTime(ops int) time.Duration {
	return min(time.Duration(ops)*p.perOp, p.maxWait/2)
}
