package video

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

// Task is one video from its submission to its purge. It is a plain value.
type Task struct {
	ID         string // ours: "vid_…"
	Account    string // whose it is
	Key        string // the id of the key that submitted it
	RequestID  string // of the submission: the id of its hold and receipt
	Model      string // public id
	Family     string // "beta", "gamma" or empty for a model that no table describes
	Channel    string // which channel took it, and is asked how it goes
	UpstreamID string // the vendor's id; empty until it is known

	State   State
	Version int64 // grows by one with each change

	CreatedAt time.Time
	// AcceptedAt is when an upstream took it; zero while that is not known.
	AcceptedAt time.Time
	UpdatedAt  time.Time
	ExpiresAt  time.Time // when the upstream is to end it; the gateway does so at [Task.End]
	PurgeAt    time.Time // when the record is forgotten; zero while it is open

	PriceVersion string // of the price that its hold pinned; empty for a free model

	Bound       billing.Usage  // what was priced: what success costs, or for tokens the most
	Tokens      bool           // the price is for tokens: success costs what the upstream reports
	Open        bool           // the upstream chose length or resolution: success costs what it made, at most Bound
	Seed        jsontext.Value // of the request; nil if it gave none
	WebhookURL  string         // of the request
	Answer      jsontext.Value // the upstream's last word in the public form; nil before the first
	Failure     *Failure       // of a task that failed or expired
	Fingerprint [32]byte       // of key and request, for the duplicate window

	PolledAt time.Time // when the upstream was last asked
}

// Failure says why a task failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// State is where a task is in its life.
type State string

// The states. Submitting and Unknown are inside only: the public word of both is
// "queued".
const (
	Submitting State = "submitting" // the upstream is being asked to take it
	Unknown    State = "unknown"    // whether the upstream took it is not known, and it is not asked again
	Queued     State = "queued"
	Processing State = "processing"
	Running    State = "running"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
	Expired    State = "expired"
)

// Terminal reports whether the state never changes any more.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Failed, Cancelled, Expired:
		return true
	}
	return false
}
