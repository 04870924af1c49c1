package dashscope

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// pieces reads a stream of events up to the first audio, so that an error
// before it is an ordinary one, and returns the file that they make.
func (u *Upstream) pieces(ctx context.Context, body io.ReadCloser) (io.ReadCloser, error) {
	s := &pieces{u: u, ctx: ctx, body: body, events: sse.NewReader(body, 0)}
	link, err := s.begin()
	if err == nil && link == "" {
		return s, nil
	}
	_ = s.Close()
	if err != nil {
		return nil, err
	}
	return u.fetch(ctx, link)
}

// pieces is audio that comes as base64 in events.
type pieces struct {
	u      *Upstream
	ctx    context.Context
	body   io.ReadCloser
	events *sse.Reader
	ready  []byte
	done   bool
	err    error
}

// begin waits for the first audio. A stream that ends without any has a link.
func (s *pieces) begin() (link string, err error) {
	for {
		p, err := s.next()
		switch {
		case err != nil:
			return "", err
		case len(p.audio) > 0:
			s.ready, s.done = framed(p.audio), p.last
			return "", nil
		case p.last && p.link != "":
			return p.link, nil
		case p.last:
			return "", s.u.client.Malformed(http.StatusOK, errors.New("the answer has no audio"))
		}
	}
}

// next is the next event.
func (s *pieces) next() (piece, error) {
	event, err := s.events.Next()
	switch {
	case errors.Is(err, io.EOF):
		return piece{}, s.u.cut(s.ctx, io.ErrUnexpectedEOF)
	case err != nil:
		return piece{}, s.u.cut(s.ctx, err)
	case event.Name == "error":
		return piece{}, s.u.failed(event.Data, nil)
	}
	return s.u.piece(event.Data, nil)
}

// Read gives the audio as it comes. An end before the vendor says that it is
// done is an error.
func (s *pieces) Read(p []byte) (int, error) {
	for len(s.ready) == 0 {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.done:
			s.err = io.EOF
			continue
		}
		next, err := s.next()
		if err != nil {
			s.err = err
			continue
		}
		s.ready, s.done = next.audio, next.last
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// Close closes the vendor's answer.
func (s *pieces) Close() error { return s.body.Close() }

// fetch gets a file that the vendor put elsewhere. It lies in the vendor's own
// store, carries its right in its address, and gets no key.
func (u *Upstream) fetch(ctx context.Context, link string) (io.ReadCloser, error) {
	resp, err := u.client.Fetch(ctx, link)
	if err != nil {
		return nil, u.cut(ctx, err) // the vendor has done, and billed, its work
	}
	body, err := httpdo.Decoded(resp)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the audio cannot be fetched: status %d", resp.StatusCode)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, u.client.Malformed(http.StatusOK, err)
	}
	return body, nil
}
