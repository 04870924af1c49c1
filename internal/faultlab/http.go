package faultlab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
)

// httpFront is the gateway behind HTTP, on connections without a network. Its clients
// write and read them by hand, so that they can leave at any byte.
type httpFront struct {
	lab   *Lab
	conns chan net.Conn
	http  *http.Server
	once  sync.Once
	done  chan struct{}
}

func newHTTPFront(l *Lab) *httpFront {
	d := &httpFront{lab: l, conns: make(chan net.Conn), done: make(chan struct{})}
	d.http = &http.Server{Handler: d, ReadHeaderTimeout: time.Minute}
	go func() { _ = d.http.Serve(d) }() // it ends with close
	return d
}

func (d *httpFront) close() { _ = d.http.Close() }

// ServeHTTP hands a request to the gateway of the moment.
func (d *httpFront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.lab.turn.RLock()
	g := d.lab.gateway
	d.lab.turn.RUnlock()
	server.New(g, server.Options{}).ServeHTTP(w, r)
}

// Accept, Close and Addr make httpFront a net.Listener.
func (d *httpFront) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (d *httpFront) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

// Addr is of no use.
func (d *httpFront) Addr() net.Addr { return &net.UnixAddr{Name: "lab", Net: "pipe"} }

// Authenticate knows the payers by their tokens.
func (l *Lab) Authenticate(_ context.Context, token string) (*auth.Principal, error) {
	var n int
	if _, err := fmt.Sscanf(token, "sk-lab-%d", &n); err != nil || n < 0 || n >= payers {
		return nil, fault.New(fault.Unauthorized, "Nobody has this key.")
	}
	return l.principal(n), nil
}

// paths are where the operations are served.
var paths = map[upstream.Op]string{
	upstream.ChatCompletion: "/v1/chat/completions", upstream.Messages: "/v1/messages",
	upstream.GenerateImage: "/v1/images/generations", upstream.EditImage: "/v1/images/edits",
	upstream.Embeddings: "/v1/embeddings", upstream.Speech: "/v1/audio/speech",
	upstream.SubmitVideo: "/v1/videos/generations",
}

// tag is what a request is known by that comes over HTTP, where nobody can
// tell the gateway's id of it: its last word.
func tag(n int) string { return fmt.Sprintf("TAG%010d", n) }

// tagged is the run whose request has a tag, which is given the gateway's id.
func (l *Lab) tagged(call *upstream.Call) *Run {
	data, err := call.Body.Bytes()
	at := bytes.Index(data, []byte("TAG"))
	if err != nil || at < 0 || at+len(tag(0)) > len(data) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.tags[string(data[at:at+len(tag(0))])]
	if r != nil && r.ID == "" {
		r.ID = call.RequestID
		l.runs[r.ID] = r
	}
	return r
}

// send sends the run's request over a connection and reads the answer.
func (d *httpFront) send(r *Run, leave func()) error {
	d.lab.turn.RLock()
	r.generation = d.lab.generation
	d.lab.turn.RUnlock()
	here, there := net.Pipe()
	d.conns <- there
	defer func() { _ = here.Close() }() // it has ended, whatever it was
	c := r.Case
	script := c.Copies[r.Copy].Client
	if script.Leaves != Stays {
		timer := time.AfterFunc(script.At, func() {
			leave()
			_ = here.Close()
		})
		defer timer.Stop()
	}
	body, kind := c.Body(), "application/json"
	if c.Kind == Edit {
		body, kind = c.multipart()
	}
	text := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: lab\r\nAuthorization: Bearer sk-lab-%d\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		paths[c.Kind.op()], c.Payer, kind, len(body), body)
	if _, err := io.WriteString(here, text); err != nil {
		return err
	}
	reply, err := http.ReadResponse(bufio.NewReader(here), nil)
	if err != nil {
		return err
	}
	return r.readResponse(reply, d.lab.now())
}

// readResponse reads an answer to its end.
func (r *Run) readResponse(reply *http.Response, now time.Duration) error {
	r.mu.Lock()
	r.accepted = reply.StatusCode < 300
	if r.accepted { // the server reads as fast as it can
		r.reads, r.first = 1, r.began
	}
	r.mu.Unlock()
	var all []byte
	buf := make([]byte, 4096)
	for {
		n, err := reply.Body.Read(buf)
		all = append(all, buf[:n]...)
		r.mu.Lock()
		if r.accepted {
			r.got += n
		}
		r.mu.Unlock()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.body = all
	r.complete = r.accepted && (!r.Case.Stream || ended(string(all)))
	if r.accepted && !r.complete {
		return fmt.Errorf("the stream ended with an error event at %s", now)
	}
	if !r.accepted {
		return fault.New(fault.BadGateway, fmt.Sprintf("status %d: %s", reply.StatusCode, all))
	}
	return nil
}

// ended reports whether a stream has its terminator.
func ended(text string) bool {
	return strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Contains(text, `"type":"message_stop"`) || strings.Contains(text, ".completed")
}

// multipart is an edit's form as it is sent.
func (c *Case) multipart() (data []byte, kind string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	form := c.Form()
	for i := range form.Parts {
		p := &form.Parts[i]
		text, err := p.Text(p.Size)
		if err != nil {
			return nil, ""
		}
		part, err := w.CreateFormField(p.Name)
		if p.Filename != "" {
			part, err = w.CreateFormFile(p.Name, p.Filename)
		}
		if err != nil {
			return nil, ""
		}
		_, _ = io.WriteString(part, text) // a buffer takes everything
	}
	_ = w.Close() // so does its end
	return b.Bytes(), w.FormDataContentType()
}
