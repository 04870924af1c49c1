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

// What the tokens of a picture are, whatever it shows: of one that is made, of a
// partial one, and of one that is to be changed.
const (
	pictureTokens    = 1_056
	partialTokens    = 100
	inputImageTokens = 194
)

// Pictures are of this size where none is asked for, and never larger than the
// other.
const (
	usualSide  = 1024
	mostPixels = 3840 * 2160
	pngURL     = "data:image/png;base64,"
)

// drawing is a request for pictures, of a text alone or of other pictures.
type drawing struct {
	*imagesop.Request
	seed        string // equal seeds have equal pictures
	events      string // what the names of a stream's events begin with
	inputTokens int64  // of the pictures that are to be changed
}

// generateImages answers a request for pictures: areas of one colour, as PNG files
// that say that they are simulated.
// Where a vendor would give a link, the answer has a "data:" URL: there is no
// server behind it.
func (u *Upstream) generateImages(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, err := request(u, call, imagesop.Parse, (*imagesop.Request).Validate, checkGeneration)
	if err != nil {
		return nil, err
	}
	return u.draw(ctx, &drawing{Request: r, seed: promptText(r), events: "image_generation"}, f)
}

func checkGeneration(r *imagesop.Request) error {
	switch {
	case promptText(r) == "":
		return fault.Invalid("prompt", "The simulated vendor needs a prompt.")
	case r.OutputFormat != "" && r.OutputFormat != "png":
		return fault.Invalid("output_format", "The simulated vendor makes PNG files only.")
	}
	return nil
}

// editImages answers a request for changed pictures. It reads the form from the wire, and is
// as strict as a vendor: a file has a name and a type that fit its content, and no field is
// empty.
func (u *Upstream) editImages(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	form, err := readForm(call)
	if err != nil {
		return nil, err
	}
	defer func() { _ = form.Close() }() // a temporary file without a name
	r, err := imagesop.ParseForm(form)
	if err == nil {
		err = errors.Join(r.Validate(), checkEdit(r.Edit, form))
	}
	if err := u.refusal(err, call.Model); err != nil {
		return nil, err
	}
	sum, err := form.Sum()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	d := &drawing{Request: r, seed: hex.EncodeToString(sum[:]), events: "image_edit", inputTokens: int64(len(r.Edit.Images)) * inputImageTokens}
	return u.draw(ctx, d, f)
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

// imageTypes are those of files, by their extension.
var imageTypes = map[string]string{".png": imagesop.TypePNG, ".jpg": imagesop.TypeJPEG, ".jpeg": imagesop.TypeJPEG, ".webp": imagesop.TypeWebP}

// checkEdit are the rules that the public API does not have.
func checkEdit(e *images.Edit, form *upstream.Form) error {
	for i := range form.Parts {
		switch p := &form.Parts[i]; {
		case p.Size == 0:
			return fault.Invalid(p.Name, fmt.Sprintf("The simulated vendor takes no empty %q.", p.Name))
		case p.Filename == "":
		case imageTypes[strings.ToLower(filepath.Ext(p.Filename))] != p.ContentType:
			return fault.Invalid(p.Name, fmt.Sprintf("The simulated vendor does not take the file name %q for the type %q.", p.Filename, p.ContentType))
		}
	}
	switch {
	case e.Prompt == "":
		return fault.Invalid("prompt", "The simulated vendor needs a prompt.")
	case e.OutputFormat != "" && e.OutputFormat != "png":
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

// draw makes the pictures and replies with them, whole or as a stream.
func (u *Upstream) draw(ctx context.Context, d *drawing, f Fault) (*upstream.Reply, error) {
	size := d.Size
	if d.Parameters != nil {
		size = d.Parameters.Size
	}
	width, height, named := imagesop.Pixels(size)
	if !named {
		width, height = usualSide, usualSide
	}
	if width*height > mostPixels {
		return nil, vendorError(400, fault.InvalidRequest, "size", fmt.Sprintf("The simulated vendor makes pictures of at most %d pixels.", mostPixels))
	}
	pictures := make([]string, d.Count())
	for i := range pictures {
		pictures[i] = base64.StdEncoding.EncodeToString(picture(fmt.Sprint(d.seed, i), int(width), int(height)))
	}
	switch {
	case d.Stream:
		return u.sendStream(ctx, d.stream(pictures[0], u.now().Unix(), f), f), nil
	case d.Input != nil: // the form of the vendor that puts pictures into messages
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
	response := &images.Response{Created: u.now().Unix(), OutputFormat: "png", Size: fmt.Sprintf("%dx%d", width, height), Usage: d.usage(0, f)}
	if d.Edit != nil {
		response.Background, response.Quality = d.Edit.Background, d.Edit.Quality
	}
	for _, p := range pictures {
		i := images.Image{B64JSON: p}
		if d.ResponseFormat == "url" {
			i = images.Image{URL: pngURL + p}
		}
		response.Data = append(response.Data, i)
	}
	return u.sendJSON(ctx, response, f)
}

// usage is the report of tokens; nil where the vendor would make none.
func (d *drawing) usage(partials int64, f Fault) *images.Usage {
	switch {
	case !d.CountsTokens() || f.NoUsage:
		return nil
	case f.ZeroUsage:
		return &images.Usage{Extra: []byte(`{"input_tokens":0,"output_tokens":0}`)} // spelled out, since absent is not zero
	}
	text, output := tokens(d.Prompt), d.Count()*pictureTokens+partials*partialTokens
	return &images.Usage{
		InputTokens: text + d.inputTokens, InputTokensDetails: &images.Details{TextTokens: text, ImageTokens: d.inputTokens},
		OutputTokens: output, TotalTokens: text + d.inputTokens + output,
	}
}

// stream are the events of a stream: the picture again and again, since it is simple
// enough to be complete at once.
func (d *drawing) stream(picture string, created int64, f Fault) iter.Seq[[]byte] {
	type event struct {
		Type      string        `json:"type"`
		B64JSON   string        `json:"b64_json"`
		CreatedAt int64         `json:"created_at"`
		Index     *int64        `json:"partial_image_index,omitzero"`
		Usage     *images.Usage `json:"usage,omitzero"`
	}
	encode := func(e event) []byte {
		e.B64JSON, e.CreatedAt = picture, created
		data, _ := json.Marshal(e) // strings and numbers marshal
		return sse.AppendEvent(nil, e.Type, data)
	}
	return func(yield func([]byte) bool) {
		for i := range d.PartialImages {
			if !yield(encode(event{Type: d.events + ".partial_image", Index: &i})) {
				return
			}
		}
		yield(encode(event{Type: d.events + ".completed", Usage: d.usage(d.PartialImages, f)}))
	}
}

// picture is a PNG file of a size in a colour that is made of the hash of a text: the
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
