package video

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// Record is the task as the API shows it, a JSON object.
func Record(t *video.Task) []byte {
	b := member(nil, "id", rawjson.Quote(nil, t.PublicID()))
	b = member(b, "object", []byte(`"video.generation"`))
	b = member(b, "model", rawjson.Quote(nil, t.Model))
	b = member(b, "status", rawjson.Quote(nil, string(PublicState(t.State))))
	b = member(b, "created_at", unix(t.CreatedAt))
	b = member(b, "updated_at", unix(t.UpdatedAt))
	if !t.ExpiresAt.IsZero() {
		b = member(b, "expires_at", unix(t.ExpiresAt))
	}
	answer, _ := rawjson.Index(t.Answer, nil, nil) // nil has no members
	if t.State == video.Succeeded {
		content := answer.Raw("content")
		if content == nil {
			content = []byte("[]")
		}
		b = member(b, "content", content)
		if usage := answer.Raw("usage"); usage != nil {
			b = member(b, "usage", usage)
		}
		if seed := usedSeed(t, &answer); seed != nil {
			b = member(b, "seed", seed)
		}
	}
	if t.Failure != nil && (t.State == video.Failed || t.State == video.Expired) {
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

// PublicState is the word that the API has for a state.
func PublicState(s video.State) video.State {
	if s == video.Submitting || s == video.Unknown {
		return video.Queued
	}
	return s
}

// NotFound is the 404 of a task that does not exist, or not for the account, or not any
// more.
func NotFound(id string) error {
	return &fault.Error{Code: fault.ResourceNotFound, Param: "id", Message: fmt.Sprintf("There is no video task %q.", safetext.Quoted(id))}
}

// placedMembers are the members of an answer that a record has in a place of
// their own.
var placedMembers = []string{"content", "usage", "seed"}

// usedSeed is the seed that was used, or else asked for.
func usedSeed(t *video.Task, answer *rawjson.Object) []byte {
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
func Response(t *video.Task) (*video.Response, error) {
	raw := Record(t)
	r := &video.Response{}
	err := json.Unmarshal(raw, r, jsontext.AllowDuplicateNames(true)) // as upstreams may
	r.Raw = raw
	return r, err
}

// Delivery is the webhook delivery of the task's end, with an id of its own ("evt_…"). It is
// nil if the request named no URL, or the task has not ended.
func Delivery(t *video.Task, id string, now time.Time) *webhook.Delivery {
	if t.WebhookURL == "" || !t.State.Terminal() {
		return nil
	}
	b := member(nil, "id", rawjson.Quote(nil, id))
	b = member(b, "object", []byte(`"event"`))
	b = member(b, "created_at", unix(now))
	b = member(b, "type", rawjson.Quote(nil, "video.generation."+string(t.State)))
	b = append(member(b, "data", Record(t)), '}')
	return &webhook.Delivery{ID: id, Account: t.Account, TaskID: t.ID, URL: t.WebhookURL, Body: b, CreatedAt: now}
}
