package faultlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// wireVendor is the vendor that plays the same scripts at the other end of a real
// driver: behind a raw connection, on which it says what no HTTP server would.
// Videos it leaves to the vendor without a wire.
type wireVendor struct{ vendor }

// Do makes a driver of its own for the attempt, so that the connection belongs to it.
func (w *wireVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Op == upstream.PollVideo || call.Op == upstream.SubmitVideo {
		return w.vendor.Do(ctx, call)
	}
	r := w.lab.find(call.RequestID)
	if r == nil {
		return nil, fmt.Errorf("nobody knows the request %q", call.RequestID)
	}
	part, err := partOf(r.Case, call)
	if err != nil {
		return nil, err
	}
	p := r.begin(part, call, w.lab)
	context.AfterFunc(ctx, func() { p.drops(w.lab.now()) })
	up, err := w.driver(call.Op, p)
	if err != nil {
		return nil, err
	}
	reply, err := up.Do(ctx, call)
	if err != nil {
		return nil, errors.Join(err, up.Close())
	}
	told := *reply
	told.Body = &ending{reply.Body, up}
	return &told, nil
}

// ending closes the driver with its answer.
type ending struct {
	io.ReadCloser
	driver io.Closer
}

// Close lets go of the answer and of the connection.
func (e *ending) Close() error { return errors.Join(e.ReadCloser.Close(), e.driver.Close()) }

func (w *wireVendor) driver(op upstream.Op, p *attempt) (upstream.Driver, error) {
	const base = "http://vendor.example/v1"
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx, p) }
	if op == upstream.Messages {
		return anthropic.New(upstream.DriverOptions{BaseURL: base, Dial: dial})
	}
	return openai.New(upstream.DriverOptions{BaseURL: base, Dial: dial, Wire: []upstream.Op{upstream.ChatCompletion, upstream.Responses}})
}

// dial connects the driver with the script.
func (w *wireVendor) dial(ctx context.Context, p *attempt) (net.Conn, error) {
	if !wait(ctx, p.plan.Connect) {
		return nil, ctx.Err()
	}
	if p.plan.Trouble == Unreachable {
		p.ends(w.lab.now(), false)
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	go w.serve(there, p)
	return here, nil
}

// serve plays the script on a connection.
func (w *wireVendor) serve(conn net.Conn, p *attempt) {
	defer func() { _ = conn.Close() }() // how it ends is up to the script
	in := bufio.NewReader(conn)
	request, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.sent = true // some of it is there
	p.mu.Unlock()
	if _, err := io.Copy(io.Discard, request.Body); err != nil {
		return
	}
	gone := make(chan struct{})
	go func() { // whoever cancels closes the connection
		defer close(gone)
		_, _ = in.ReadByte()
	}()
	if w.head(conn, p, gone) {
		w.pieces(conn, p, gone)
	}
	_ = conn.Close()
	<-gone
}

// until waits; false if the other side has closed before.
func until(gone <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-gone:
		return false
	}
}

// head says what comes before the answer's body; false if none comes.
func (w *wireVendor) head(conn io.Writer, p *attempt, gone <-chan struct{}) bool {
	t := p.plan
	if t.Trouble == Silent {
		<-gone
		return false
	}
	if !until(gone, t.Wait) {
		return false
	}
	text := ""
	switch t.Trouble {
	case Refuses, Fails, Rejects, Disowns:
		again := ""
		if t.Again > 0 {
			again = fmt.Sprintf("Retry-After: %d\r\n", t.Again/time.Second)
		}
		const no = `{"error":{"message":"The vendor says no.","type":"x","code":"no"}}`
		text = fmt.Sprintf("HTTP/1.1 %d No\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nSet-Cookie: a=b\r\n\r\n%s", t.Status, again, len(no), no)
		p.mu.Lock()
		p.refused = t.Trouble == Refuses || t.Trouble == Disowns
		p.mu.Unlock()
	case Panics, Vague:
		text = "\x16\x03\x01\x00what is this\r\n\r\n"
	case Nothing, Pretends:
		text = "HTTP/1.1 200 OK\r\nContent-Le"
	}
	if text != "" {
		p.ends(w.lab.now(), false)
		_, _ = io.WriteString(conn, text) // whoever does not read it has gone
		return false
	}
	encoding := ""
	if t.Trouble == Garbage {
		encoding = "Content-Encoding: gzip\r\n"
	}
	_, err := fmt.Fprintf(conn, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Fine\r\nContent-Type: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n", p.script.kind, encoding)
	return err == nil
}

// pieces sends the body, a chunk for each piece, and ends it as the script says.
func (w *wireVendor) pieces(conn io.Writer, p *attempt, gone <-chan struct{}) {
	s := p.script
	start, at := time.Now(), 0
	for i, end := range s.cuts {
		end = min(end, s.end)
		if at >= end {
			break
		}
		if !until(gone, time.Duration(i)*p.plan.Answer.Gap-time.Since(start)) {
			return
		}
		p.mu.Lock()
		p.given = end // before it is sent: whoever reads it may be compared at once
		p.mu.Unlock()
		if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", end-at, s.data[at:end]); err != nil {
			return
		}
		at = end
	}
	switch p.plan.Trouble {
	case Breaks:
		p.ends(w.lab.now(), false)
	case Bursts:
		p.ends(w.lab.now(), false)
		_, _ = io.WriteString(conn, "zz\r\nno chunk") // whoever does not read it has gone
	case Stalls, Lingers:
		<-gone
	default:
		p.ends(w.lab.now(), true)
		_, _ = io.WriteString(conn, "0\r\n\r\n")
	}
}
