package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

// drawing is a picture of a size.
func drawing(width, height int) image.Image {
	return image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Black, color.White})
}

func pngOf(t testing.TB, width, height int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, drawing(width, height)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func jpegOf(t testing.TB, width, height int) string {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, drawing(width, height), nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gifOf(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	if err := gif.Encode(&b, drawing(8, 8), nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// webpOf is the beginning of a WebP file: nobody unfolds it here.
func webpOf(chunk string, body ...byte) string {
	data := append([]byte("WEBP"+chunk+"\x16\x00\x00\x00"), append(body, make([]byte, 22-len(body))...)...)
	return "RIFF" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(data)))) + string(data)
}

// claims is a PNG file that says it is of a size, and is cut nowhere.
func claims(width, height uint32) string {
	chunk := append([]byte("IHDR"), binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)...)
	chunk = append(chunk, 8, 0, 0, 0, 0)
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(chunk))
	return "\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + string(chunk) + string(sum) + "\x00\x00\x00\x00" + pngTail
}

func file(name, content string) upstream.Part {
	p := upstream.Field(name, content)
	p.Filename, p.ContentType = "anonymous_file", "application/octet-stream"
	return p
}

// editing is a good form for a model, with more parts. A part that is named
// stands for the form's own.
func editing(t testing.TB, model string, more ...upstream.Part) *upstream.Form {
	t.Helper()
	parts := more
	given := func(name string) bool {
		for i := range more {
			if more[i].Name == name {
				return true
			}
		}
		return false
	}
	for _, p := range []upstream.Part{file("image", pngOf(t, 16, 16)), upstream.Field("model", model), upstream.Field("prompt", "make it blue")} {
		if !given(p.Name) && !(p.Name == "image" && given("image[]")) {
			parts = append(parts, p)
		}
	}
	return &upstream.Form{Parts: parts, Boundary: "B"}
}

func fields(pairs ...string) (parts []upstream.Part) {
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, upstream.Field(pairs[i], pairs[i+1]))
	}
	return parts
}

const newest, first, legacy = "imagegen-2", "imagegen-1", "imagegen-legacy-2"

type editRow struct {
	name  string
	form  *upstream.Form
	param string // of the refusal; empty where there is none
}

// editFields are values of fields, by the parameter that refuses them: none where it is empty.
var editFields = map[string]map[string][]string{
	"n":               {"": {"1", "10", ""}, "n": {"0", "11", "-1", "1.0", "1e0", "+1", "01", " 1", "one"}},
	"quality":         {"": {"auto", "low", "medium", "high", "standard", "hd", ""}, "quality": {"best", "HD"}},
	"output_format":   {"": {"png", "jpeg", "webp", ""}, "output_format": {"gif", "PNG"}},
	"background":      {"": {"transparent", "opaque", "auto", ""}, "background": {"red"}},
	"response_format": {"": {"b64_json", ""}, "response_format": {"url", "json"}},
	"size":            {"": {"auto", "1024x1024", "1024x1536", "1536x1024", ""}, "size": {"256x256", "512x512", "2048x2048", "3840x2160", "1024*1024", "large"}},
	"stream":          {"": {"true", "false", ""}, "stream": {"1", "yes", "True"}},
	"partial_images":  {"": {"0", "3"}, "partial_images": {"4", "x"}},
	"user":            {"": {"u", "12", ""}, "user": nil},
	"x_unknown":       {"": {"1", "", "\xff"}},
}

// legacyEditFields are those of the legacy model.
var legacyEditFields = map[string]map[string][]string{
	"size":            {"": {"auto", "256x256", "512x512", "1024x1024"}, "size": {"1024x1536", "1536x1024"}},
	"response_format": {"": {"url", "b64_json"}},
	"output_format":   {"output_format": {"png"}},
	"background":      {"background": {"auto"}},
	"stream":          {"": {"false"}, "stream": {"true"}},
	"quality":         {"": {"standard"}},
}

// fieldRows has one row for each value of a table.
func fieldRows(t testing.TB, prefix, model string, table map[string]map[string][]string) (rows []editRow) {
	for field, values := range table {
		for param, all := range values {
			for _, v := range all {
				rows = append(rows, editRow{fmt.Sprintf("%s%s=%q", prefix, field, v), editing(t, model, fields(field, v)...), param})
			}
		}
	}
	return rows
}

