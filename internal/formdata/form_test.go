package formdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// form is the usual spelling of a form under the boundary b: each part is its
// headers and its content, parted by an empty line.
func form(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--b\r\n" + strings.ReplaceAll(p, "\n", "\r\n") + "\r\n")
	}
	return b.String() + "--b--\r\n"
}

func part(name, content string) string {
	return fmt.Sprintf("Content-Disposition: form-data; name=%q\n\n%s", name, content)
}

// partLines is a form as a text: each part on a line.
func partLines(t testing.TB, f *upstream.Form) string {
	t.Helper()
	var b strings.Builder
	for i := range f.Parts {
		p := &f.Parts[i]
		rc, err := p.Content()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(rc)
		if err = errors.Join(err, rc.Close()); err != nil || int64(len(data)) != p.Size {
			t.Fatalf("%d bytes of %d, %v", len(data), p.Size, err)
		}
		fmt.Fprintf(&b, "%s|%s|%s|%s\n", p.Name, p.Filename, p.ContentType, data)
	}
	return b.String()
}

func TestAFormIsReadWhateverItsSpelling(t *testing.T) {
	for name, row := range map[string]struct{ body, want string }{
		"the least":                   {form(part("a", "1")), "a|||1\n"},
		"an empty field":              {form(part("a", "")), "a|||\n"},
		"nothing":                     {"--b--", ""},
		"the order stays":             {form(part("b", "2"), part("a", "1"), part("b", "3")), "b|||2\na|||1\nb|||3\n"},
		"a file":                      {form("Content-Disposition: form-data; name=\"f\"; filename=\"x.png\"\nContent-Type: image/png; q=1\n\nbytes"), "f|x.png|image/png|bytes\n"},
		"unquoted, in other letters":  {form("CONTENT-disposition:form-data;name=f;filename=x.png\n\nbytes"), "f|x.png||bytes\n"},
		"a name in RFC 5987":          {form("Content-Disposition: form-data; name=f; filename*=UTF-8''%c3%a9.png\n\nx"), "f|é.png||x\n"},
		"a file name that is no text": {form("Content-Disposition: form-data; name=f; filename=\"a\xff.png\"\n\nx"), "f|a.png||x\n"},
		"a preamble and an epilogue":  {"hello\r\n" + form(part("a", "1")) + "bye\r\n--b\r\n", "a|||1\n"},
		"blanks behind a boundary":    {"--b \t\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b--", "a|||1\n"},
		"what looks like a boundary":  {form(part("a", "1\n--bc\n--\n--b-\n\n--")), "a|||1\r\n--bc\r\n--\r\n--b-\r\n\r\n--\n"},
		"no line break at the end":    {strings.TrimSuffix(form(part("a", "1")), "\r\n"), "a|||1\n"},
		"binary as it is":             {form("Content-Disposition: form-data; name=a\nContent-Transfer-Encoding: binary\n\n=41"), "a|||=41\n"},
		"sixteen parts":               {form(strings.Split(strings.Repeat(part("a", "1")+"\x00", 15)+part("a", "1"), "\x00")...), strings.Repeat("a|||1\n", 16)},
	} {
		for kind, body := range map[string]io.Reader{
			"at once": strings.NewReader(row.body), "byte by byte": iotest.OneByteReader(strings.NewReader(row.body)),
		} {
			f, err := Read(body, "b", Options{})
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
				continue
			}
			if got := partLines(t, f); got != row.want {
				t.Errorf("%s, %s: %q, want %q", name, kind, got, row.want)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAFormThatIsNoneIsA400(t *testing.T) {
	whole := form(part("a", strings.Repeat("x", 100)), part("c", "2"))
	rows := map[string]string{
		"seventeen parts":     form(strings.Split(strings.Repeat(part("a", "1")+"\x00", 16)+part("a", "1"), "\x00")...),
		"another boundary":    strings.ReplaceAll(whole, "--b", "--B"),
		"lines end with LF":   strings.ReplaceAll(whole, "\r\n", "\n"),
		"no name":             form("Content-Disposition: form-data\n\n1"),
		"an empty name":       form(part("", "1")),
		"no disposition":      form("X-A: b\n\n1"),
		"two dispositions":    form("Content-Disposition: form-data; name=a\nContent-Disposition: form-data; name=n\n\n1"),
		"two names":           form("Content-Disposition: form-data; name=a; name=n\n\n1"),
		"an attachment":       form("Content-Disposition: attachment; name=a\n\n1"),
		"a blank name":        form(part(" n", "1")),
		"control characters":  form("Content-Disposition: form-data; name=\"n\x01\"\n\n1"),
		"a name like a novel": form(part(strings.Repeat("n", 101), "1")),
		"quoted-printable":    form("Content-Disposition: form-data; name=a\nContent-Transfer-Encoding: quoted-printable\n\n=41"),
		"a header like that":  form("Content-Disposition: form-data; name=a\nX: " + strings.Repeat("x", 8<<10) + "\n\n1"),
		"headers like that":   form("Content-Disposition: form-data; name=a\n" + strings.Repeat("X: y\n", 2<<10) + "\n1"),
		"no header":           form("nonsense\n\n1"),
		"more in its line":    form(part("a", "1\n--b x\n")),
		"nothing":             "",
	}
	for cut := range len(whole) - len("\r\n") {
		rows[fmt.Sprintf("cut at %d", cut)] = whole[:cut]
	}
	for name, body := range rows {
		_, err := Read(strings.NewReader(body), "b", Options{})
		var f *fault.Error
		if !errors.As(err, &f) || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest || f.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABodyIsReadToItsEnd(t *testing.T) {
	rest := strings.NewReader(strings.Repeat("behind the form", 10_000))
	if _, err := Read(io.MultiReader(strings.NewReader(form(part("a", "1"))), rest), "b", Options{}); err != nil || rest.Len() > 0 {
		t.Errorf("%d bytes are left, %v", rest.Len(), err)
	}
}

func TestTheErrorOfABodyIsKept(t *testing.T) {
	broken := errors.New("the line is down")
	for _, n := range []int{0, 3, 20, 55} {
		_, err := Read(io.MultiReader(strings.NewReader(form(part("a", "1"))[:n]), iotest.ErrReader(broken)), "b", Options{})
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	if _, err := Read(io.MultiReader(strings.NewReader(form(part("a", "1"))+strings.Repeat("x", 9<<10)), iotest.ErrReader(broken)), "b", Options{}); !errors.Is(err, broken) {
		t.Errorf("behind the form: %v", err)
	}
}

func TestABoundaryIsFoundInAHeader(t *testing.T) {
	for header, want := range map[string]struct {
		boundary string
		form, ok bool
	}{
		"multipart/form-data; boundary=abc":                        {"abc", true, true},
		`Multipart/Form-Data; charset=utf-8; BOUNDARY="a b:c"`:     {"a b:c", true, true},
		"multipart/form-data; boundary=" + strings.Repeat("a", 70): {strings.Repeat("a", 70), true, true},
		"multipart/form-data; boundary=" + strings.Repeat("a", 71): {"", true, false},
		`multipart/form-data; boundary="a` + "\x01" + `"`:          {"", true, false},
		`multipart/form-data; boundary="a<b"`:                      {"", true, false},
		`multipart/form-data; boundary="a "`:                       {"", true, false},
		"multipart/form-data":                                      {"", true, false},
		"multipart/form-data; boundary=":                           {"", true, false},
		"multipart/form-data; boundary=a; boundary=b":              {"", false, true},
		"multipart/mixed; boundary=a":                              {"", false, true},
		"application/x-www-form-urlencoded":                        {"", false, true},
		"application/json":                                         {"", false, true},
		"":                                                         {"", false, true},
		"multipart/form-datax; boundary=abc":                       {"", false, true},
	} {
		boundary, isForm, err := Boundary(header)
		if boundary != want.boundary || isForm != want.form || (err == nil) != want.ok {
			t.Errorf("%q: %q, %t, %v", header, boundary, isForm, err)
		}
	}
}

// files are those that lie in a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWhatIsLargeLiesInAFileWithoutAName(t *testing.T) {
	dir := t.TempDir()
	large, small := strings.Repeat("0123456789", 200_000), strings.Repeat("x", 1000)
	body := form(part("a", small), part("large", large), part("b", small), part("too", large))
	quota := NewQuota(8 << 20)
	f, err := Read(strings.NewReader(body), "b", Options{Dir: dir, Quota: quota})
	if err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("there is %v", left)
	}
	want := fmt.Sprintf("a|||%s\nlarge|||%s\nb|||%s\ntoo|||%s\n", small, large, small, large)
	for range 2 { // each part can be opened again
		if partLines(t, f) != want {
			t.Error("the form is another")
		}
	}
	if quota.taken.Used() != int64(2*len(large)) {
		t.Errorf("%d bytes on disk", quota.taken.Used())
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if quota.taken.Used() != 0 {
		t.Errorf("%d bytes are still counted", quota.taken.Used())
	}
	rc, err := f.Parts[1].Content()
	if err == nil {
		_, err = rc.Read(make([]byte, 1))
	}
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed form reads on: %v", err)
	}
}

func TestManySmallPartsTakeNoMoreMemoryThanOneLargeOne(t *testing.T) {
	dir := t.TempDir()
	quota := NewQuota(1 << 30)
	var parts []string
	for range 16 {
		parts = append(parts, part("a", strings.Repeat("x", 100<<10)))
	}
	f, err := Read(strings.NewReader(form(parts...)), "b", Options{Dir: dir, Quota: quota})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if inMemory := 16*100<<10 - quota.taken.Used(); inMemory > memory || inMemory < memory/2 {
		t.Errorf("%d bytes in memory", inMemory)
	}
}

func TestADiskThatIsFullIsA503AndTakesNothing(t *testing.T) {
	body := form(part("a", strings.Repeat("x", 3<<20)))
	for name, o := range map[string]Options{
		"no directory": {Dir: filepath.Join(t.TempDir(), "none"), Quota: NewQuota(1 << 30)},
		"no quota":     {Dir: t.TempDir(), Quota: NewQuota(2 << 20)},
	} {
		_, err := Read(strings.NewReader(body), "b", o)
		f := fault.From(err)
		if f == nil || f.HTTPStatus() != 503 || f.Code != fault.ServiceUnavailable || f.RetryAfter == 0 || strings.Contains(f.Message, o.Dir) {
			t.Errorf("%s: %v", name, err)
		}
		if o.Quota.taken.Used() != 0 {
			t.Errorf("%s: %d bytes are still counted", name, o.Quota.taken.Used())
		}
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no device that is full")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &spool{file: full}
	if _, err := s.begin().Write([]byte("x")); !fault.Is(err, fault.ServiceUnavailable) {
		t.Errorf("a full disk: %v", err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// FuzzRead compares with the standard library, which knows more spellings: what
// is taken here has the same parts there.
func FuzzRead(f *testing.F) {
	f.Add([]byte(form(part("a", "1"), part("b", "\n--b\n--bb\n--b-"))))
	f.Add([]byte("x\r\n" + form("Content-Disposition: form-data; name=\"f\"; filename=\"x.png\"\nContent-Type: image/png\n\n\x00\x01")))
	f.Add([]byte("--b \r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b--x"))
	f.Add([]byte("--b\r\n\r\n--b--"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Read(bytes.NewReader(data), "b", Options{Dir: "/nowhere"})
		if err != nil {
			if f := fault.From(err); f.HTTPStatus() != 400 && f.HTTPStatus() != 503 {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		defer got.Close()
		// It goes out as it came in.
		again, size, err := upstream.FormBody(got).Open()
		if err != nil {
			t.Fatal(err)
		}
		document, err := io.ReadAll(again)
		if err != nil || int64(len(document)) != size {
			t.Fatalf("%q: %d bytes of %d, %v", data, len(document), size, err)
		}
		if len(got.Parts) == 0 {
			return
		}
		r := multipart.NewReader(bytes.NewReader(document), got.Boundary)
		for i := range got.Parts {
			p, err := r.NextRawPart()
			if err != nil {
				t.Fatalf("%q: part %d: %v", data, i, err)
			}
			content, err := io.ReadAll(p)
			if err != nil {
				t.Fatal(err)
			}
			mine, err := got.Parts[i].Text(1 << 30)
			if err != nil || mine != string(content) || p.FormName() != got.Parts[i].Name {
				t.Fatalf("%q: part %d is %q %q, was %q %q", data, i, p.FormName(), content, got.Parts[i].Name, mine)
			}
		}
		if _, err := r.NextRawPart(); err != io.EOF {
			t.Fatalf("%q: there is more: %v", data, err)
		}
	})
}

// BenchmarkRead is a form with 10 MiB of file.
func BenchmarkRead(b *testing.B) {
	body := []byte(form(part("model", "m"), part("image", strings.Repeat("0123456789abcde\n", 10<<16))))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	dir := b.TempDir()
	for b.Loop() {
		f, err := Read(bytes.NewReader(body), "b", Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		_ = f.Close()
	}
}

// FuzzBoundary: a boundary that is taken is of RFC 2046, and the one that the
// standard library finds.
func FuzzBoundary(f *testing.F) {
	for _, header := range []string{
		"multipart/form-data; boundary=b", `Multipart/Form-Data; Boundary="a b"`, "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=b; boundary=c",
		"multipart/form-data; boundary*=utf-8''b", "multipart/form-data; boundary*0=a; boundary*1=b", "multipart/form-data; boundary=" + strings.Repeat("x", 71), "text/plain; boundary=b", "multipart/form-data; boundary=\"a\\\"b\"",
	} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		boundary, ok, err := Boundary(header)
		if !ok || err != nil {
			if boundary != "" {
				t.Errorf("%q gives %q beside a refusal", header, boundary)
			}
			return
		}
		media, params, err := mime.ParseMediaType(header)
		if err != nil || media != MediaType || params["boundary"] != boundary {
			t.Errorf("%q: %q, and %v %v to the standard library", header, boundary, params, err)
		}
		if len(boundary) < 1 || len(boundary) > 70 || strings.ContainsAny(boundary, "\r\n\"\\\x00") || strings.HasSuffix(boundary, " ") {
			t.Errorf("%q gives %q", header, boundary)
		}
	})
}
