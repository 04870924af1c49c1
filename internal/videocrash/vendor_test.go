//go:build unix

package videocrash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/tollhouse-ai/gateway/video"
)

// kind is what becomes of a video at the vendor.
type kind struct {
	name  string
	share int         // of a hundred
	ends  video.State // of its task, if the vendor's answer to the submission is kept
	word  string      // the vendor's last one
}

var kinds = []kind{
	{"succeeds", 50, video.Succeeded, "SUCCEEDED"},
	{"fails", 12, video.Failed, "FAILED"},
	{"is cancelled", 6, video.Cancelled, "CANCELED"},
	{"is forgotten", 4, video.Expired, "UNKNOWN"},
	{"never ends", 4, video.Expired, "RUNNING"},
	{refusedKind, 12, "", ""},
	{lostKind, 12, video.Expired, ""},
}

const (
	refusedKind = "is refused"
	lostKind    = "is taken, and the answer is lost"
)

// job is a video that the vendor makes.
type job struct {
	id     string
	n      int
	asked  int // how often it was asked after
	orders int // submissions of it
}

// vendor speaks the wire of the beta family's vendor, and counts.
type vendor struct {
	book *journal
	pass func(point string)

	mu   sync.Mutex
	jobs map[int]*job // by submission
}

func newVendor(b *journal, pass func(string)) *vendor {
	return &vendor{book: b, pass: pass, jobs: map[int]*job{}}
}

func (v *vendor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /services/aigc/video-generation/video-synthesis", v.submit)
	mux.HandleFunc("GET /tasks/{id}", v.poll)
	return mux
}

func say(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, format, args...)
}

func (v *vendor) submit(w http.ResponseWriter, r *http.Request) {
	var body struct{ Input struct{ Prompt string } }
	err := json.NewDecoder(r.Body).Decode(&body)
	n, bad := strconv.Atoi(body.Input.Prompt)
	if err != nil || bad != nil {
		v.book.problem("the vendor got a prompt %q, %v", body.Input.Prompt, err)
	}
	s := v.book.find(n)
	if s.kind.name == refusedKind {
		say(w, http.StatusBadRequest, `{"request_id":"r","code":"InvalidParameter","message":"no"}`)
		return
	}
	v.mu.Lock()
	j := v.jobs[n]
	if j == nil {
		j = &job{id: fmt.Sprintf("up-%d", n), n: n}
		v.jobs[n] = j
	}
	j.orders++
	v.mu.Unlock()
	v.pass(jobTaken)
	if s.kind.name == lostKind {
		panic(http.ErrAbortHandler) // which breaks the connection off
	}
	say(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"PENDING"}}`, j.id)
}

func (v *vendor) poll(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.PathValue("id")[len("up-"):])
	v.mu.Lock()
	j := v.jobs[n]
	asked := 0
	if j != nil {
		j.asked++
		asked = j.asked
	}
	v.mu.Unlock()
	s := v.book.find(n)
	switch {
	case j == nil:
		v.book.problem("the vendor was asked for %s, which it never made", r.PathValue("id"))
		say(w, http.StatusBadRequest, `{"request_id":"r","code":"InvalidParameter","message":"no such task"}`)
	case asked <= s.pending:
		say(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"PENDING"}}`, j.id)
	case asked <= s.pending+s.running:
		say(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"RUNNING"}}`, j.id)
	case s.kind.ends == video.Failed:
		say(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"FAILED","code":"InternalError","message":"no"}}`, j.id)
	case s.kind.ends == video.Succeeded:
		say(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"SUCCEEDED","video_url":"https://v.example/%d.mp4"},"usage":{"duration":%d.0,"SR":720}}`, j.id, n, s.seconds)
	default:
		say(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":%q}}`, j.id, s.kind.word)
	}
}

// orders are the jobs and the submissions that made or repeated them.
func (v *vendor) orders() (jobs, orders int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, j := range v.jobs {
		orders += j.orders
	}
	return len(v.jobs), orders
}
