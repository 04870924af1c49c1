package mcp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	imagesop "github.com/tollhouse-ai/gateway/internal/operation/images"
	"github.com/tollhouse-ai/gateway/upstream"
)

// maxPictures is how many images one call of a tool makes at most.
const maxPictures = 4

func imageTool() *tool {
	return &tool{
		name: "generate_image", title: "Make a picture",
		description: "Makes pictures from a description and returns them, or links to them that are valid for 24 hours. To change a picture that exists, use edit_image.",
		fields: []field{
			modelField("The model that makes the picture."),
			{name: "prompt", kind: stringKind, required: true, description: "What the picture is to show."},
			{name: "size", kind: stringKind, description: "Width x height in pixels, such as 1024x1024. Each model has sizes of its own; an error names them."},
			{name: "n", kind: integer, min: 1, max: maxPictures, description: "How many pictures. Each is charged.", defaultValue: 1},
			{name: "quality", kind: stringKind, description: "low, medium or high, where the model has that (imagegen models). It decides the cost."},
			{name: "seed", kind: integer, min: 0, description: "The same seed and prompt give a similar picture (alpha models)."},
			{name: "negative_prompt", kind: stringKind, description: "What the picture is not to show (alpha models)."},
		},
		models:  generatesImages,
		output:  outputSchema[imageResult](),
		request: imageRequest, answer: (*call).answerImage,
	}
}

// imageResult is the structured result of generate_image and edit_image.
type imageResult struct {
	chargeInfo
	Model  string    `json:"model" jsonschema:"the model that made the pictures"`
	Images []picture `json:"images" jsonschema:"the pictures, in the order in which they are among the contents"`
}

// picture is one of the images.
type picture struct {
	URL      string `json:"url,omitzero" jsonschema:"where the picture can be fetched for 24 hours; absent if it is among the contents"`
	MIMEType string `json:"mime_type,omitzero" jsonschema:"the type of a picture that is among the contents"`
	Bytes    int    `json:"bytes,omitzero" jsonschema:"the size of a picture that is among the contents"`
}

// imageRequest makes the request in the form of the model's family. Arguments of the other
// family are refused here, by the names that the tool has for them.
func imageRequest(a arguments) (*gateway.Request, error) {
	model := a.text("model")
	f, row, _ := imagesop.FamilyOf(model)
	if row.Fewest > 0 {
		return nil, fault.Invalid("model", fmt.Sprintf("The model %q only changes pictures: use edit_image, or another model.", model))
	}
	var b body
	if f.Messages {
		if err := refuseArguments(a, model, "", "quality"); err != nil {
			return nil, err
		}
		b = alphaImageBody(a, nil)
	} else {
		if err := refuseArguments(a, model, ", only alpha models do", "seed", "negative_prompt"); err != nil {
			return nil, err
		}
		b = body{}.copy(a, "model", "prompt", "n", "quality")
		if size := a.text("size"); size != "" {
			b["size"] = strings.ReplaceAll(size, "*", "x")
		}
	}
	return b.request(upstream.GenerateImage)
}

// alphaImageBody is the request of a model of the alpha family.
func alphaImageBody(a arguments, references []string) body {
	blocks := make([]body, 0, len(references)+1)
	for _, url := range references {
		blocks = append(blocks, body{"image": url})
	}
	blocks = append(blocks, body{"text": a.values["prompt"]})
	parameters := body{}.copy(a, "n", "seed", "negative_prompt")
	if size := a.text("size"); size != "" {
		parameters["size"] = strings.ReplaceAll(size, "x", "*")
	}
	b := body{"input": body{"messages": []body{{"role": "user", "content": blocks}}}}.copy(a, "model")
	if len(parameters) > 0 {
		b["parameters"] = parameters
	}
	return b
}

// answerImage is the result of generate_image and edit_image: images that the answer holds,
// and links to the others.
func (c *call) answerImage(r *gateway.Response) (*sdk.CallToolResult, error) {
	answer, err := decode[images.Response](r.Body, "the image form")
	if err != nil {
		return nil, err
	}
	result := imageResult{chargeInfo: c.receipt(r), Model: c.args.text("model"), Images: []picture{}}
	var contents []sdk.Content
	var size int64
	for i, image := range answer.Images() {
		p, content, err := pictureContent(image, i)
		if err != nil {
			return nil, err
		}
		size += int64(p.Bytes)
		result.Images, contents = append(result.Images, p), append(contents, content)
	}
	if err := c.checkSize(size, "Ask for fewer or smaller pictures. These were charged."); err != nil {
		return nil, err
	}
	return success(result, append(contents, textContent("%s", result.receiptLine()))...), nil
}

// pictureContent is an image as a content: its bytes, or a link to it.
func pictureContent(image images.Image, i int) (picture, sdk.Content, error) {
	data, err := image.Bytes()
	switch {
	case err == nil:
		kind := "image/png"
		if h, err := imagesop.ReadHeader(bytes.NewReader(data), int64(len(data))); err == nil {
			kind = h.ContentType
		}
		return picture{MIMEType: kind, Bytes: len(data)}, &sdk.ImageContent{Data: data, MIMEType: kind}, nil
	case image.URL != "":
		return picture{URL: image.URL}, &sdk.ResourceLink{
			URI: image.URL, Name: fmt.Sprintf("picture-%d", i+1), Title: "The picture",
			Description: "Valid for 24 hours.", MIMEType: "image/png",
		}, nil
	}
	return picture{}, nil, fault.Wrap(fault.BadGateway, "The model's answer holds a picture that cannot be read. It was charged.", err)
}

