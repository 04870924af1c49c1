package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load is one kind of request.
type load struct {
	name     string // of the -only flag
	title    string
	post     post
	count    int // per round
	latency  int // requests one after the other, whose latency is measured
	durable  bool
	protocol string // of the vendor, see startVendors
}

// post is what is sent, and to which path. native, if it is not nil, is what the floor is
// sent, which does not translate.
type post struct {
	path, body string
	native     *post
	keys       *atomic.Uint64 // counts the requests, each with an Idempotency-Key of its own; nil for none
}

// to is what is sent to a server.
func (p post) to(server *process) post {
	if p.native != nil && server.role == "floor" {
		return *p.native
	}
	return p
}

// contentType is the body's: a form begins with its boundary.
func (p post) contentType() string {
	if strings.HasPrefix(p.body, "--B\r\n") {
		return "multipart/form-data; boundary=B"
	}
	return "application/json"
}

func chat(body string) post { return post{path: "/v1/chat/completions", body: body} }

// keyed is a chat that may be sent again without being charged again.
func keyed(body string) post {
	p := chat(body)
	p.keys = new(atomic.Uint64)
	return p
}

// message is chat's body in Anthropic's wire, to a vendor that speaks it too.
func message(body string) post {
	return post{path: "/v1/messages", body: strings.NewReplacer(`"gate-1"`, `"gate-2"`, `"role":"system"`, `"role":"user"`).Replace(body)}
}

// response is chat's body in OpenAI's wire for responses, to a vendor that speaks it too.
func response(body string) post {
	return post{path: "/v1/responses", body: strings.NewReplacer(`"gate-1"`, `"gate-3"`, `"messages"`, `"input"`, `"max_tokens"`, `"max_output_tokens"`).Replace(body)}
}

// bridged is the same to a vendor that speaks chat only, which the floor is sent.
func bridged(body string) post {
	p, native := response(body), chat(body)
	return post{path: p.path, body: strings.Replace(p.body, `"gate-3"`, `"gate-1"`, 1), native: &native}
}

// texts asks for the embeddings of so many texts.
func texts(count int) post {
	list := strings.Repeat(`,"A cart with two horses and one passenger arrives at a quarter past four."`, count)[1:]
	return post{path: "/v1/embeddings", body: `{"model":"gate-1","input":[` + list + `]}`}
}

// edit asks for a changed picture, of a file of so many bytes that is a picture
// as far as anybody looks.
func edit(size int) post {
	const (
		part   = "--B\r\nContent-Disposition: form-data; name="
		header = "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x00\x00\x00\x00\x3a\x98\xa0\xbd"
		end    = "\x00\x00\x00\x00IEND\xaeB`\x82"
	)
	noise := make([]byte, size-len(header)-len(end))
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	return post{path: "/v1/images/edits", body: part + "model\r\n\r\ngate-1\r\n" + part + "prompt\r\n\r\nPaint the gate red.\r\n" +
		part + "image; filename=gate.png\r\nContent-Type: image/png\r\n\r\n" + header + string(noise) + end + "\r\n--B--\r\n"}
}