// editRows are the rules of edits, each with what keeps it and what breaks it.
func editRows(t testing.TB) []editRow {
	square, wide, photo := pngOf(t, 16, 16), pngOf(t, 32, 16), jpegOf(t, 16, 16)
	webp := webpOf("VP8X", 0, 0, 0, 0, 15, 0, 0, 15, 0, 0)
	row := func(name, param, model string, parts ...upstream.Part) editRow {
		return editRow{name, editing(t, model, parts...), param}
	}
	rows := []editRow{
		row("the least", "", newest), row("the least of imagegen-1", "", first), row("the least of the legacy model", "", legacy),
		row("no model", "model", newest, fields("model", "")...),
		row("a model's id that is too long", "model", newest, fields("model", strings.Repeat("m", 257))...),
		row("no prompt", "prompt", newest, fields("prompt", "")...),
		row("a prompt that is no text", "prompt", newest, fields("prompt", "a\xff")...),
		row("the longest prompt", "", newest, fields("prompt", strings.Repeat("é", 32_000))...),
		row("a longer prompt", "prompt", newest, fields("prompt", strings.Repeat("é", 32_001))...),
		row("a novel", "prompt", newest, fields("prompt", strings.Repeat("x", 1<<20+1))...),
		row("the longest prompt of the legacy model", "", legacy, fields("prompt", strings.Repeat("é", 1_000))...),
		row("a longer prompt for the legacy model", "prompt", legacy, fields("prompt", strings.Repeat("é", 1_001))...),

		row("no image", "image", newest, upstream.Field("image", "")),
		row("an image of no bytes", "image", newest, file("image", "")),
		row("a JPEG", "", newest, file("image", photo)), row("a WebP", "", newest, file("image", webp)),
		row("a PNG with bytes behind its end", "", newest, file("image", square+"more")),
		row("a PNG with many bytes behind its end", "", newest, file("image", square+strings.Repeat("\x00", 200<<10))),
		row("a PNG whose end stands across the reads", "", newest, file("image", claims(16, 16)[:33]+strings.Repeat("\x00", 64<<10-33-6)+pngTail+strings.Repeat("\x00", 100<<10))),
		row("a PNG without its end", "image", newest, file("image", square[:len(square)-4]+strings.Repeat("\x00", 200<<10))),
		row("a JPEG with bytes behind its end", "", newest, file("image", photo+strings.Repeat("\x00", 200<<10))),
		row("a WebP with bytes behind its end", "", newest, file("image", webp+strings.Repeat("\x00", 200<<10))),
		row("image[]", "", newest, file("image[]", square)),
		row("image[] twice", "", newest, file("image[]", square), file("image[]", photo)),
		row("image twice", "", first, file("image", square), file("image", photo)),
		row("image and image[]", "", newest, file("image", square), file("image[]", photo)),
		row("an image without a file name", "", newest, upstream.Field("image", square)),
		row("two images for the legacy model", "image", legacy, file("image", square), file("image", square)),
		row("a JPEG for the legacy model", "image", legacy, file("image", photo)),
		row("a wide PNG for the legacy model", "image", legacy, file("image", wide)),
		row("a large PNG for the legacy model", "image", legacy, file("image", square+strings.Repeat("\x00", 4<<20)+pngTail)),

		row("a mask", "", newest, file("mask", square)), row("a mask of the legacy model", "", legacy, file("mask", square)),
		row("an empty mask", "", newest, upstream.Field("mask", "")),
		row("a mask of no bytes", "mask", newest, file("mask", "")),
		row("a mask of another size", "mask", newest, file("mask", wide)),
		row("a mask of another height", "mask", newest, file("mask", pngOf(t, 16, 32))),
		row("sixteen images", "", newest, slices.Repeat([]upstream.Part{file("image[]", square)}, 16)...),
		row("seventeen images", "image", newest, slices.Repeat([]upstream.Part{file("image[]", square)}, 17)...),
		row("a mask of the second image's size", "mask", newest, file("image[]", square), file("image[]", wide), file("mask", wide)),
		row("a mask of the first image's size", "", newest, file("image[]", wide), file("image[]", square), file("mask", wide)),
		row("a mask that is a JPEG", "mask", newest, file("mask", photo)),
		row("a mask that is too large", "mask", newest, file("mask", square+strings.Repeat("\x00", 4<<20)+pngTail)),

		row("a file's type is nothing to go by", "image", newest, upstream.Part{
			Name: "image", Filename: "a.png", ContentType: TypePNG, Size: 3, Content: upstream.Field("", "GIF").Content,
		}),
	}
	for name, content := range badFiles(t) {
		rows = append(rows, row("image: "+name, "image", newest, file("image", content)), row("mask: "+name, "mask", newest, file("mask", content)))
	}
	rows = append(rows, fieldRows(t, "", newest, editFields)...)
	rows = append(rows, fieldRows(t, "legacy: ", legacy, legacyEditFields)...)
	return append(rows,
		row("transparent in a JPEG", "background", newest, fields("background", "transparent", "output_format", "jpeg")...),
		row("transparent in a WebP", "", newest, fields("background", "transparent", "output_format", "webp")...),
		row("opaque in a JPEG", "", newest, fields("background", "opaque", "output_format", "jpeg")...),
		row("a stream of two", "n", newest, fields("stream", "true", "n", "2")...),
		row("another endpoint's model", "model", "alpha-image-edit"),
		row("another endpoint's family", "model", "alpha-image-9"),
		row("an unknown model takes what there is", "", "pixels-9", fields("size", "7x7", "quality", "best", "n", "100", "prompt", "")...),
		row("an unknown model takes no more pictures", "n", "pixels-9", fields("n", "101")...),
		row("an unknown model needs an image", "image", "pixels-9", upstream.Field("image", "")),
		row("an unknown model takes no other file", "image", "pixels-9", file("image", "GIF89a")),
		row("an unknown model's mask fits", "mask", "pixels-9", file("mask", wide)),
	)
}

