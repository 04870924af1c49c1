package faultlab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

// client plays the part of a run's client.
type client struct {
	lab *Lab
	r   *Run
	ctx context.Context
	end context.CancelFunc
}

// visit is a client's whole visit: from the connection to its end.
func (l *Lab) visit(c *Case, copy int) {
	r := &Run{Case: c, Copy: copy, left: never, taken: never, began: l.now()}
	cl := &client{lab: l, r: r}
	cl.ctx, cl.end = context.WithCancel(auth.NewContext(context.Background(), l.principal(c.Payer)))
	defer cl.end()
	script := c.Copies[copy].Client
	if script.Leaves == Early {
		cl.leave()
	}
	if script.Leaves == AtTime && l.door == nil {
		timer := time.AfterFunc(script.At, cl.leave)
		defer timer.Stop()
	}
	if l.door != nil {
		cl.knock()
		return
	}
	x := l.begin(r)
	x.IdempotencyKey = c.Key
	status, err := 200, x.Authenticate(cl.ctx, "")
	if err == nil {
		wait(cl.ctx, script.Sends)
		err = cl.ask(x)
	}
	r.mu.Lock()
	r.failed, r.ended = err, l.now()
	r.mu.Unlock()
	if f := fault.From(err); f != nil {
		status = f.HTTPStatus()
	}
	x.End(cl.ctx, status, err)
	x.End(cl.ctx, status, err) // it has one line all the same
}

// knock comes in by the door.
func (cl *client) knock() {
	l, r := cl.lab, cl.r
	l.mu.Lock()
	l.all = append(l.all, r)
	l.tags[tag(r.Case.Number)] = r
	l.mu.Unlock()
	err := l.door.knock(r, cl.leave)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed, r.ended = err, l.now()
}

// leave notes that the client has gone, and cuts its connection.
func (cl *client) leave() {
	cl.r.mu.Lock()
	if cl.r.left == never {
		cl.r.left = cl.lab.now()
	}
	cl.r.mu.Unlock()
	cl.end()
}

// ask sends the request and takes the answer.
func (cl *client) ask(x *gateway.Exchange) error {
	c := cl.r.Case
	var silence func([]byte)
	if c.Copies[cl.r.Copy].Client.Beats {
		silence = func([]byte) {}
	}
	var result *gateway.Result
	var err error
	if form := c.Kind == Edit; form {
		result, err = x.CallForm(cl.ctx, c.Kind.op(), c.Form(), silence)
	} else {
		result, err = x.Call(cl.ctx, c.Kind.op(), c.Body(), silence)
	}
	switch {
	case err != nil:
		return err
	case result.Replayed:
		cl.r.mu.Lock()
		defer cl.r.mu.Unlock()
		cl.r.replayed, cl.r.original, cl.r.body = true, result.Header.Get("X-Request-Id"), result.Body
		return nil
	}
	cl.r.mu.Lock()
	cl.r.accepted = true
	cl.r.mu.Unlock()
	switch {
	case result.Stream != nil:
		return cl.read(result.Stream)
	case result.Audio != nil:
		return cl.read(result.Audio)
	}
	cl.r.mu.Lock()
	defer cl.r.mu.Unlock()
	cl.r.complete, cl.r.got, cl.r.body = true, len(result.Body), bytes.Clone(result.Body)
	result.Release()
	return nil
}

// reading is an answer that comes by and by.
type reading interface {
	Next() ([]byte, error)
	Close() error
	Err() error
}

// read reads an answer as the script says.
func (cl *client) read(answer reading) error {
	script := cl.r.Case.Copies[cl.r.Copy].Client
	for {
		if script.Slow > 0 {
			wait(cl.ctx, script.Slow)
		}
		cl.r.mu.Lock()
		gone := cl.r.left != never
		if !gone && script.Leaves == Closing && cl.r.reads >= script.Reads {
			gone = true
			if answer.Err() == nil { // else it was told that there is no more
				cl.r.left = cl.lab.now()
			}
		}
		if !gone {
			if cl.r.reads++; cl.r.reads == 1 {
				cl.r.first = cl.lab.now()
			}
		}
		cl.r.mu.Unlock()
		if gone {
			break
		}
		b, err := answer.Next()
		cl.take(b)
		if errors.Is(err, io.EOF) {
			cl.r.mu.Lock()
			cl.r.complete = answer.Err() == nil
			cl.r.mu.Unlock()
			break
		}
		if err != nil {
			break
		}
	}
	if err := answer.Close(); err != nil {
		return err
	}
	return answer.Err()
}

// take notes what came.
func (cl *client) take(b []byte) {
	cl.r.mu.Lock()
	defer cl.r.mu.Unlock()
	cl.r.got += len(b)
	if cl.r.Case.Key != "" {
		cl.r.body = append(cl.r.body, b...)
	}
}
