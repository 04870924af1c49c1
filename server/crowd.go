package server

// crowd is how many requests may be answered at once before it matters how much
// stack each takes.
const crowd = 1024

// serveInCrowd does what serve and end do, with as little stack as may be. A
// goroutine keeps what it once needed, which is 8 KiB or more for a call, 4 for a
// stream that only waits. So all but waiting for the upstream's next event is
// done on goroutines that end.
func (x *exchange) serveInCrowd() {
	streams := false
	apart(func() {
		x.err = x.serve()
		if streams = x.stream != nil && x.stream.source != nil; !streams {
			x.end()
		}
	})
	if !streams {
		return
	}
	for x.err == nil && !x.stream.over {
		if x.err = x.stream.await(); x.err == nil {
			apart(func() { x.err = x.stream.next() })
		}
	}
	apart(func() {
		x.stream.close()
		x.end()
	})
}

// apart runs f on a goroutine of its own, and waits for its end. A panic is the
// caller's.
func apart(f func()) {
	ended := make(chan any)
	go func() {
		defer func() { ended <- recover() }()
		f()
	}()
	if p := <-ended; p != nil {
		panic(p)
	}
}
