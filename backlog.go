package gateway

// Backlog is what a gateway has not brought to an end yet, beside the calls that
// [Gateway.Load] counts.
type Backlog struct {
	Streams  int // running calls whose answers stream
	Captures int // settlements that were not durable when their calls ended, and are tried again
	Steps    int // steps of videos that the store has not taken yet
	Tasks    int // open tasks of videos that Run looks after in this process
	Waiters  int // callers who wait for the end of a video, of VideoOptions.MaxWaiting
}

// Backlog tells what is open. It is safe for concurrent use.
func (g *Gateway) Backlog() Backlog {
	return Backlog{
		Streams: g.calls.open(), Captures: g.unsettled.len(), Steps: g.videos.pendingCount(), Tasks: int(g.videos.watched.Load()), Waiters: int(g.videos.waiting.Used()),
	}
}
