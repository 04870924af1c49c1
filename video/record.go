package video

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/webhook"
)

// PublicID is the id that the caller knows: of the gamma family and of models
// that no table describes the upstream's, once it is known; else ours.
func (t *Task) PublicID() string {
	if t.Family == FamilyBeta || t.UpstreamID == "" {
		return t.ID
	}
	return t.UpstreamID
}

// Record is the task as the API shows it, a JSON object.
func (t *Task) Record() []byte {
	b := member(nil, "id", rawjson.Quote(nil, t.PublicID()))
	b = member(b, "object", []byte(`"video.generation"`))
	b = member(b, "model", rawjson.Quote(nil, t.Model))
	b = member(b, "status", rawjson.Quote(nil, string(t.State.Public())))
	b = member(b, "created_at", unix(t.CreatedAt))
	b = member(b, "updated_at", unix(t.UpdatedAt))
	if !t.ExpiresAt.IsZero() {
		b = member(b, "expires_at", unix(t.ExpiresAt))
	}
	answer, _ := rawjson.Index(t.Answer, nil, nil) // nil has no members
	if t.State == Succeeded {
		content := answer.Raw("content")
		if content == nil {
			content = []byte("[]")
		}
		b = member(b, "content", content)
		if usage := answer.Raw("usage"); usage != nil {
			b = member(b, "usage", usage)
		}
		if seed := t.seed(&answer); seed != nil {
			b = member(b, "seed", seed)
		}
	}
	if t.Failure != nil && (t.State == Failed || t.State == Expired) {
		failure := member(nil, "code", rawjson.Quote(nil, t.Failure.Code))
		failure = member(failure, "message", rawjson.Quote(nil, t.Failure.Message))
		b = member(b, "error", append(failure, '}'))
	}
	for _, m := range answer.Members {
		if !slices.Contains(placedMembers, m.Name) && !slices.Contains(gatewayMembers, m.Name) {
			b = member(b, m.Name, m.Value.Of(answer.Src))
		}
	}
	return append(b, '}')
}

// placedMembers are the members of an answer that a record has in a place of
// their own.
var placedMembers = []string{"content", "usage", "seed"}

// seed is the one that was used, or else asked for.
func (t *Task) seed(answer *rawjson.Object) []byte {
	if raw := answer.Raw("seed"); !rawjson.IsNull(raw) {
		return raw
	}
	return t.Seed
}

// member appends a member to an object that is not closed.
func member(b []byte, name string, value []byte) []byte {
	if len(b) == 0 {
		b = append(b, '{')
	} else {
		b = append(b, ',')
	}
	b = append(rawjson.Quote(b, name), ':')
	return append(b, value...)
}

func unix(t time.Time) []byte { return strconv.AppendInt(nil, t.Unix(), 10) }

// Response is the record for use in Go. It fails where the upstream's members
// are of another kind than the API's; the record is then in Raw.
func (t *Task) Response() (*Response, error) {
	raw := t.Record()
	r := &Response{}
	err := json.Unmarshal(raw, r, jsontext.AllowDuplicateNames(true)) // as upstreams may
	r.Raw = raw
	return r, err
}

// Response is the record of a video task. Fields that the API does not name are
// in Extra, here and in its parts.
type Response struct {
	ID        string         `json:"id"`
	Object    string         `json:"object"` // "video.generation"
	Model     string         `json:"model"`  // public id
	Status    State          `json:"status"`
	CreatedAt int64          `json:"created_at"` // Unix seconds, as are those below
	UpdatedAt int64          `json:"updated_at"`
	ExpiresAt int64          `json:"expires_at,omitzero"` // when the task ends if the video is not there
	Content   []Output       `json:"content,omitzero"`    // of a task that succeeded
	Usage     jsontext.Value `json:"usage,omitzero"`      // the upstream's own count, an object
	Seed      jsontext.Value `json:"seed,omitzero"`
	Error     *Failure       `json:"error,omitzero"` // of a task that failed or expired
	Extra     jsontext.Value `json:",embed"`

	// Raw is the record as JSON.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the video cost the account; zero until it is there.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Output is one video: the address where it can be fetched for 24 hours.
type Output struct {
	VideoURL     string         `json:"video_url,omitzero"`
	LastFrameURL string         `json:"last_frame_url,omitzero"`
	Extra        jsontext.Value `json:",embed"`
}

// URL is the address of the video; empty if there is none.
func (r *Response) URL() string {
	for _, c := range r.Content {
		if c.VideoURL != "" {
			return c.VideoURL
		}
	}
	return ""
}

// Delivery is the webhook delivery of the task's end, with an id of its own
// ("evt_…"); nil if the request named no URL, or the task has not ended.
func (t *Task) Delivery(id string, now time.Time) *webhook.Delivery {
	if t.WebhookURL == "" || !t.State.Terminal() {
		return nil
	}
	b := member(nil, "id", rawjson.Quote(nil, id))
	b = member(b, "object", []byte(`"event"`))
	b = member(b, "created_at", unix(now))
	b = member(b, "type", rawjson.Quote(nil, "video.generation."+string(t.State)))
	b = append(member(b, "data", t.Record()), '}')
	return &webhook.Delivery{ID: id, Account: t.Account, TaskID: t.ID, URL: t.WebhookURL, Body: b, CreatedAt: now}
}
