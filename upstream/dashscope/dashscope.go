// Package dashscope is the driver for the native wire of Alibaba Cloud's model
// service, in which one path serves several kinds of models.
package dashscope

import (
	"context"
	"net/http"
	"net/url"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [Options.BaseURL] is empty.
const DefaultBaseURL = "https://dashscope.aliyuncs.com/api/v1"

// The paths: of every synchronous model, of videos, and of what became of them.
const (
	generation = "/services/aigc/multimodal-generation/generation"
	synthesis  = "/services/aigc/video-generation/video-synthesis"
	tasks      = "/tasks"
)

// Options say where the vendor is. The zero value is its default site, without a
// key.
type Options = upstream.DriverOptions

// Upstream is the vendor. It is safe for concurrent use.
type Upstream struct {
	client        *httpdo.Client
	generationURL *url.URL
	videoURL      *url.URL
	tasksURL      *url.URL
}

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the Upstream when done.
func New(o Options) (*Upstream, error) {
	client, err := httpdo.New(o, httpdo.Defaults{BaseURL: DefaultBaseURL})
	if err != nil {
		return nil, err
	}
	return &Upstream{
		client: client, generationURL: client.Base.JoinPath(generation),
		videoURL: client.Base.JoinPath(synthesis), tasksURL: client.Base.JoinPath(tasks),
	}, nil
}

// operations are what the driver can do.
var operations = map[upstream.Op]func(*Upstream, context.Context, *upstream.Call) (*upstream.Reply, error){
	upstream.GenerateImage: (*Upstream).generateImage,
	upstream.Speech:        (*Upstream).synthesizeSpeech,
	upstream.SubmitVideo:   (*Upstream).submitVideo,
	upstream.PollVideo:     (*Upstream).pollVideo,
}

// Supports reports whether the driver knows the operation; the model is the
// vendor's business.
func (u *Upstream) Supports(op upstream.Op, _ string) bool { return operations[op] != nil }

// Close closes idle connections of the driver's own transport. Calls under way
// go on, and later calls open connections anew.
func (u *Upstream) Close() error { return u.client.Close() }

// Do makes one call, once: whatever fails is for the Router to repeat.
func (u *Upstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	do := operations[call.Op]
	if do == nil {
		return nil, httpdo.Unsupported()
	}
	return do(u, ctx, call)
}

// header is that of every request; extra are pairs of names and values.
func header(extra ...string) http.Header {
	h := http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {httpdo.UserAgent},
	}
	for i := 0; i+1 < len(extra); i += 2 {
		h.Set(extra[i], extra[i+1])
	}
	return h
}

// maxDocument bounds an answer, which has links and no media.
const maxDocument = 16 << 20

// documentReply replies with a whole document, as the vendor wrote it.
func (u *Upstream) documentReply(ctx context.Context, resp *http.Response, key *upstream.Key) (*upstream.Reply, error) {
	data, err := u.client.ReadDocument(ctx, resp, maxDocument, u.refused)
	if err == nil {
		if _, bad := parseRefusal(data); bad { // some of status 200 are refusals
			err = u.refusedWith200(data, resp.Header)
		}
	}
	httpdo.ReportKey(key, err)
	if err != nil {
		return nil, err
	}
	return httpdo.DocumentReply(http.StatusOK, data), nil
}