// badFiles are files that no picture can be made of, of which each must cost
// nothing.
func badFiles(t testing.TB) map[string]string {
	whole, photo := pngOf(t, 16, 16), jpegOf(t, 16, 16)
	return map[string]string{
		"a GIF":                   gifOf(t),
		"an HTML page":            "<!doctype html><title>not found</title>",
		"a text":                  "hello",
		"one byte":                "\x89",
		"a PNG without its end":   whole[:len(whole)-12],
		"a PNG cut in its header": whole[:20],
		"a PNG's signature":       whole[:8],
		"a PNG of another chunk":  strings.Replace(whole, "IHDR", "IDAT", 1),
		"a PNG of no pixels":      claims(0, 16),
		"a PNG that is too wide":  claims(65_536, 1),
		"a PNG of a gigapixel":    claims(32_000, 32_000),
		"a PNG beyond everything": claims(1<<32-1, 1<<32-1),
		"a JPEG cut in a segment": photo[:40],
		"a JPEG's signature":      photo[:3],
		"a JPEG without a frame":  "\xff\xd8\xff\xd9",
		"a JPEG of pixels alone":  "\xff\xd8\xff\xda\x00\x02",
		"a JPEG of no segment":    "\xff\xd8\xff\xe0\x00\x00\xff\xc0",
		"a JPEG of nonsense":      "\xff\xd8\xff\xe0\x00\x02nonsense",
		"a JPEG of 12 bits":       "\xff\xd8\xff\xc1\x00\x0b\x0c\x01\x02\x03\x04\x01\x01\x11\x00\xff\xda\x00\x02",
		"a JPEG of no end":        "\xff\xd8" + strings.Repeat("\xff\xe0\x00\x02", 1<<20+1),
		"a WebP that is cut":      webpOf("VP8L", 0x2f)[:29],
		"a WebP of another kind":  webpOf("ALPH"),
		"a WebP without its code": webpOf("VP8 ", 0, 0, 0, 1, 2, 3),
		"a lossless WebP of none": webpOf("VP8L", 0),
		"a WebP of a gigapixel":   webpOf("VP8X", 0, 0, 0, 0, 0xff, 0xff, 0, 0xff, 0xff, 0),
		"another RIFF file":       strings.Replace(webpOf("VP8L", 0x2f), "WEBP", "WAVE", 1),
	}
}

func refusalOf(t testing.TB, form *upstream.Form) *fault.Error {
	t.Helper()
	e, err := ParseForm(form)
	if err == nil {
		err = e.Check(&operation.Facts{}, nil, nil)
	}
	if err == nil {
		return nil
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Fatal(err)
	}
	return f
}

func TestEveryRuleOfEditsIsKeptOrNamed(t *testing.T) {
	for _, row := range editRows(t) {
		f := refusalOf(t, row.form)
		switch {
		case row.param == "" && f != nil:
			t.Errorf("%s: %v", row.name, f)
		case row.param != "" && (f == nil || f.HTTPStatus() != 400 || f.Param != row.param || len(f.Message) < 20 || len(f.Message) > 400):
			t.Errorf("%s: %v, want a refusal of %s", row.name, f, row.param)
		}
	}
}

