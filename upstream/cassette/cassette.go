// Package cassette records what an upstream answers in a file, and answers from the file later.
// A test runs against a vendor once, and then without a network and without a key.
//
//	recorder, err := cassette.Record(driver, "testdata/agent.jsonl") // once, with a key
//	player, err := cassette.Replay("testdata/agent.jsonl")           // ever after
//
// Both stand where a driver stands: as the Upstream of a channel, or of gateway.Options.
//
// The file has one line of JSON for each call: the request in a canonical form, then what came
// back. That is the answer byte for byte, with the events of streams, or the vendor's error. It can be read and edited.
// Headers of requests are never recorded, nor are a vendor's keys. Of the headers of answers
// only Content-Type is. Members of bodies with the name of a secret, such as "api_key" or
// "password", are masked. Members that name a user or a session (user, prompt_cache_key and the
// like) are left out, since the gateway replaces them by hashes.
package cassette

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Recorder passes calls on and records them. It is safe for concurrent use.
type Recorder struct {
	// Now is the clock of the pace of streams; nil means time.Now. Set it before the first call.
	Now func() time.Time

	next upstream.Upstream

	mu     sync.Mutex
	file   *os.File
	failed error // of the first entry that could not be written
}

// Record returns an upstream that asks next and records each call in a file, which is made anew
// with mode 0600. A call is recorded when its answer has been read, or closed. A call that ended
// with its own context is not. Close the Recorder.
func Record(next upstream.Upstream, file string) (*Recorder, error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cassette: %w", err)
	}
	r := &Recorder{next: next, file: f}
	first := &entry{Version: 1}
	if v, ok := upstream.As[upstream.Vendored](next); ok {
		first.Vendor = v.Vendor()
	}
	r.write(first)
	return r, nil
}

// Unwrap returns the upstream that is asked.
func (r *Recorder) Unwrap() upstream.Upstream { return r.next }

// Close closes the file. Its error is the first of all entries: with one, the file lacks some.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		if err := r.file.Close(); r.failed == nil {
			r.failed = err
		}
		r.file = nil
	}
	return r.failed
}

// Do asks the upstream. The call is recorded when the answer's body ends.
func (r *Recorder) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	e := &entry{Op: call.Op, Model: call.Model, Stream: call.Stream, Task: call.TaskID}
	var err error
	if e.Request, err = canonical(call.Body); err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request cannot be recorded.", err)
	}
	reply, err := r.next.Do(ctx, call)
	if err != nil {
		if ctx.Err() == nil {
			e.Error = problemOf(err)
			r.write(e)
		}
		return reply, err
	}
	e.Status, e.ContentType, e.Dropped = reply.Status, contentType(reply.Header), reply.Dropped
	now := r.Now
	if now == nil {
		now = time.Now
	}
	reply.Body = &recording{ReadCloser: reply.Body, ctx: ctx, recorder: r, entry: e, now: now, began: now()}
	return reply, nil
}

// write appends a line to the file.
func (r *Recorder) write(line *entry) {
	data, err := json.Marshal(line, asItStands())
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failed != nil:
		return
	case err == nil && r.file == nil:
		err = os.ErrClosed
	case err == nil:
		_, err = r.file.Write(append(data, '\n'))
	}
	if err != nil {
		r.failed = fmt.Errorf("cassette: %w", err)
	}
}

// recording is the body of an answer while it is read.
type recording struct {
	io.ReadCloser
	ctx      context.Context
	recorder *Recorder
	entry    *entry
	now      func() time.Time
	began    time.Time
	read     []byte
	times    []timed
	once     sync.Once
}

// timed says when the bytes up to one had come.
type timed struct {
	end   int
	after time.Duration
}

// Read records what it reads.
func (b *recording) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.read = append(b.read, p[:n]...)
		b.times = append(b.times, timed{len(b.read), b.now().Sub(b.began)})
	}
	if err != nil {
		b.end(err)
	}
	return n, err
}

// Close ends the recording, if its end was not read.
func (b *recording) Close() error {
	b.end(io.EOF)
	return b.ReadCloser.Close()
}

