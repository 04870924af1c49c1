package faultlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// client plays the part of a run's client.
type client struct {
	lab *Lab
	r   *Run
	ctx context.Context
	end context.CancelFunc
}

// request is a client's whole request: from the connection to its end.
func (l *Lab) request(c *Case, copy int) {
	r := &Run{Case: c, Copy: copy, left: never, taken: never, began: l.now()}
	cl := &client{lab: l, r: r}
	cl.ctx, cl.end = context.WithCancel(auth.NewContext(context.Background(), l.principal(c.Payer)))
	defer cl.end()
	script := c.Copies[copy].Client
	if script.Leaves == Early {
		cl.leave()
	}
	if script.Leaves == AtTime {
		timer := time.AfterFunc(script.At, cl.leave)
		defer timer.Stop()
	}
	status := 200
	entry, err := l.begin(cl.ctx, r, script)
	if err == nil {
		wait(cl.ctx, script.Sends)
		err = cl.ask(entry)
	}
	r.mu.Lock()
	r.failed, r.ended = err, l.now()
	r.mu.Unlock()
	if f := fault.From(err); f != nil {
		status = f.HTTPStatus()
	}
	entry.End(status, err)
	entry.End(status, err) // it has one line all the same
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
func (cl *client) ask(entry *gateway.Entry) error {
	c := cl.r.Case
	q := &gateway.Request{Op: c.Kind.op(), IdempotencyKey: c.Key}
	if c.Kind == Edit {
		q.Form = c.Form()
	} else {
		q.Body = c.Body()
	}
	result, err := entry.Do(cl.ctx, q)
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
	cl.r.accepted, cl.r.answered = true, cl.lab.now()
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
	entry.Release()
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
		cl.consume(b)
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

// consume notes what came.
func (cl *client) consume(b []byte) {
	cl.r.mu.Lock()
	defer cl.r.mu.Unlock()
	cl.r.got += len(b)
	if cl.r.Case.Key != "" {
		cl.r.body = append(cl.r.body, b...)
	}
}

// expiry is the time that the lab's callers give a video of the gamma family, in
// seconds. It is the vendor's to obey.
const expiry = 3600

// Body is what the client sends; nil where that is a form.
func (c *Case) Body() []byte {
	model := traits[c.Kind].model
	rest := ""
	if c.Stream {
		rest += `,"stream":true`
	}
	switch {
	case c.Kind.op() == upstream.Responses:
		if c.MaxTokens > 0 {
			rest += fmt.Sprintf(`,"max_output_tokens":%d`, c.MaxTokens)
		}
		return fmt.Appendf(nil, `{"model":%q,"input":%q%s}`, model, c.Prompt, rest)
	case c.Kind.Talks():
		if c.MaxTokens > 0 {
			rest += fmt.Sprintf(`,"max_tokens":%d`, c.MaxTokens)
		}
		if c.ShowUsage && c.Stream && c.Kind.op() == upstream.ChatCompletion {
			rest += `,"stream_options":{"include_usage":true}`
		}
		return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, model, c.Prompt, rest)
	case c.Kind.Lists():
		texts := make([]string, c.Texts)
		for i := range texts {
			texts[i] = fmt.Sprintf("%q", c.textAt(i))
		}
		if c.Kind == Rank {
			return fmt.Appendf(nil, `{"model":%q,"query":"q","documents":[%s]}`, model, strings.Join(texts, ","))
		}
		return fmt.Appendf(nil, `{"model":%q,"input":[%s]}`, model, strings.Join(texts, ","))
	case c.Kind == Speech:
		return fmt.Appendf(nil, `{"model":%q,"input":%q,"voice":"alloy","instructions":"."}`, model, c.Prompt)
	case c.Kind == Beta:
		return fmt.Appendf(nil, `{"model":%q,"duration":%d,"resolution":"720p","input":{"prompt":%q}}`, model, c.Seconds, c.Prompt)
	case c.Kind == Gamma:
		return fmt.Appendf(nil, `{"model":%q,"duration":%d,"resolution":"480p","execution_expires_after":%d,"content":[{"type":"text","text":%q}]}`, model, c.Seconds, expiry, c.Prompt)
	case c.Kind == Edit:
		return nil
	}
	if c.Kind == Image {
		rest += `,"quality":"low","size":"1024x1024"`
	}
	if c.Partials > 0 {
		rest += fmt.Sprintf(`,"partial_images":%d`, c.Partials)
	}
	return fmt.Appendf(nil, `{"model":%q,"prompt":%q,"n":%d%s}`, model, c.Prompt, c.Pictures, rest)
}

// textAt is one of the texts that are embedded or ranked. It tells its place.
func (c *Case) textAt(i int) string { return fmt.Sprintf("t%02d %s", i, c.Prompt) }

// picture is a PNG of 16 by 16 points, as far as anybody looks at it.
const picture = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x00\x00\x00\x00\x3a\x98\xa0\xbd" +
	"\x00\x00\x00\x0cIDATx\x9cc`\xa0\x1c\x00\x00\x01\x10\x00\x01\x00\x00\x00\x00IEND\xaeB`\x82"

// Form is the form of an edit.
func (c *Case) Form() *upstream.Form {
	file := upstream.Field("image", picture)
	file.Filename = "a.png"
	parts := []upstream.Part{
		upstream.Field("model", traits[c.Kind].model), upstream.Field("prompt", c.Prompt),
		upstream.Field("quality", "low"), upstream.Field("size", "1024x1024"), file,
	}
	if c.Stream {
		parts = append(parts, upstream.Field("stream", "true"), upstream.Field("partial_images", fmt.Sprint(c.Partials)))
	}
	return upstream.NewForm(parts, nil)
}

// poll is what a vendor says of a video. Whatever goes wrong with a question
// decides nothing about the video.
func (v *vendor) poll(ctx context.Context, r *Run, call *upstream.Call) (*upstream.Reply, error) {
	s := newSource(r.Case.Seed^uint64(v.lab.now()), r.Case.Number)
	if !wait(ctx, s.span(time.Millisecond, time.Second)) {
		return nil, context.Cause(ctx)
	}
	text := v.videoStatus(r, call.TaskID)
	if !v.lab.healthy() && s.IntN(100) < r.Case.Video.Trouble {
		switch s.IntN(6) {
		case 0:
			return nil, (&upstream.Failure{Status: 500, Sent: true}).Fault()
		case 1:
			return nil, (&upstream.Failure{Status: 429, Sent: true, Refused: true}).Fault()
		case 2:
			<-ctx.Done()
			return nil, context.Cause(ctx)
		case 3:
			text = "<html>"
		case 4:
			return nil, errors.New(strings.Repeat("x", s.IntN(3)))
		default:
			text = text[:len(text)/2]
		}
	}
	return &upstream.Reply{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// videoStatus is a video's state in its vendor's form.
func (v *vendor) videoStatus(r *Run, id string) string {
	f := r.Case.Video
	r.mu.Lock()
	taken := r.taken
	r.mu.Unlock()
	word := "running"
	if f.End != "never" && taken != never && v.lab.now() >= taken+f.After {
		word = f.End
	}
	usage, content := "", ""
	if word == "succeeded" {
		content = `"video_url":"https://vendor.example/1.mp4"`
	}
	if r.Case.Kind == Gamma {
		if f.Tokens >= 0 {
			usage = fmt.Sprintf(`,"usage":{"completion_tokens":%d,"total_tokens":%d}`, f.Tokens, f.Tokens)
		}
		return fmt.Sprintf(`{"id":%q,"status":%q,"content":{%s}%s}`, id, word, content, usage)
	}
	if content != "" {
		content = "," + content
	}
	return fmt.Sprintf(`{"request_id":"r","output":{"task_id":%q,"task_status":%q%s}}`, id, strings.ToUpper(strings.Replace(word, "cancelled", "canceled", 1)), content)
}
