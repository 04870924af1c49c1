package sim

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/formdata"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/upstream"
)

// shownTokens are the input tokens of an image that is to be changed.
const shownTokens = 194

// change answers a request for changed pictures: patterns made of the hash of
// the images and of the prompt. It reads the form from the wire, and is as
// strict as a vendor: a file has a name and a type that fit its content, and no
// field is empty.
func (u *Upstream) change(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	form, err := received(call)
	if err != nil {
		return nil, err
	}
	defer func() { _ = form.Close() }() // a temporary file without a name
	e, err := u.edit(call, form)
	if err != nil {
		return nil, err
	}
	r := likeness(e)
	width, height, err := side(r)
	if err != nil {
		return nil, err
	}
	sum, err := form.Sum()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	pictures := make([]string, e.Count())
	for i := range pictures {
		pictures[i] = base64.StdEncoding.EncodeToString(picture(fmt.Sprint(hex.EncodeToString(sum[:]), i), width, height))
	}
	shown := int64(len(e.Images)) * shownTokens
	if e.Stream {
		s := newStream(ctx, &answer{}, f, u.o)
		s.script = u.partialPictures("image_edit", pictures[0], r.PartialImages, withImages(drawn(r, r.PartialImages, f), shown))
		return serve.Reply("text/event-stream", s), nil
	}
	response := u.album(r, pictures, int64(width), int64(height), f)
	response.Usage = withImages(response.Usage, shown)
	response.Background, response.Quality = e.Background, e.Quality
	data, err := json.Marshal(response)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The simulated answer cannot be written as JSON.", err)
	}
	return u.send(ctx, data, f)
}

// received reads the call's form as it goes over the wire.
func received(call *upstream.Call) (*upstream.Form, error) {
	boundary, ok, err := formdata.Boundary(call.ContentType)
	if !ok || err != nil {
		return nil, wrong(400, fault.InvalidRequest, "", "The simulated vendor takes multipart forms only.")
	}
	body, _, err := call.Body.Open()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	form, err := formdata.Read(body, boundary, formdata.Options{})
	if err = errors.Join(err, body.Close()); err != nil {
		f := fault.From(err)
		return nil, wrong(400, f.Code, f.Param, f.Message)
	}
	return form, nil
}

// edit reads and checks the form.
func (u *Upstream) edit(call *upstream.Call, form *upstream.Form) (*images.Edit, error) {
	e, err := images.ParseForm(form)
	if err == nil {
		err = e.Validate()
	}
	if err == nil {
		err = strict(e, form)
	}
	if err := u.unfit(err, call.Model); err != nil {
		return nil, err
	}
	return e, nil
}

// strict are the rules that the public API does not have.
func strict(e *images.Edit, form *upstream.Form) error {
	for i := range form.Parts {
		if p := &form.Parts[i]; p.Size == 0 {
			return fault.Invalid(p.Name, fmt.Sprintf("The simulated vendor takes no empty %q.", p.Name))
		}
	}
	files := e.Images
	if e.Mask != nil {
		files = append(slices.Clone(files), *e.Mask)
	}
	for i := range files {
		kind := map[string]string{".png": images.PNG, ".jpg": images.JPEG, ".jpeg": images.JPEG, ".webp": images.WebP}[strings.ToLower(filepath.Ext(files[i].Name))]
		if kind != files[i].ContentType {
			return fault.Invalid("image", fmt.Sprintf("The simulated vendor does not take the file name %q.", files[i].Name))
		}
	}
	for i := range form.Parts {
		if p := &form.Parts[i]; p.Filename != "" && !strings.HasPrefix(p.ContentType, "image/") {
			return fault.Invalid(p.Name, fmt.Sprintf("The simulated vendor does not take a file of the type %q.", p.ContentType))
		}
	}
	switch legacy := strings.Contains(e.Model, "legacy") || strings.Contains(e.Model, "dall-e"); {
	case e.Prompt == "":
		return fault.Invalid("prompt", "The simulated vendor needs a prompt.")
	case !legacy && e.ResponseFormat != "":
		return fault.Invalid("response_format", "Unknown parameter: 'response_format'.")
	case !legacy && (e.Quality == "standard" || e.Quality == "hd"):
		return fault.Invalid("quality", fmt.Sprintf("Invalid value: %q.", e.Quality))
	case e.OutputFormat != "" && e.OutputFormat != "png":
		return fault.Invalid("output_format", "The simulated vendor makes PNG files only.")
	}
	return nil
}

// likeness is a request for the same pictures of text alone.
func likeness(e *images.Edit) *images.Request {
	r := &images.Request{
		Model: e.Model, Prompt: e.Prompt, N: e.N, Size: e.Size, Stream: e.Stream, PartialImages: e.PartialImages,
		ResponseFormat: e.ResponseFormat, User: e.User,
	}
	if parsed, err := images.Encode(r); err == nil { // what a table knows of the model
		return parsed
	}
	return r
}

// withImages adds the input tokens of the images to a report that has some.
func withImages(u *images.Usage, tokens int64) *images.Usage {
	if u == nil || u.InputTokensDetails == nil {
		return u
	}
	u.InputTokensDetails.ImageTokens = tokens
	u.InputTokens += tokens
	u.TotalTokens += tokens
	return u
}