// end writes the entry, once.
func (b *recording) end(err error) {
	b.once.Do(func() {
		if !errors.Is(err, io.EOF) {
			if b.ctx.Err() != nil {
				return
			}
			b.entry.Break = problemOf(err)
		}
		b.entry.setBody(b.read, b.times)
		b.recorder.write(b.entry)
	})
}

// Player answers calls from a file. It is safe for concurrent use.
type Player struct {
	// Pace has a stream's events come as far apart as when they were recorded. Set it before
	// the first call. Without it they come at once.
	Pace bool

	file    string
	vendor  string
	mu      sync.Mutex
	entries []*entry
}

// Replay returns an upstream that answers from a file. A call gets the entry whose request is the
// same. Equal requests get their entries in order, and from then on the last one. A call without
// an entry is a 400, so no other channel is asked. It names the nearest entry, and the field in
// which the call differs from it.
func Replay(file string) (*Player, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cassette: %w", err)
	}
	p := &Player{file: file}
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	for {
		e := new(entry)
		err := json.UnmarshalDecode(d, e)
		switch {
		case err == io.EOF:
			return p, nil
		case err == nil && e.Version != 0:
			p.vendor = e.Vendor
			continue
		case err == nil:
			err = e.prepare()
		}
		if err != nil {
			return nil, fmt.Errorf("cassette: %s: entry %d: %w", file, len(p.entries)+1, err)
		}
		p.entries = append(p.entries, e)
	}
}

// Vendor is the recorded upstream's.
func (p *Player) Vendor() string { return p.vendor }

// conversations are the operations of which one can stand in for another.
var conversations = []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Responses}

// Supports reports whether op was recorded. It is true of every operation that nothing stands in
// for, so that a call without an entry says what it lacks.
func (p *Player) Supports(op upstream.Op, _ string) bool {
	if !slices.Contains(conversations, op) {
		return true
	}
	standsIn := false
	for _, e := range p.entries {
		if e.Op == op {
			return true
		}
		standsIn = standsIn || slices.Contains(conversations, e.Op)
	}
	return !standsIn
}

// Do answers by an entry.
func (p *Player) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault.From(err)
	}
	request, err := canonical(call.Body)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request cannot be compared with the recorded ones.", err)
	}
	asked := &entry{Op: call.Op, Model: call.Model, Stream: call.Stream, Task: call.TaskID, Request: request}
	e := p.find(asked)
	switch {
	case e == nil:
		return nil, p.miss(asked)
	case e.Error != nil:
		return nil, e.Error.fault()
	}
	header := make(http.Header)
	if e.ContentType != "" {
		header.Set("Content-Type", e.ContentType)
	}
	body := &playing{ctx: ctx, entry: e, closed: make(chan struct{})}
	if p.Pace {
		body.pace = e.Pace
	}
	return &upstream.Reply{Status: e.Status, Header: header, Body: body, Dropped: e.Dropped}, nil
}

// find is the entry of a call; nil if there is none.
func (p *Player) find(asked *entry) (last *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if !e.matches(asked) {
			continue
		}
		if last = e; !e.played {
			break
		}
	}
	if last != nil {
		last.played = true
	}
	return last
}

// playing is the body of a recorded answer. A Read gives at most one event.
type playing struct {
	ctx    context.Context
	entry  *entry
	pace   []int64
	next   int // event
	rest   []byte
	once   sync.Once
	closed chan struct{}
}

// Read gives the next bytes.
func (b *playing) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		if b.next == len(b.entry.pieces) {
			if b.entry.Break != nil {
				return 0, b.entry.Break.fault()
			}
			return 0, io.EOF
		}
		if err := b.wait(); err != nil {
			return 0, err
		}
		b.rest = b.entry.pieces[b.next]
		b.next++
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// wait waits for the next event's time.
func (b *playing) wait() error {
	if b.next >= len(b.pace) {
		return nil
	}
	t := time.NewTimer(time.Duration(b.pace[b.next]) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-b.closed:
		return os.ErrClosed
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// Close ends a Read that waits.
func (b *playing) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}