func TestRefusalsOfEditsSayWhatIsWrong(t *testing.T) {
	square := file("image", pngOf(t, 16, 16))
	for name, row := range map[string]struct {
		form  *upstream.Form
		code  fault.Code
		words string
	}{
		"a mask of another size":            {editing(t, newest, file("mask", pngOf(t, 32, 16))), fault.InvalidMask, "32 by 16 pixels large and the image 16 by 16"},
		"a mask that is no image":           {editing(t, newest, file("mask", "GIF89a")), fault.InvalidRequest, "neither a PNG"},
		"two images of the legacy model":    {editing(t, legacy, square, square), fault.InvalidRequest, "takes one image, not 2"},
		"a number of 0, which an SDK sends": {editing(t, newest, fields("n", "0")...), fault.InvalidRequest, "leave it out"},
	} {
		if f := refusalOf(t, row.form); f == nil || f.Code != row.code || f.HTTPStatus() != 400 || !strings.Contains(f.Message, row.words) {
			t.Errorf("%s: got %v, want %s: %s", name, f, row.code, row.words)
		}
	}
}

func TestABilledFieldHasOneSpelling(t *testing.T) {
	for _, name := range []string{"Model", "N", "SIZE", "Quality", "n[]", "model[0]", "Stream", "Image", "IMAGE[]", "image[0]", "Mask", "mask[]", "user[]"} {
		if f := refusalOf(t, editing(t, newest, fields(name, "1")...)); f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, "spell it") {
			t.Errorf("%s: %v", name, f)
		}
	}
	for _, field := range openAI {
		name := field.Name
		if f := refusalOf(t, editing(t, newest, fields(name, "1", name, "1")...)); f == nil || f.Param != name || !strings.Contains(f.Message, "twice") {
			t.Errorf("%s: %v", name, f)
		}
	}
	if f := refusalOf(t, editing(t, newest, file("mask", pngOf(t, 16, 16)), file("mask", pngOf(t, 16, 16)))); f == nil || f.Param != "mask" {
		t.Error(f)
	}
	if f := refusalOf(t, editing(t, newest, fields("x", "1", "x", "2", "X", "3")...)); f != nil {
		t.Error(f)
	}
}

