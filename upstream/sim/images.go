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
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/formdata"
	imagesop "github.com/tollhouse-ai/gateway/internal/operation/images"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

const (
	pictureTokens    = 1_056 // of an image that is generated
	partialTokens    = 100   // of a partial one
	inputImageTokens = 194   // of one that is to be changed
	usualSide        = 1024  // of an image for which no size is asked
	mostPixels       = 3840 * 2160
	pngURL           = "data:image/png;base64,"
)

// generateImages answers a request for images: areas of one colour, as PNG files
// that say that they are simulated.
func (u *Upstream) generateImages(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, _, err := request(u, call, imagesop.Parse, obeys[*imagesop.Request], checkDrawing)
	if err != nil {
		return nil, err
	}
	return u.draw(ctx, r, promptText(r), f)
}

// editImages answers a request for changed images. It reads the form from the wire.
func (u *Upstream) editImages(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	boundary, ok, err := formdata.Boundary(call.ContentType)
	if !ok || err != nil {
		return nil, vendorError(400, fault.InvalidRequest, "", "The simulated vendor takes multipart forms only.")
	}
	body, _, err := call.Body.Open()
	if err != nil {
		return nil, unreadable(err)
	}
	form, err := formdata.Read(body, boundary, formdata.Options{})
	if err = errors.Join(err, body.Close()); err != nil {
		f := fault.From(err)
		return nil, vendorError(400, f.Code, f.Param, f.Message)
	}
	defer func() { _ = form.Close() }() // a temporary file without a name
	r, err := imagesop.ParseForm(form)
	if err == nil {
		err = errors.Join(obeys(r), checkParts(form), checkDrawing(r))
	}
	if err := u.refusal(err, call.Model); err != nil {
		return nil, err
	}
	sum, err := form.Sum()
	if err != nil {
		return nil, unreadable(err)
	}
	return u.draw(ctx, r, hex.EncodeToString(sum[:]), f)
}

// imageTypes are those of files, by their extension.
var imageTypes = map[string]string{".png": imagesop.TypePNG, ".jpg": imagesop.TypeJPEG, ".jpeg": imagesop.TypeJPEG, ".webp": imagesop.TypeWebP}

// checkParts is as strict about a form as a vendor. No field is empty, and a file has a name
// and a type that fit each other.
func checkParts(form *upstream.Form) error {
	for i := range form.Parts {
		switch p := &form.Parts[i]; {
		case p.Size == 0:
			return fault.Invalid(p.Name, fmt.Sprintf("The simulated vendor takes no empty %q.", p.Name))
		case p.Filename == "":
		case imageTypes[strings.ToLower(filepath.Ext(p.Filename))] != p.ContentType:
			return fault.Invalid(p.Name, fmt.Sprintf("The simulated vendor does not take the file name %q for the type %q.", p.Filename, p.ContentType))
		}
	}
	return nil
}

// checkDrawing checks the rules that the public API does not have.
func checkDrawing(r *imagesop.Request) error {
	switch {
	case promptText(r) == "":
		return fault.Invalid("prompt", "The simulated vendor needs a prompt.")
	case r.OutputFormat != "" && r.OutputFormat != "png":
		return fault.Invalid("output_format", "The simulated vendor makes PNG files only.")
	}
	return nil
}

