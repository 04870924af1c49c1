//go:build unix

package videocrash

import (
	"io"
	"net/http"
	"strconv"
	"sync"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// delivery is a notice as it came.
type delivery struct {
	id, body string
	good     bool // it was answered so
}

// receiver is whom the notices are sent to. It refuses about half of the
// deliveries, but of a notice's not more than the first few.
type receiver struct {
	book   *book
	pass   func(point string)
	secret *webhooks.Webhook

	mu  sync.Mutex
	got map[int][]delivery // by submission
}

// mostRefused is how many deliveries of a notice are refused at the most.
const mostRefused = 4

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	n, err := strconv.Atoi(q.PathValue("n"))
	body, bad := io.ReadAll(q.Body)
	if err != nil || bad != nil {
		return // and the delivery has not come
	}
	if err := r.secret.VerifyIgnoringTimestamp(body, q.Header); err != nil {
		r.book.problem("the signature of a notice of %d: %v", n, err)
	}
	r.pass(noticeCame)
	r.mu.Lock()
	defer r.mu.Unlock()
	try := len(r.got[n])
	good := try >= mostRefused || (n>>try)&1 == 0
	r.got[n] = append(r.got[n], delivery{q.Header.Get(webhooks.HeaderWebhookID), string(body), good})
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