func editTool() *tool {
	return &tool{
		name: "edit_image", title: "Change a picture",
		description: "Changes or combines pictures as a text says, and returns the new ones, or links to them that are valid for 24 hours.",
		fields: []field{
			modelField("The model that changes the picture."),
			{name: "prompt", kind: stringKind, required: true, description: "What is to change."},
			{name: "images", kind: stringList, required: true, max: 16, description: "The pictures. alpha models take 1 to 3 public https URLs; " +
				"imagegen models take PNG, JPEG or WebP files as data: URIs or plain base64."},
			{name: "mask", kind: stringKind, description: "A PNG file as a data: URI or base64, as large as the first picture. Its transparent area is what changes (imagegen models)."},
			{name: "n", kind: integer, min: 1, max: maxPictures, description: "How many pictures are made. Each is charged.", defaultValue: 1},
			{name: "size", kind: stringKind, description: "Width x height in pixels of the new picture, such as 1024x1024. Each model has sizes of its own; an error names them."},
			{name: "quality", kind: stringKind, description: "low, medium or high, where the model has that (imagegen models). It decides the cost."},
			{name: "background", kind: stringKind, enum: []string{"transparent", "opaque", "auto"}, description: "The background of the new picture (imagegen models)."},
			{name: "output_format", kind: stringKind, enum: []string{"png", "jpeg", "webp"}, description: "The format of the new picture (imagegen models)."},
			{name: "seed", kind: integer, min: 0, description: "The same seed and arguments give a similar picture (alpha models)."},
			{name: "negative_prompt", kind: stringKind, description: "What the picture is not to show (alpha models)."},
		},
		models:  editsImages,
		output:  outputSchema[imageResult](),
		request: editRequest, answer: (*call).answerImage,
	}
}

// editRequest makes a form with the files, or a request with their addresses for a model that
// fetches them. The gateway itself fetches nothing that a caller names.
func editRequest(a arguments) (*gateway.Request, error) {
	model := a.text("model")
	if f, _, _ := imagesop.FamilyOf(model); f.Messages {
		return editByURLRequest(a, model)
	}
	if err := refuseArguments(a, model, ", only alpha models do", "seed", "negative_prompt"); err != nil {
		return nil, err
	}
	e := &images.Edit{
		Model: model, Prompt: a.text("prompt"), N: a.count("n"), Size: strings.ReplaceAll(a.text("size"), "*", "x"),
		Quality: a.text("quality"), Background: a.text("background"), OutputFormat: a.text("output_format"),
	}
	for i, source := range a.list("images") {
		file, err := decodeFile(fmt.Sprintf("images[%d]", i), source)
		if err != nil {
			return nil, err
		}
		e.Images = append(e.Images, file)
	}
	if a.has("mask") {
		file, err := decodeFile("mask", a.text("mask"))
		if err != nil {
			return nil, err
		}
		e.Mask = &file
	}
	parsed, err := imagesop.EncodeForm(e)
	if err != nil {
		return nil, err
	}
	return &gateway.Request{Op: upstream.EditImage, Form: parsed.Form()}, nil
}

// editByURLRequest is the request of a model that fetches the images itself.
func editByURLRequest(a arguments, model string) (*gateway.Request, error) {
	if err := refuseArguments(a, model, ", only imagegen models do", "mask", "quality", "background", "output_format"); err != nil {
		return nil, err
	}
	links := a.list("images")
	for i, link := range links {
		if !strings.HasPrefix(link, "https://") {
			return nil, fault.Invalid(fmt.Sprintf("images[%d]", i),
				fmt.Sprintf("The model %q fetches pictures itself: images[%d] must be a public https URL.", model, i))
		}
	}
	return alphaImageBody(a, links).request(upstream.GenerateImage)
}

// decodeFile decodes a file that a model sent: a data: URI, or plain base64.
func decodeFile(name, source string) (images.File, error) {
	encoded := source
	if rest, ok := strings.CutPrefix(source, "data:"); ok {
		meta, data, found := strings.Cut(rest, ",")
		if !found || !strings.HasSuffix(meta, ";base64") {
			return images.File{}, notBase64(name)
		}
		encoded = data
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		data, err = base64.RawStdEncoding.DecodeString(encoded)
	}
	if err != nil || len(data) == 0 {
		return images.File{}, notBase64(name)
	}
	if _, err := imagesop.ReadHeader(bytes.NewReader(data), int64(len(data))); err != nil {
		return images.File{}, fault.Wrap(fault.InvalidRequest, name+" is neither a PNG nor a JPEG nor a WebP file.", err).With(func(e *fault.Error) { e.Param = name })
	}
	return images.BytesFile("", data), nil
}

// notBase64 refuses an address too, for a model of files.
func notBase64(name string) error {
	return fault.Invalid(name, name+" must be a file in base64, plain or as a data: URI such as data:image/png;base64,..., for this model. It fetches no URLs.")
}
