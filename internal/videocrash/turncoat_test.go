//go:build unix

package videocrash

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/upstream"
)

// turncoat is a vendor that repeats its last word, or says another one: every
// second video has succeeded for one who asks, and failed for the next.
type turncoat struct {
	mu     sync.Mutex
	jobs   map[string]int // by prompt, how many
	asked  map[string]int // by id, how often
	ended  int            // last words
	second int            // last words about a video that had one
}

var promptOf = regexp.MustCompile(`"prompt":"(\d+)"`)

func (v *turncoat) Do(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if call.Op == upstream.SubmitVideo {
		data, err := call.Body.Bytes()
		if err != nil {
			return nil, err
		}
		n := promptOf.FindStringSubmatch(string(data))[1]
		v.jobs[n]++
		return reply(`{"request_id":"r","output":{"task_id":"up-%s","task_status":"PENDING"}}`, n), nil
	}
	n := v.asked[call.TaskID]
	v.asked[call.TaskID]++
	if n > 1 {
		v.ended++
	}
	if n > 2 {
		v.second++
	}
	odd := strings.ContainsAny(call.TaskID[len(call.TaskID)-1:], "13579")
	switch {
	case n < 2:
		return reply(`{"request_id":"r","output":{"task_id":%q,"task_status":"RUNNING"}}`, call.TaskID), nil
	case n%2 == 1 && odd:
		return reply(`{"request_id":"r","output":{"task_id":%q,"task_status":"FAILED","code":"InternalError","message":"no"}}`, call.TaskID), nil
	}
	return reply(`{"request_id":"r","output":{"task_id":%q,"task_status":"SUCCEEDED","video_url":"https://v.example/1.mp4"}}`, call.TaskID), nil
}

func reply(format string, args ...any) *upstream.Reply {
	return &upstream.Reply{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(format, args...))),
	}
}

// counter receives notices.
type counter struct {
	mu   sync.Mutex
	ids  map[string]map[string]bool // by address
	came int
	all  chan struct{} // closed when there is a notice for each video
	want int
}

func (c *counter) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came++
	if c.ids[r.URL.Path] == nil {
		c.ids[r.URL.Path] = map[string]bool{}
		if len(c.ids) == c.want {
			close(c.all)
		}
	}
	c.ids[r.URL.Path][r.Header.Get("webhook-id")] = true
}
