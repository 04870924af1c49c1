//go:build unix

package crashtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

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
	record *videoRecord
	pass   func(point string)

	mu   sync.Mutex
	jobs map[int]*job // by submission
}

func newVendor(b *videoRecord, pass func(string)) *vendor {
	return &vendor{record: b, pass: pass, jobs: map[int]*job{}}
}

func (v *vendor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /services/aigc/video-generation/video-synthesis", v.submit)
	mux.HandleFunc("GET /tasks/{id}", v.poll)
	return mux
}

func answerJSON(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, format, args...)
}

func (v *vendor) submit(w http.ResponseWriter, r *http.Request) {
	var body struct{ Input struct{ Prompt string } }
	err := json.NewDecoder(r.Body).Decode(&body)
	n, bad := strconv.Atoi(body.Input.Prompt)
	if err != nil || bad != nil {
		v.record.problem(unexpected, "the vendor got a prompt %q, %v", body.Input.Prompt, err)
	}
	s := v.record.find(n)
	if s.kind.name == refusedKind {
		answerJSON(w, http.StatusBadRequest, `{"request_id":"r","code":"InvalidParameter","message":"no"}`)
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
	answerJSON(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"PENDING"}}`, j.id)
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
	s := v.record.find(n)
	switch {
	case j == nil:
		v.record.problem(unexpected, "the vendor was asked for %s, which it never made", r.PathValue("id"))
		answerJSON(w, http.StatusBadRequest, `{"request_id":"r","code":"InvalidParameter","message":"no such task"}`)
	case asked <= s.pending:
		answerJSON(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"PENDING"}}`, j.id)
	case asked <= s.pending+s.running:
		answerJSON(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"RUNNING"}}`, j.id)
	case s.kind.ends == video.Failed:
		answerJSON(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"FAILED","code":"InternalError","message":"no"}}`, j.id)
	case s.kind.ends == video.Succeeded:
		answerJSON(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":"SUCCEEDED","video_url":"https://v.example/%d.mp4"},"usage":{"duration":%d.0,"SR":720}}`, j.id, n, s.seconds)
	default:
		answerJSON(w, http.StatusOK, `{"request_id":"r","output":{"task_id":%q,"task_status":%q}}`, j.id, s.kind.word)
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

// delivery is a webhook delivery as it came.
type delivery struct {
	id, body string
	good     bool // it was answered so
}

// receiver is whom the deliveries are sent to. It refuses about half of the
// attempts, but of one delivery not more than the first few.
type receiver struct {
	record *videoRecord
	pass   func(point string)
	secret *webhooks.Webhook

	mu  sync.Mutex
	got map[int][]delivery // by submission
}

// mostRefused is how many attempts of one delivery are refused at the most.
const mostRefused = 4

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	n, err := strconv.Atoi(q.PathValue("n"))
	body, bad := io.ReadAll(q.Body)
	if err != nil || bad != nil {
		return // and the delivery has not come
	}
	if err := r.secret.VerifyIgnoringTimestamp(body, q.Header); err != nil {
		r.record.problem(unexpected, "the signature of a notice of %d: %v", n, err)
	}
	r.pass(noticeCame)
	r.mu.Lock()
	defer r.mu.Unlock()
	came := len(r.got[n])
	good := came >= mostRefused || (n>>came)&1 == 0
	r.got[n] = append(r.got[n], delivery{q.Header.Get(webhooks.HeaderWebhookID), string(body), good})
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