// promptText is the text of a request, whichever form it has.
func promptText(r *imagesop.Request) string {
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

// draw makes the images and replies with them, whole or as a stream. Equal seeds give equal
// images. Instead of a link the answer has a "data:" URL: no server stands behind it.
func (u *Upstream) draw(ctx context.Context, r *imagesop.Request, seed string, f Fault) (*upstream.Reply, error) {
	size := r.Size
	if r.Parameters != nil {
		size = r.Parameters.Size
	}
	width, height, named := imagesop.Pixels(size)
	if !named {
		width, height = usualSide, usualSide
	}
	if width*height > mostPixels {
		return nil, vendorError(400, fault.InvalidRequest, "size", fmt.Sprintf("The simulated vendor makes pictures of at most %d pixels.", mostPixels))
	}
	pictures := make([]string, r.Count())
	for i := range pictures {
		pictures[i] = base64.StdEncoding.EncodeToString(picture(fmt.Sprint(seed, i), int(width), int(height)))
	}
	if r.Stream {
		return u.sendStream(ctx, drawingEvents(r, pictures[0], u.now().Unix(), f), f), nil
	}
	if r.Input != nil { // the form of the vendor that puts images into messages
		var blocks []images.Block
		for _, p := range pictures {
			blocks = append(blocks, images.Block{Image: pngURL + p})
		}
		answer := object{"output": &images.Output{Choices: []images.Choice{
			{FinishReason: "stop", Message: images.Message{Role: "assistant", Content: blocks}},
		}}}
		usage := func(count int) object { return object{"image_count": count, "width": width, "height": height} }
		f.report(answer, usage(len(pictures)), usage(0))
		return u.sendJSON(ctx, answer, f)
	}
	response := &images.Response{Created: u.now().Unix(), OutputFormat: "png", Size: fmt.Sprintf("%dx%d", width, height), Usage: drawingUsage(r, 0, f)}
	if r.Edit != nil {
		response.Background, response.Quality = r.Edit.Background, r.Edit.Quality
	}
	for _, p := range pictures {
		i := images.Image{B64JSON: p}
		if r.ResponseFormat == "url" {
			i = images.Image{URL: pngURL + p}
		}
		response.Data = append(response.Data, i)
	}
	return u.sendJSON(ctx, response, f)
}

// drawingUsage is the report of tokens; nil where the vendor would make none.
func drawingUsage(r *imagesop.Request, partials int64, f Fault) *images.Usage {
	switch {
	case !r.CountsTokens() || f.NoUsage:
		return nil
	case f.ZeroUsage:
		return &images.Usage{Extra: []byte(`{"input_tokens":0,"output_tokens":0}`)} // spelled out, since absent is not zero
	}
	text, output, changed := tokens(r.Prompt), r.Count()*pictureTokens+partials*partialTokens, int64(0)
	if r.Edit != nil {
		changed = int64(len(r.Edit.Images)) * inputImageTokens
	}
	return &images.Usage{
		InputTokens: text + changed, InputTokensDetails: &images.Details{TextTokens: text, ImageTokens: changed},
		OutputTokens: output, TotalTokens: text + changed + output,
	}
}

// drawingEvents are the events of a stream: the image again and again, since it is simple
// enough to be complete at once.
func drawingEvents(r *imagesop.Request, picture string, created int64, f Fault) iter.Seq[[]byte] {
	prefix := "image_generation."
	if r.Edit != nil {
		prefix = "image_edit."
	}
	type event struct {
		Type      string        `json:"type"`
		B64JSON   string        `json:"b64_json"`
		CreatedAt int64         `json:"created_at"`
		Index     *int64        `json:"partial_image_index,omitzero"`
		Usage     *images.Usage `json:"usage,omitzero"`
	}
	encode := func(name string, index *int64, usage *images.Usage) []byte {
		data, _ := json.Marshal(event{prefix + name, picture, created, index, usage}) // strings and numbers marshal
		return sse.AppendEvent(nil, prefix+name, data)
	}
	return func(yield func([]byte) bool) {
		for i := range r.PartialImages {
			if !yield(encode("partial_image", &i, nil)) {
				return
			}
		}
		yield(encode("completed", nil, drawingUsage(r, r.PartialImages, f)))
	}
}

// picture returns a PNG file of a size, in a colour made of the hash of a text: the
// same text has the same bytes. A text chunk says that it is simulated.
func picture(text string, width, height int) []byte {
	const header = 8 + 25 // the signature and the chunk IHDR
	hash := sha256.Sum256([]byte(text))
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.RGBA{hash[0], hash[1], hash[2], 0xff}})
	var file bytes.Buffer
	_ = png.Encode(&file, m) // a buffer takes everything
	note := []byte("tEXtComment\x00Simulated by tollhouse: no model made this picture.")
	chunk := append(binary.BigEndian.AppendUint32(nil, uint32(len(note)-4)), note...)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(note))
	return slices.Insert(file.Bytes(), header, chunk...)
}