// cases are the rows of the table.
func cases(o options) []load {
	const head = `"model":"gate-1","max_tokens":200,"temperature":0.5,"messages":[` +
		`{"role":"system","content":"You keep the gate of a toll road. Answer in one sentence, with the amount first, and never give change."},`
	const user = `{"role":"user","content":"`
	const question = `A cart with two horses and one passenger arrives at a quarter past four. The driver says that he was here in the morning, ` +
		`that he paid for both ways, and that he lost the ticket in the rain. What does he pay now?"}]}`
	small := "{" + head + user + question
	large := "{" + head + user + strings.Repeat("The road was wet and the wheels were loud. ", 64<<10/43) + question
	stream := `{"stream":true,` + head + user + question
	full := `{"stream":true,` + head + user + "Spare nothing. " + question
	slow := `{"stream":true,` + head + user + "Speak slowly. " + question
	n := func(count int) int { return max(int(float64(count)*o.scale), 1) }
	return []load{
		{"small", "small chat", chat(small), n(4000), n(1500), false, ""},
		{"durable", "small chat, ledger on SQLite", chat(small), n(4000), n(600), true, ""},
		{"keyed", "the same with an Idempotency-Key", keyed(small), n(4000), n(600), true, ""},
		{"large", "64 KiB chat", chat(large), n(2000), n(800), false, ""},
		{"embeddings", "embeddings of 64 texts", texts(64), n(1000), n(400), false, ""},
		{"edit", "image edit of 10 MiB", edit(10 << 20), n(60), n(30), false, ""},
		{"stream", "stream of 100 chunks", chat(stream), n(600), n(300), false, ""},
		{"full", "the same, with all that OpenAI sends in a chunk", chat(full), n(600), n(300), false, ""},
		{"slow", "the same, a chunk each " + o.every.String(), chat(slow), max(n(64), o.workers), 0, false, ""},
		{"message", "small message, native", message(small), n(4000), n(1500), false, ""},
		{"messages", "message as a stream of 100 deltas", message(stream), n(600), n(300), false, ""},
		{"response", "small response, native", response(small), n(4000), n(600), false, ""},
		{"responses", "response as a stream of 100 deltas", response(stream), n(600), n(100), false, ""},
		{"bridged", "the same, of a vendor of chat", bridged(stream), n(600), n(100), false, ""},
		{"tls", "small chat, vendor with TLS", chat(small), n(4000), n(1500), false, "http/1.1"},
		{"tlsstream", "stream of 100 chunks, vendor with TLS", chat(stream), n(600), n(300), false, "http/1.1"},
		{"h2", "small chat, vendor with HTTP/2", chat(small), n(4000), n(1500), false, "h2"},
		{"h2stream", "stream of 100 chunks, vendor with HTTP/2", chat(stream), n(600), n(300), false, "h2"},
	}
}

// client keeps one connection to a server and has one request on it at a time.
// It is not http.Client, so that the load takes little of the machine.
type client struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	key     []byte // the part of request that is the Idempotency-Key
	keys    *atomic.Uint64
}

const keyLength = 20

func dial(ctx context.Context, p *process, what post) (*client, error) {
	what = what.to(p)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	head := "POST " + what.path + " HTTP/1.1\r\nHost: " + p.address +
		"\r\nContent-Type: " + what.contentType() + "\r\nAuthorization: Bearer " + p.key + "\r\nContent-Length: " + strconv.Itoa(len(what.body)) + "\r\n"
	c := &client{conn: conn, keys: what.keys, in: bufio.NewReaderSize(conn, 16<<10)}
	if c.keys != nil {
		head += "Idempotency-Key: " + strings.Repeat("0", keyLength) + "\r\n"
	}
	c.request = []byte(head + "\r\n" + what.body)
	if c.keys != nil {
		c.key = c.request[len(head)-keyLength-2:][:keyLength]
	}
	return c, nil
}

// send sends the request and returns the answer up to its headers.
func (c *client) send() (*http.Response, error) {
	if c.keys != nil {
		copy(c.key, fmt.Sprintf("%0*d", keyLength, c.keys.Add(1)))
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(resp.Body)
		return nil, errors.Join(fmt.Errorf("status %d: %s", resp.StatusCode, text), err)
	}
	return resp, nil
}

// do sends the request and reads the answer to its end.
func (c *client) do() error {
	resp, err := c.send()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// fire has so many workers send count requests in all, as fast as they are
// answered.
func fire(ctx context.Context, p *process, what post, workers, count int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left atomic.Int64
	left.Store(int64(count))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			c, err := dial(ctx, p, what)
			if err != nil {
				cancel(err)
				return
			}
			defer func() { _ = c.conn.Close() }()
			defer context.AfterFunc(ctx, func() { _ = c.conn.Close() })()
			for left.Add(-1) >= 0 {
				if err := c.do(); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// latencies are those of count requests one after the other, sorted.
func latencies(ctx context.Context, p *process, what post, count int) ([]time.Duration, error) {
	c, err := dial(ctx, p, what)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.conn.Close() })()
	all := make([]time.Duration, count)
	for i := range all {
		began := time.Now()
		if err := c.do(); err != nil {
			return nil, err
		}
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all, nil
}
