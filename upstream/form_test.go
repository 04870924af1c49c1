package upstream_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/tollhouse-ai/gateway/upstream"
)

func formFile(name, filename, content string) upstream.Part {
	p := upstream.Field(name, content)
	p.Filename, p.ContentType = filename, "image/png"
	return p
}

func sampleForm() *upstream.Form {
	return upstream.NewForm([]upstream.Part{
		upstream.Field("model", "imagegen-2"), formFile("image", "a.png", "one"), upstream.Field("n", "2"),
		formFile("image", `q"uo\te.png`, "two"), upstream.Field("empty", ""), upstream.Field("n", "3"),
	}, nil)
}

// parts reads a body as a vendor does: each part on a line.
func parts(t *testing.T, b upstream.Body) string {
	t.Helper()
	rc, size, err := b.Open()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(iotest.OneByteReader(rc))
	if err = errors.Join(err, rc.Close()); err != nil || int64(len(data)) != size {
		t.Fatalf("%d bytes, said to be %d: %v", len(data), size, err)
	}
	_, params, err := mime.ParseMediaType(b.ContentType())
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for r := multipart.NewReader(bytes.NewReader(data), params["boundary"]); ; {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return lines.String()
		}
		if err != nil {
			t.Fatalf("%v in %q", err, data)
		}
		content, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s|%s|%s|%s\n", p.FormName(), p.FileName(), p.Header.Get("Content-Type"), content)
	}
}

func TestAFormIsEditedAsAnObjectIs(t *testing.T) {
	b := upstream.FormBody(sampleForm())
	for name, row := range map[string]struct {
		body upstream.Body
		want string
	}{
		"as it is":              {b, "model|||imagegen-2\nimage|a.png|image/png|one\nn|||2\nimage|q\"uo\\te.png|image/png|two\nempty|||\nn|||3\n"},
		"set":                   {b.Set("model", []byte(`"gpt-\u0069mage-2"`)).Set("n", []byte("1")).Set("new", []byte("true")), "model|||gpt-image-2\nimage|a.png|image/png|one\nn|||1\nimage|q\"uo\\te.png|image/png|two\nempty|||\nnew|||true\n"},
		"delete":                {b.Delete("image").Delete("n").Delete("none"), "model|||imagegen-2\nempty|||\n"},
		"rename":                {b.Rename("image", "image[]").Rename("none", "x"), "model|||imagegen-2\nimage[]|a.png|image/png|one\nn|||2\nimage[]|q\"uo\\te.png|image/png|two\nempty|||\nn|||3\n"},
		"who has the name wins": {b.Rename("image", "n").Rename("model", "model"), "model|||imagegen-2\nn|||2\nempty|||\nn|||3\n"},
	} {
		for range 2 { // it can be opened again
			if got := parts(t, row.body); got != row.want {
				t.Errorf("%s: %q, want %q", name, got, row.want)
			}
		}
	}
	if got := parts(t, b); !strings.HasPrefix(got, "model|||imagegen-2\nimage|a.png") {
		t.Errorf("an edit changed the body that it was made of: %q", got)
	}
}

func TestAFormSaysWhatAnObjectWould(t *testing.T) {
	b := upstream.FormBody(upstream.NewForm([]upstream.Part{
		upstream.Field("word", "a\"b"), upstream.Field("number", "2"), upstream.Field("no", " 2"), upstream.Field("hex", "0x10"),
		upstream.Field("yes", "true"), upstream.Field("empty", ""), upstream.Field("object", "{}"), formFile("file", "a.png", "1"),
	}, nil))
	for name, want := range map[string]string{
		"word": `"a\"b"`, "number": "2", "no": `" 2"`, "hex": `"0x10"`, "yes": "true", "empty": `""`, "object": `"{}"`, "file": "{}", "none": "",
	} {
		if got := b.Raw(name); string(got) != want || b.Has(name) != (want != "") {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if b = b.Set("word", []byte("7")).Rename("word", "other"); string(b.Raw("other")) != "7" || b.Has("word") {
		t.Errorf("%s", b.Raw("other"))
	}
	if !b.Editable() || b.IsObject() || b.Form() == nil || upstream.BytesBody(nil).Editable() || upstream.BytesBody(nil).Form() != nil || upstream.BytesBody(nil).ContentType() != "" {
		t.Error("only a form is one")
	}
}

func TestALongFormIsReadInPiecesUntilItIsClosed(t *testing.T) {
	form := sampleForm()
	form.Parts[1] = formFile("image", "a.png", strings.Repeat("0123456789", 20_000))
	rc, size, err := upstream.FormBody(form).Open()
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 100)
	if _, err := io.ReadFull(rc, head); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(rc)
	if err != nil || int64(len(rest))+100 != size {
		t.Fatalf("%d bytes, %v", len(rest), err)
	}
	whole, err := upstream.FormBody(form).Bytes()
	if err != nil || string(whole) != string(head)+string(rest) {
		t.Error("it is something else when it is read in pieces")
	}
	if err := errors.Join(rc.Close(), rc.Close()); err != nil {
		t.Error(err)
	}
	if _, err := rc.Read(head); err == nil {
		t.Error("it can be read after its end was closed")
	}
}

// A file may be a pipe or another's network connection, which waits until it is closed.
func TestClosingAFormEndsARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, writer := io.Pipe()
		part := formFile("image", "a.png", "four")
		part.Content = func() (io.ReadCloser, error) { return content, nil }
		rc, _, err := upstream.FormBody(upstream.NewForm([]upstream.Part{part}, nil)).Open()
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := io.ReadAll(rc)
			read <- err
		}()
		synctest.Wait()
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; err == nil {
			t.Error("the form was read to its end")
		}
		if _, err := writer.Write([]byte("four")); err == nil {
			t.Error("the content is still open")
		}
	})
}