func TestTheOrderOfPartsDoesNotMatter(t *testing.T) {
	form := editing(t, newest, fields("n", "2", "size", "1024x1024")...)
	for range form.Parts {
		form.Parts = append(form.Parts[1:], form.Parts[0])
		e, err := ParseForm(form)
		if err != nil || e.Check(&operation.Facts{}, nil, nil) != nil || e.Count() != 2 || e.Size != "1024x1024" || len(e.Edit.Images) != 1 {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

func TestATypedEditObeysTheSameRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cube.png")
	if err := os.WriteFile(path, []byte(pngOf(t, 16, 16)), 0o600); err != nil {
		t.Fatal(err)
	}
	onDisk, err := images.PathFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read, err := images.ReaderFile("", strings.NewReader(jpegOf(t, 8, 4)))
	if err != nil {
		t.Fatal(err)
	}
	mask := images.BytesFile("", []byte(pngOf(t, 16, 16)))
	typed := &images.Edit{
		Model: newest, Prompt: "make it blue", Images: []images.File{onDisk, read}, Mask: &mask, N: 2, Size: "1024x1024", Quality: "hd",
		Background: "opaque", OutputFormat: "png", ResponseFormat: "b64_json", User: "u", Stream: true, PartialImages: 1,
		Extra: map[string]string{"b": "2", "input_fidelity": "high"},
	}
	e, err := EncodeForm(typed)
	if err != nil {
		t.Fatal(err)
	}
	if f := fault.From(e.Check(&operation.Facts{}, nil, nil)); f == nil || f.Param != "n" { // a stream has one picture
		t.Error(f)
	}
	typed.Stream = false
	if e, err = EncodeForm(typed); err != nil || e.Check(&operation.Facts{}, nil, nil) != nil {
		t.Fatal(err, e.Check(&operation.Facts{}, nil, nil))
	}
	if e.Model != typed.Model || e.Prompt != typed.Prompt || e.N != 2 || e.Size != typed.Size || e.Edit.Quality != "hd" || e.User != "u" ||
		e.Background != "opaque" || e.OutputFormat != "png" || e.PartialImages != 1 || e.Edit.Extra["input_fidelity"] != "high" || e.Edit.Extra["b"] != "2" {
		t.Errorf("%+v", e)
	}
	if len(e.Edit.Images) != 2 || e.Edit.Images[0].Width != 16 || e.Edit.Images[1].ContentType != TypeJPEG || e.Edit.Images[1].Height != 4 || e.Edit.Mask == nil || e.Edit.Mask.ContentType != TypePNG {
		t.Errorf("images %+v, mask %+v", e.Edit.Images, e.Edit.Mask)
	}
	if _, err := images.PathFile(filepath.Dir(path)); err == nil {
		t.Error("a directory is no file")
	}
	if _, err := images.ReaderFile("", io.LimitReader(endless{}, maxImageBytes+1)); err == nil {
		t.Error("a file that nobody takes was read")
	}
	if _, err := EncodeForm(&images.Edit{Model: newest, Images: []images.File{{Size: 1, Open: func() (io.ReadCloser, error) { return nil, os.ErrNotExist }}}}); !fault.Is(err, fault.InternalError) {
		t.Errorf("a file that is gone: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestWhatIsHeldForAnEditCoversItsImages(t *testing.T) {
	e, err := ParseForm(editing(t, newest, file("image[]", pngOf(t, 16, 16)), file("image[]", pngOf(t, 32, 16)), file("mask", pngOf(t, 16, 16))))
	if err != nil {
		t.Fatal(err)
	}
	if e.ImageInputBound() != 3*maxImageTokens || e.InputBound() != int64(len("make it blue"))+tokensAround || e.OutputBound(0) != 16_384 || e.OutputBound(7) != 7 {
		t.Errorf("%d, %d, %d", e.ImageInputBound(), e.InputBound(), e.OutputBound(0))
	}
	prompt, shown := e.Estimate()
	if prompt != 4 || shown != 3*firstTileTokens+4*nextTileTokens {
		t.Errorf("estimated %d and %d", prompt, shown)
	}
	low, err := ParseForm(editing(t, first, fields("quality", "standard", "size", "1024x1024")...))
	if err != nil || low.OutputBound(0) != 1584 { // what it is sent as: medium
		t.Errorf("%d, %v", low.OutputBound(0), err)
	}
	old, err := ParseForm(editing(t, legacy))
	if err != nil || old.ImageInputBound() != 0 || old.OutputBound(0) != 0 || old.Count() != 1 {
		t.Errorf("%d, %d, %v", old.ImageInputBound(), old.OutputBound(0), err)
	}
	unknown, err := ParseForm(editing(t, "pixels-9", fields("x", strings.Repeat("x", 1000))...))
	if err != nil || unknown.InputBound() != 1000+int64(len("pixels-9make it blue"))+tokensAround {
		t.Errorf("%d, %v", unknown.InputBound(), err)
	}
	extreme := images.File{Width: 65_535, Height: 1}
	if fileTokens(&extreme) != maxImageTokens {
		t.Errorf("%d tokens", fileTokens(&extreme))
	}
}

// FuzzParseForm feeds any fields to the parser: what it refuses is a 400, and
// what it takes obeys the rules as it is sent, and says the same there.
func FuzzParseForm(f *testing.F) {
	for _, seed := range []string{"model=imagegen-2\nprompt=a\nimage=@", "model=imagegen-legacy-2\nprompt=a\nimage[]=@\nsize=auto\nn=2\nmask=@", "N=1\nx=\nuser=\nquality=hd\nmodel=imagegen-1\nprompt=b\nimage=@\nimage=@\nstream=true"} {
		f.Add(seed)
	}
	content := pngOf(f, 4, 4)
	f.Fuzz(func(t *testing.T, data string) {
		var parts []upstream.Part
		for line := range strings.Lines(data) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			if value == "@" {
				parts = append(parts, file(name, content))
				continue
			}
			parts = append(parts, upstream.Field(name, value))
		}
		e, err := ParseForm(&upstream.Form{Parts: parts, Boundary: "B"})
		if err == nil {
			err = e.Check(&operation.Facts{}, nil, nil)
		}
		if err != nil {
			var refusal *fault.Error
			if !errors.As(err, &refusal) || refusal.HTTPStatus() != 400 || refusal.Message == "" {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		again, err := ParseForm(e.Outgoing(0).Body.Form())
		if err == nil {
			err = again.Check(&operation.Facts{}, nil, nil)
		}
		if err != nil || again.Count() != e.Count() || again.Model != e.Model || again.Prompt != e.Prompt || len(again.Edit.Images) != len(e.Edit.Images) ||
			again.OutputBound(0) > e.OutputBound(0) || again.ImageInputBound() != e.ImageInputBound() || again.Stream != e.Stream {
			t.Fatalf("%q was sent as %+v, %v", data, again, err)
		}
		if e.Count() < 1 || e.Count() > maxUnknownImages || e.InputBound() < 0 || e.OutputBound(0) < 0 {
			t.Fatalf("%q: %d pictures", data, e.Count())
		}
	})
}
