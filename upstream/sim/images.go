package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/formdata"
	"github.com/tollhouse-ai/gateway/internal/imagesapi"
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

// generateImages answers a request for pictures: patterns made of the hash of
// the prompt, as PNG files that say in a text chunk that they are simulated.
// Where a vendor would give a link, the answer has a "data:" URL: there is no
// server behind it.
func (u *Upstream) generateImages(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, err := u.imagesRequest(call)
	if err != nil {
		return nil, err
	}
	width, height, err := sizeOf(r)
	if err != nil {
		return nil, err
	}
	pictures := make([]string, r.Count())
	for i := range pictures {
		pictures[i] = base64.StdEncoding.EncodeToString(picture(fmt.Sprint(promptText(r), i), width, height))
	}
	if r.Stream {
		s := newStream(ctx, &answer{}, f, u.o)
		s.script = u.partialPictures("image_generation", pictures[0], r.PartialImages, imagesUsage(r, r.PartialImages, f))
		return serve.Reply("text/event-stream", s), nil
	}
	response := u.imagesResponse(r, pictures, int64(width), int64(height), f)
	return u.sendJSON(ctx, response, f)
}

func (u *Upstream) imagesRequest(call *upstream.Call) (*imagesapi.Request, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	r, err := imagesapi.Parse(data)
	if err == nil {
		err = r.Validate()
	}
	switch {
	case err != nil:
	case promptText(r) == "":
		err = fault.Invalid("prompt", "The simulated vendor needs a prompt.")
	case r.OutputFormat != "" && r.OutputFormat != "png":
		err = fault.Invalid("output_format", "The simulated vendor makes PNG files only.")
	}
	if err := u.refusal(err, call.Model); err != nil {
		return nil, err
	}
	return r, nil
}

// promptText is the text of a request, whichever form it has.
func promptText(r *imagesapi.Request) string {
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

// sizeOf is the size that is asked for.
func sizeOf(r *imagesapi.Request) (width, height int, err error) {
	size := r.Size
	if r.Parameters != nil {
		size = r.Parameters.Size
	}
	w, h, named := imagesapi.Pixels(size)
	switch {
	case !named:
		return usualSide, usualSide, nil
	case w*h > mostPixels:
		message := fmt.Sprintf("The simulated vendor makes pictures of at most %d pixels.", mostPixels)
		return 0, 0, vendorError(400, fault.InvalidRequest, "size", message)
	}
	return int(w), int(h), nil
}

// imagesResponse is the whole answer.
func (u *Upstream) imagesResponse(r *imagesapi.Request, pictures []string, width, height int64, f Fault) *images.Response {
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
		Created: u.now().Unix(), OutputFormat: "png", Size: fmt.Sprintf("%dx%d", width, height), Usage: imagesUsage(r, 0, f),
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

// imagesUsage is the report of tokens; nil where the vendor would make none.
func imagesUsage(r *imagesapi.Request, partials int64, f Fault) *images.Usage {
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

// inputImageTokens are the input tokens of an image that is to be changed.
const inputImageTokens = 194

// editImages answers a request for changed pictures: patterns made of the hash of
// the images and of the prompt. It reads the form from the wire, and is as
// strict as a vendor: a file has a name and a type that fit its content, and no
// field is empty.
func (u *Upstream) editImages(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	form, err := readForm(call)
	if err != nil {
		return nil, err
	}
	defer func() { _ = form.Close() }() // a temporary file without a name
	r, err := u.edit(call, form)
	if err != nil {
		return nil, err
	}
	e := r.Edit
	width, height, err := sizeOf(r)
	if err != nil {
		return nil, err
	}
	sum, err := form.Sum()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	pictures := make([]string, r.Count())
	for i := range pictures {
		pictures[i] = base64.StdEncoding.EncodeToString(picture(fmt.Sprint(hex.EncodeToString(sum[:]), i), width, height))
	}
	shown := int64(len(e.Images)) * inputImageTokens
	if e.Stream {
		s := newStream(ctx, &answer{}, f, u.o)
		s.script = u.partialPictures("image_edit", pictures[0], r.PartialImages, addImageTokens(imagesUsage(r, r.PartialImages, f), shown))
		return serve.Reply("text/event-stream", s), nil
	}
	response := u.imagesResponse(r, pictures, int64(width), int64(height), f)
	response.Usage = addImageTokens(response.Usage, shown)
	response.Background, response.Quality = e.Background, e.Quality
	return u.sendJSON(ctx, response, f)
}

// readForm reads the call's form as it goes over the wire.
func readForm(call *upstream.Call) (*upstream.Form, error) {
	boundary, ok, err := formdata.Boundary(call.ContentType)
	if !ok || err != nil {
		return nil, vendorError(400, fault.InvalidRequest, "", "The simulated vendor takes multipart forms only.")
	}
	body, _, err := call.Body.Open()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	form, err := formdata.Read(body, boundary, formdata.Options{})
	if err = errors.Join(err, body.Close()); err != nil {
		f := fault.From(err)
		return nil, vendorError(400, f.Code, f.Param, f.Message)
	}
	return form, nil
}

// edit reads and checks the form.
func (u *Upstream) edit(call *upstream.Call, form *upstream.Form) (*imagesapi.Request, error) {
	r, err := imagesapi.ParseForm(form)
	if err == nil {
		err = r.Validate()
	}
	if err == nil {
		err = checkFiles(r.Edit, form)
	}
	if err := u.refusal(err, call.Model); err != nil {
		return nil, err
	}
	return r, nil
}

// checkFiles are the rules that the public API does not have.
func checkFiles(e *images.Edit, form *upstream.Form) error {
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

// addImageTokens adds the input tokens of the images to a report that has some.
func addImageTokens(u *images.Usage, tokens int64) *images.Usage {
	if u == nil || u.InputTokensDetails == nil {
		return u
	}
	u.InputTokensDetails.ImageTokens = tokens
	u.InputTokens += tokens
	u.TotalTokens += tokens
	return u
}

// picture is a PNG file of a size with a pattern made of the hash of a text: the
// same text has the same bytes.
func picture(text string, width, height int) []byte {
	const cells = 8 // along each side, mirrored at the middle
	hash := sha256.Sum256([]byte(text))
	ink := color.RGBA{hash[0] / 2, hash[1] / 2, hash[2] / 2, 0xff}
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.White, ink})
	for y := range height {
		row := m.Pix[y*m.Stride:]
		for x := range width {
			column := x * cells / width
			column = min(column, cells-1-column)
			if bit := y*cells/height*cells + column; hash[4+bit/8]>>(bit%8)&1 == 1 {
				row[x] = 1
			}
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, m); err != nil {
		return nil // a buffer takes everything
	}
	return withComment(file.Bytes())
}

// withComment puts a text chunk behind the header of a PNG file, which says
// that the picture is none.
func withComment(file []byte) []byte {
	const header = 8 + 25 // the signature and the chunk IHDR
	body := []byte("tEXtComment\x00Simulated by tollhouse: no model made this picture.")
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(body)-4))
	chunk = append(chunk, body...)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(body))
	return append(append(append([]byte{}, file[:header]...), chunk...), file[header:]...)
}
