package dashscope

import (
	"context"
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// submitVideo asks for a video. The vendor takes the body as the gateway prepared it,
// and answers with the id of a task: without the header it would refuse to.
func (u *Upstream) submitVideo(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	resp, key, err := u.client.Post(ctx, u.videoURL, header("X-DashScope-Async", "enable"), call.Body)
	return u.videoReply(ctx, resp, key, err)
}

// pollVideo asks for the state of a video. That it failed is an answer too.
func (u *Upstream) pollVideo(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	task, err := httpdo.ItemURL(u.tasksURL, call.TaskID)
	if err != nil {
		return nil, err
	}
	h := header()
	h.Del("Content-Type") // of nothing
	resp, key, err := u.client.Get(ctx, task, h)
	return u.videoReply(ctx, resp, key, err)
}

func (u *Upstream) videoReply(ctx context.Context, resp *http.Response, key *upstream.Key, err error) (*upstream.Reply, error) {
	if err != nil {
		return nil, err
	}
	reply, err := u.documentReply(ctx, resp, key)
	if err != nil {
		return nil, publicVideoError(err)
	}
	return reply, nil
}

// videoCodes are the API's codes for those of the vendor, by their prefix; any other
// is kept.
var videoCodes = []struct {
	prefix string
	code   fault.Code
}{
	{"BadRequest.InputDownloadFailed", "InvalidParameter.UrlNotAccessible"},
	{"InvalidParameter.DataInspection", "InvalidParameter.DataInspectionFailed"},
	{"InvalidURL", "InvalidParameter.UrlNotAccessible"},
	{"ModelNotFound", fault.ModelNotFound},
}

// publicVideoError is a refusal in the form of the endpoint, whose errors do not have the
// vendor's form.
func publicVideoError(err error) error {
	return fault.From(err).With(func(e *fault.Error) {
		e.Body = nil
		for _, row := range videoCodes {
			if strings.HasPrefix(string(e.Code), row.prefix) {
				e.Code = row.code
				break
			}
		}
	})
}
