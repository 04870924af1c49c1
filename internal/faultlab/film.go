package faultlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// poll is what a vendor says of a video. Whatever goes wrong with a question
// decides nothing about the video.
func (v *vendor) poll(ctx context.Context, r *Run, call *upstream.Call) (*upstream.Reply, error) {
	s := newSource(r.Case.Seed^uint64(v.stage.now()), r.Case.Number)
	if !wait(ctx, s.span(time.Millisecond, time.Second)) {
		return nil, context.Cause(ctx)
	}
	text := v.film(r, call.TaskID)
	if !v.stage.healthy() && s.IntN(100) < r.Case.Film.Trouble {
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

// film is a video's state in its vendor's form.
func (v *vendor) film(r *Run, id string) string {
	f := r.Case.Film
	r.mu.Lock()
	taken := r.taken
	r.mu.Unlock()
	word := "running"
	if f.End != "never" && taken != never && v.stage.now() >= taken+f.After {
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