func TestAPartThatIsNotWhatItWasSaidToBeIsAnError(t *testing.T) {
	broken := errors.New("the disk is broken")
	short := formFile("image", "a.png", "one")
	short.Size = 4
	long := formFile("image", "a.png", "one")
	long.Size = 2
	gone := formFile("image", "a.png", "one")
	gone.Content = func() (io.ReadCloser, error) { return nil, broken }
	for name, row := range map[string]struct {
		part upstream.Part
		want error
	}{"short": {short, io.ErrUnexpectedEOF}, "gone": {gone, broken}, "long": {long, nil}} {
		form := upstream.NewForm([]upstream.Part{row.part}, nil)
		data, err := upstream.FormBody(form).Bytes()
		if !errors.Is(err, row.want) || row.want == nil && !bytes.Contains(data, []byte("\r\n\r\non\r\n--")) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if _, err = form.Sum(); !errors.Is(err, row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFormIsKnownByItsNamesFileNamesAndContents(t *testing.T) {
	sum := func(parts ...upstream.Part) [32]byte {
		t.Helper()
		s, err := upstream.NewForm(parts, nil).Sum()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b, file := upstream.Field("a", "1"), upstream.Field("b", "2"), formFile("f", "x.png", "bytes")
	typed := file
	typed.ContentType = "application/octet-stream"
	want := sum(a, b, file)
	for name, parts := range map[string][]upstream.Part{"another order": {file, b, a}, "another type": {a, b, typed}} {
		if sum(parts...) != want {
			t.Errorf("%s is another form", name)
		}
	}
	for name, parts := range map[string][]upstream.Part{
		"another name": {a, upstream.Field("c", "2"), file}, "another content": {a, upstream.Field("b", "3"), file},
		"another file name": {a, b, formFile("f", "y.png", "bytes")}, "less": {a, b}, "twice": {a, b, b, file},
		"a field like the file": {a, b, upstream.Field("f", "bytes")},
		"moved letters":         {upstream.Field("a", "1b"), upstream.Field("", "2"), file},
	} {
		if sum(parts...) == want {
			t.Errorf("%s is the same form", name)
		}
	}
	first, second := upstream.Field("i", "1"), upstream.Field("i", "2")
	if sum(first, second) == sum(second, first) {
		t.Error("the first of two images is not the second")
	}
}

func TestAFormIsReleasedOnce(t *testing.T) {
	count := 0
	form := upstream.NewForm(nil, func() error { count++; return io.ErrClosedPipe })
	if err := form.With(nil).Close(); err != nil || count != 0 {
		t.Error("a form that lies in another released it")
	}
	if first, second := form.Close(), form.Close(); first != io.ErrClosedPipe || second != nil || count != 1 {
		t.Errorf("%v, %v, released %d times", first, second, count)
	}
	if a, b := upstream.NewForm(nil, nil), upstream.NewForm(nil, nil); a.Boundary == b.Boundary || len(a.Boundary) < 20 {
		t.Error("a boundary can be guessed")
	}
}

func TestNothingBreaksOutOfAHeaderOfAPart(t *testing.T) {
	nasty := formFile("a\"\r\nX: y", "b\"\r\n\r\n--", "1")
	nasty.ContentType = "image/png\r\nX: y"
	data, err := upstream.FormBody(&upstream.Form{Boundary: "B", Parts: []upstream.Part{nasty}}).Bytes()
	want := "--B\r\nContent-Disposition: form-data; name=\"a\\\"%0D%0AX: y\"; filename=\"b\\\"%0D%0A%0D%0A--\"\r\nContent-Type: image/pngX: y\r\n\r\n1\r\n--B--\r\n"
	if err != nil || string(data) != want {
		t.Errorf("%q, %v", data, err)
	}
}
