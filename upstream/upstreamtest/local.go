package upstreamtest

import (
	"io"
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

var localChecks = []check{
	{"it answers", false, answers},
	{"it streams", true, answers},
	{"many callers at once", false, atOnce},
	{"a caller who has left gets no answer", false, callerLeft},
	{"a caller who leaves ends the answer", true, callerLeaves},
	{"an answer can be closed unread", true, closeUnread},
}

func answers(t *testing.T, h *Harness, c *upstream.Call, s *Sample) {
	ctx, _ := h.bounded(t)
	before, _ := c.Body.Bytes()
	reply, err := h.make(t, http.NotFoundHandler()).Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	data := whole(t, reply)
	if reply.Status < 200 || reply.Status > 299 || len(data) == 0 {
		t.Errorf("status %d, %d bytes", reply.Status, len(data))
	}
	if after, _ := c.Body.Bytes(); string(after) != string(before) || c.Model != s.Model {
		t.Error("the call was modified")
	}
	if s.Check != nil {
		s.Check(t, data)
	}
}

func callerLeft(t *testing.T, h *Harness, c *upstream.Call, _ *Sample) {
	ctx, cancel := h.bounded(t)
	cancel()
	reply, err := h.make(t, http.NotFoundHandler()).Do(ctx, c)
	if err == nil {
		_, err = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
	}
	if err == nil || fault.From(err).Code != fault.ClientGone {
		t.Errorf("error %v", err)
	}
}

func callerLeaves(t *testing.T, h *Harness, c *upstream.Call, _ *Sample) {
	ctx, cancel := h.bounded(t)
	reply, err := h.make(t, http.NotFoundHandler()).Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if _, err := reply.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = io.Copy(io.Discard, reply.Body) // returns, whatever was on its way
}

func closeUnread(t *testing.T, h *Harness, c *upstream.Call, _ *Sample) {
	ctx, _ := h.bounded(t)
	reply, err := h.make(t, http.NotFoundHandler()).Do(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := reply.Body.Close(); err != nil {
		t.Error(err)
	}
}
