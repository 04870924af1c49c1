// Package ark is the driver for the video wire of Volcengine Ark and of BytePlus
// ModelArk, which is the same at another address.
package ark

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [Options.BaseURL] is empty.
const DefaultBaseURL = "https://ark.cn-beijing.volces.com/api/v3"

// tasks is the path of videos.
const tasks = "/contents/generations/tasks"

// Options say where the vendor is. The zero value is its default site, without a
// key.
type Options = upstream.DriverOptions

// Upstream is the vendor. It is safe for concurrent use.
type Upstream struct {
	client   *httpdo.Client
	tasksURL *url.URL
	dialect  httpdo.ErrorFormat
}

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the Upstream when done.
func New(o Options) (*Upstream, error) {
	client, err := httpdo.New(o, httpdo.Defaults{BaseURL: DefaultBaseURL})
	if err != nil {
		return nil, err
	}
	u := &Upstream{client: client, tasksURL: client.Base.JoinPath(tasks)}
	u.dialect = httpdo.ErrorFormat{Refused: u.refused}
	return u, nil
}

// Supports reports whether op is the submission of a video or a poll of its
// state; the model is the vendor's business.
func (u *Upstream) Supports(op upstream.Op, _ string) bool {
	return op == upstream.SubmitVideo || op == upstream.PollVideo
}

// Close closes idle connections of the driver's own transport. Calls under way
// go on, and later calls open connections anew.
func (u *Upstream) Close() error { return u.client.Close() }

// Do makes one call, once: whatever fails is for the Router to repeat. The Reply
// streams from the vendor until its body is closed.
func (u *Upstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	switch call.Op {
	case upstream.SubmitVideo:
		return u.submit(ctx, call)
	case upstream.PollVideo:
		return u.poll(ctx, call)
	}
	return nil, httpdo.Unsupported()
}

func (u *Upstream) submit(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	h := header(call)
	h.Set("Content-Type", "application/json")
	resp, key, err := u.client.Post(ctx, u.tasksURL, h, translateBody(call.Body))
	return u.reply(resp, key, err)
}

// poll asks for the state of a video. That it failed is an answer too.
func (u *Upstream) poll(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	task, err := httpdo.ItemURL(u.tasksURL, call.TaskID)
	if err != nil {
		return nil, err
	}
	resp, key, err := u.client.Get(ctx, task, header(call))
	reply, err := u.reply(resp, key, err)
	if err != nil {
		return nil, taskNotFound(err)
	}
	return reply, nil
}

func (u *Upstream) reply(resp *http.Response, key *upstream.Key, err error) (*upstream.Reply, error) {
	if err != nil {
		return nil, err
	}
	return u.client.Reply(resp, key, false, u.dialect)
}

// header is that of every request. The vendor notes our id of the call, by which
// a submission can be found again that was not answered.
func header(call *upstream.Call) http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {httpdo.UserAgent}}
	if call.RequestID != "" {
		h.Set("X-Client-Request-Id", call.RequestID)
	}
	return h
}

// translateBody is the body in the vendor's form, which is the public one but for
// the role of a sound, the name of a draft's id, and a priority that is a
// number. Whatever else there is stays byte for byte.
func translateBody(body upstream.Body) upstream.Body {
	if content := translateContent(body.Raw("content")); content != nil {
		body = body.Set("content", content)
	}
	if text, ok := rawjson.String(body.Raw("priority")); ok {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			body = body.Set("priority", strconv.AppendInt(nil, n, 10))
		}
	}
	return body
}

// translateContent is content, an array, with each block in the vendor's form; nil
// if all are.
func translateContent(content []byte) (changed []byte) {
	done := 0
	rawjson.Each(content, func(_ int, at rawjson.Span) {
		if b := translateBlock(at.Of(content)); b != nil {
			changed = append(append(changed, content[done:at.Start]...), b...)
			done = at.End
		}
	})
	if done == 0 {
		return nil
	}
	return append(changed, content[done:]...)
}

// translateBlock is a content block in the vendor's form; nil if it is so already.
func translateBlock(raw []byte) []byte {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil // it is no object: for the vendor to refuse
	}
	switch kind, _ := rawjson.String(o.Raw("type")); kind {
	case "audio_url":
		if rawjson.IsNull(o.Raw("role")) {
			return o.Apply(nil, rawjson.Set("role", []byte(`"reference_audio"`)))
		}
	case "draft_task":
		draft, err := rawjson.Index(o.Raw("draft_task"), nil, nil)
		if err == nil && draft.Raw("task_id") != nil {
			return o.Apply(nil, rawjson.Set("draft_task", draft.Apply(nil, rawjson.Rename("task_id", "id"))))
		}
	}
	return nil
}
