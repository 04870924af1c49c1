// Package ark is the driver for the video wire of Volcengine Ark and of BytePlus
// ModelArk, which is the same at another address.
package ark

import (
	"context"
	"net/http"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [upstream.DriverOptions.BaseURL] is empty.
const DefaultBaseURL = "https://ark.cn-beijing.volces.com/api/v3"

// tasks is the path of videos.
const tasks = "/contents/generations/tasks"

// driver is the driver of one vendor. It is safe for concurrent use.
type driver struct{ *httpdo.Client }

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the driver when done.
func New(o upstream.DriverOptions) (upstream.Driver, error) {
	client, err := httpdo.New(o, httpdo.Vendor{
		BaseURL: DefaultBaseURL, Refused: refused, Paths: map[upstream.Op]string{upstream.SubmitVideo: tasks, upstream.PollVideo: tasks},
	})
	if err != nil {
		return nil, err
	}
	return &driver{client}, nil
}

// Do makes one call, once; a Router decides whether to repeat it. The Reply streams from the
// vendor until its body is closed.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, err := d.URL(call.Op)
	if err != nil {
		return nil, err
	}
	header := httpdo.Header("application/json", "application/json")
	if call.RequestID != "" { // by which a submission can be found again that was not answered
		header.Set("X-Client-Request-Id", call.RequestID)
	}
	if call.Op == upstream.PollVideo {
		return d.poll(ctx, call, header)
	}
	resp, key, err := d.Post(ctx, call, to, header, translateBody(call.Body))
	return d.Reply(call, resp, key, err)
}

// poll asks for the state of a video. That it failed is an answer too.
func (d *driver) poll(ctx context.Context, call *upstream.Call, header http.Header) (*upstream.Reply, error) {
	task, err := d.TaskURL(call)
	if err != nil {
		return nil, err
	}
	resp, key, err := d.Get(ctx, call, task, header)
	reply, err := d.Reply(call, resp, key, err)
	if err != nil {
		return nil, taskNotFound(err)
	}
	return reply, nil
}

// translateBody returns the body in the vendor's form. It is the public form except for the
// role of a sound, the name of a draft's id, and a numeric priority. Everything else keeps its
// bytes.
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
