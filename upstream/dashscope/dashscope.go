// Package dashscope is the driver for the native wire of Alibaba Cloud's model
// service, in which one path serves several kinds of models.
package dashscope

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [upstream.DriverOptions.BaseURL] is empty.
const DefaultBaseURL = "https://dashscope.aliyuncs.com/api/v1"

// generation is the path of every synchronous model.
const generation = "/services/aigc/multimodal-generation/generation"

// driver is the driver of one vendor. It is safe for concurrent use.
type driver struct{ *httpdo.Client }

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the driver when done.
func New(o upstream.DriverOptions) (upstream.Driver, error) {
	client, err := httpdo.New(o, httpdo.Vendor{BaseURL: DefaultBaseURL, Refused: refused, Paths: map[upstream.Op]string{
		upstream.GenerateImage: generation,
		upstream.Speech:        generation,
		upstream.SubmitVideo:   "/services/aigc/video-generation/video-synthesis",
		upstream.PollVideo:     "/tasks",
		upstream.Rerank:        "/services/rerank/text-rerank/text-rerank",
	}})
	if err != nil {
		return nil, err
	}
	return &driver{client}, nil
}

// Do makes one call, once; a Router decides whether to repeat it.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, err := d.URL(call.Op)
	if err != nil {
		return nil, err
	}
	header := httpdo.Header("application/json", "application/json")
	switch call.Op {
	case upstream.Speech:
		return d.synthesizeSpeech(ctx, call, to)
	case upstream.Rerank:
		return d.rank(ctx, call)
	case upstream.GenerateImage: // the public wire of the alpha family is the vendor's
		return d.Exchange(ctx, call, joinMessageTexts(call.Body), nil, maxDocument, d.accepted)
	case upstream.SubmitVideo:
		header.Set("X-DashScope-Async", "enable") // without it the vendor would refuse to answer with a task's id
		resp, key, err := d.Post(ctx, call, to, header, call.Body)
		return d.videoReply(ctx, call, resp, key, err)
	}
	task, err := d.TaskURL(call)
	if err != nil {
		return nil, err
	}
	resp, key, err := d.Get(ctx, call, task, header)
	return d.videoReply(ctx, call, resp, key, err)
}

// maxDocument bounds an answer, which has links and no media.
const maxDocument = 16 << 20

// accepted is a document as the vendor wrote it, unless it is a refusal, as some of status 200
// are.
func (d *driver) accepted(data []byte, h http.Header) ([]byte, error) {
	if _, bad := parseRefusal(data); bad {
		return nil, d.refusedWith200(data, h)
	}
	return data, nil
}

// videoReply replies with what a response says of a video. Errors have the form of the
// endpoint.
func (d *driver) videoReply(ctx context.Context, call *upstream.Call, resp *http.Response, key *upstream.Key, err error) (*upstream.Reply, error) {
	reply, err := d.Document(ctx, call, resp, key, err, maxDocument, d.accepted)
	if err != nil {
		return nil, publicVideoError(err)
	}
	return reply, nil
}

// joinMessageTexts joins the text blocks of a message by line feeds, instead of the
// first: the API allows several, the vendor one.
func joinMessageTexts(body upstream.Body) upstream.Body {
	input, err := rawjson.Index(body.Raw("input"), nil, nil)
	if err != nil {
		return body
	}
	messages := rawjson.Elements(input.Raw("messages"))
	if len(messages) != 1 {
		return body
	}
	message, err := rawjson.Index(messages[0], nil, nil)
	if err != nil {
		return body
	}
	content, joined := joinTexts(rawjson.Elements(message.Raw("content")))
	if !joined {
		return body
	}
	message = index(message.Apply(nil, rawjson.Set("content", content)))
	input = index(input.Apply(nil, rawjson.Set("messages", fmt.Appendf(nil, "[%s]", message.Src))))
	return body.Set("input", input.Src)
}

// joinTexts is content with one text; false if it has not several.
func joinTexts(blocks [][]byte) (content []byte, joined bool) {
	first, texts := -1, 0
	var all string
	var kept [][]byte
	for _, b := range blocks {
		block := index(b)
		text, ok := rawjson.String(block.Raw("text"))
		switch {
		case !ok:
			kept = append(kept, b)
			continue
		case texts == 0:
			first, kept, all = len(kept), append(kept, b), text
		default:
			all += "\n" + text
		}
		texts++
	}
	if texts < 2 {
		return nil, false
	}
	block := index(kept[first])
	kept[first] = block.Apply(nil, rawjson.Set("text", rawjson.Quote(nil, all)))
	return fmt.Appendf(nil, "[%s]", bytes.Join(kept, []byte{','})), true
}

// index indexes an object that was read before; the result is empty if raw is not one.
func index(raw []byte) rawjson.Object {
	o, _ := rawjson.Index(raw, nil, nil)
	return o
}
