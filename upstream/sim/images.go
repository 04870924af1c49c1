package sim

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// A simulated picture is of so many output tokens, whatever it shows, and a
// partial one adds some.
const (
	pictureTokens = 1_056
	partialTokens = 100
)

// Pictures are of this size where none is asked for, and never larger than the
// other.
const (
	usualSide  = 1024
	mostPixels = 3840 * 2160
	pngURL     = "data:image/png;base64,"
)

// draw answers a request for pictures: patterns made of the hash of the prompt,
// as PNG files that say in a text chunk that they are simulated. Where a vendor
// would give a link, the answer has a "data:" URL: there is no server behind it.
func (u *Upstream) draw(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, err := u.imagesRequest(call)
	if err != nil {
		return nil, err
	}
	width, height, err := side(r)
	if err != nil {
		return nil, err
	}
	pictures := make([]string, r.Count())
	for i := range pictures {
		pictures[i] = base64.StdEncoding.EncodeToString(picture(fmt.Sprint(wish(r), i), width, height))
	}
	if r.Stream {
		s := newStream(ctx, &answer{}, f, u.o)
		s.script = u.partialPictures("image_generation", pictures[0], r.PartialImages, drawn(r, r.PartialImages, f))
		return serve.Reply("text/event-stream", s), nil
	}
	response := u.album(r, pictures, int64(width), int64(height), f)
	data, err := json.Marshal(response)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The simulated answer cannot be written as JSON.", err)
	}
	return u.send(ctx, data, f)
}

func (u *Upstream) imagesRequest(call *upstream.Call) (*images.Request, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	r, err := images.Parse(data)
	if err == nil {
		err = r.Validate()
	}
	switch {
	case err != nil:
	case wish(r) == "":
		err = fault.Invalid("prompt", "The simulated vendor needs a prompt.")
	case r.OutputFormat != "" && r.OutputFormat != "png":
		err = fault.Invalid("output_format", "The simulated vendor makes PNG files only.")
	}
	if err := u.unfit(err, call.Model); err != nil {
		return nil, err
	}
	return r, nil
}

// wish is the text of a request, whichever form it has.
func wish(r *images.Request) string {
	if r.Input == nil {
		return r.Prompt
	}
	var texts []string
	for _, m := range r.Input.Messages {
		for _, b := range m.Content {
			texts = append(texts, b.Text+b.Image)
		}
	}
	return strings.Join(texts, "\n")
}

// side is the size that is asked for.
func side(r *images.Request) (width, height int, err error) {
	size := r.Size
	if r.Parameters != nil {
		size = r.Parameters.Size
	}
	w, h, named := images.Pixels(size)
	switch {
	case !named:
		return usualSide, usualSide, nil
	case w*h > mostPixels:
		message := fmt.Sprintf("The simulated vendor makes pictures of at most %d pixels.", mostPixels)
		return 0, 0, wrong(400, fault.InvalidRequest, "size", message)
	}
	return int(w), int(h), nil
}

// album is the whole answer.
func (u *Upstream) album(r *images.Request, pictures []string, width, height int64, f Fault) *images.Response {
	if r.Input != nil {
		var blocks []images.Block
		for _, p := range pictures {
			blocks = append(blocks, images.Block{Image: pngURL + p})
		}
		made := int64(len(pictures))
		if f.Usage == ZeroUsage {
			made = 0
		}
		response := &images.Response{Output: &images.Output{Choices: []images.Choice{
			{FinishReason: "stop", Message: images.Message{Role: "assistant", Content: blocks}},
		}}}
		if f.Usage != Withheld {
			response.Usage = &images.Usage{ImageCount: &made, Width: width, Height: height}
		}
		return response
	}
	response := &images.Response{
		Created: u.now().Unix(), OutputFormat: "png", Size: fmt.Sprintf("%dx%d", width, height), Usage: drawn(r, 0, f),
	}
	for _, p := range pictures {
		if r.ResponseFormat == "url" {
			response.Data = append(response.Data, images.Image{URL: pngURL + p})
		} else {
			response.Data = append(response.Data, images.Image{B64JSON: p})
		}
	}
	return response
}

// drawn is the report of tokens; nil where the vendor would make none.
func drawn(r *images.Request, partials int64, f Fault) *images.Usage {
	if !r.CountsTokens() || f.Usage == Withheld {
		return nil
	}
	if f.Usage == ZeroUsage {
		return &images.Usage{Extra: []byte(`{"input_tokens":0,"output_tokens":0}`)} // spelled out, since absent is not zero
	}
	input, output := tokens(r.Prompt), r.Count()*pictureTokens+partials*partialTokens
	return &images.Usage{
		InputTokens: input, InputTokensDetails: &images.Details{TextTokens: input}, OutputTokens: output, TotalTokens: input + output,
	}
}

// partialPictures are the events of a stream, whose names begin with kind: the
// picture again and again, since it is simple enough to be complete at once.
func (u *Upstream) partialPictures(kind, picture string, partials int64, usage *images.Usage) [][]byte {
	type event struct {
		Type      string        `json:"type"`
		B64JSON   string        `json:"b64_json"`
		CreatedAt int64         `json:"created_at"`
		Index     *int64        `json:"partial_image_index,omitzero"`
		Usage     *images.Usage `json:"usage,omitzero"`
	}
	var script [][]byte
	say := func(e event) {
		e.B64JSON, e.CreatedAt = picture, u.now().Unix()
		if data, err := json.Marshal(e); err == nil { // strings and numbers marshal
			script = append(script, sse.AppendEvent(nil, e.Type, data))
		}
	}
	for i := range partials {
		say(event{Type: kind + ".partial_image", Index: &i})
	}
	say(event{Type: kind + ".completed", Usage: usage})
	return script
}
