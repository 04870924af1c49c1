package video

import (
	"time"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Event is the body of a notice: an event of this id about the task as it is.
func (t *Task) Event(id string, now time.Time) []byte {
	b := member(nil, "id", rawjson.Quote(nil, id))
	b = member(b, "object", []byte(`"event"`))
	b = member(b, "created_at", unix(now))
	b = member(b, "type", rawjson.Quote(nil, "video.generation."+string(t.State)))
	return append(member(b, "data", t.Record()), '}')
}

// NoticeOf is the notice of the task's end, with an id of its own ("evt_…"); nil
// if nobody asked for one, or it has not ended.
func (t *Task) NoticeOf(id string, now time.Time) *Notice {
	if t.WebhookURL == "" || !t.State.Terminal() {
		return nil
	}
	return &Notice{ID: id, Account: t.Account, TaskID: t.ID, URL: t.WebhookURL, Body: t.Event(id, now), At: now}
}
