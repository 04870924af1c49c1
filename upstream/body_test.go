package upstream_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"weak"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

func object(t testing.TB, text string) rawjson.Object {
	t.Helper()
	o, err := rawjson.Index([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestWhatABodySaysIsWhatItSends(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(rt *rapid.T) {
		b := upstream.ObjectBody(object(t, rapid.SampledFrom([]string{`{}`, `{"a":1}`, `{"a":1, "b":2}`, `{"c":3}`}).Draw(rt, "source")))
		for range rapid.IntRange(0, 6).Draw(rt, "edits") {
			name := names.Draw(rt, "name")
			switch rapid.IntRange(0, 2).Draw(rt, "edit") {
			case 0:
				b = b.Set(name, []byte(rapid.SampledFrom([]string{"7", "8", "null"}).Draw(rt, "value")))
			case 1:
				b = b.Delete(name)
			case 2:
				b = b.Rename(name, names.Draw(rt, "to"))
			}
		}
		sent, err := b.Bytes()
		if err != nil {
			rt.Fatal(err)
		}
		o := object(t, string(sent))
		for _, name := range []string{"a", "b", "c"} {
			if string(b.Raw(name)) != string(o.Raw(name)) || b.Has(name) != (o.Raw(name) != nil) {
				rt.Fatalf("%s is said to be %s in %s", name, b.Raw(name), sent)
			}
		}
	})
}

func TestABodyCanBeOpenedAgainAndAgain(t *testing.T) {
	for name, b := range map[string]upstream.Body{
		"bytes":  upstream.BytesBody([]byte(`{"a":1}`)),
		"object": upstream.ObjectBody(object(t, `{"a":1}`)),
		"edited": upstream.ObjectBody(object(t, `{"a":2}`)).Set("a", []byte("1")),
	} {
		for range 2 {
			rc, size, err := b.Open()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			data, err := io.ReadAll(rc)
			if string(data) != `{"a":1}` || size != 7 || errors.Join(err, rc.Close()) != nil {
				t.Errorf("%s: %q of %d, %v", name, data, size, err)
			}
		}
		if whole, err := b.Bytes(); string(whole) != `{"a":1}` || err != nil {
			t.Errorf("%s: %q, %v", name, whole, err)
		}
	}
	if _, _, err := upstream.BytesBody([]byte("x")).Set("a", nil).Open(); err == nil {
		t.Error("an edit of what is no object changed nothing")
	}
}

// long opens a body of 100,000 bytes of its own.
func long(t *testing.T) (io.ReadCloser, weak.Pointer[byte]) {
	t.Helper()
	data := []byte(strings.Repeat("0123456789", 10_000))
	rc, size, err := upstream.BytesBody(data).Open()
	if err != nil || size != 100_000 {
		t.Fatal(size, err)
	}
	return rc, weak.Make(&data[0])
}

func TestALongBodyWithEditsIsSentInPiecesAndNotCopied(t *testing.T) {
	const size = 4 << 20
	src := []byte(`{ "a" : 1 , "long" : "` + strings.Repeat("x", size) + `", "b":2}`)
	b := upstream.ObjectBody(object(t, string(src))).Set("a", []byte(`"one"`)).Rename("b", "c").Set("d", []byte("4"))
	want := strings.NewReplacer(`"a" : 1`, `"a" : "one"`, `"b":2`, `"c":2,"d":4`).Replace(string(src))
	for name, read := range map[string]func(w io.Writer, rc io.ReadCloser) (int64, error){
		"all at once": func(w io.Writer, rc io.ReadCloser) (int64, error) { return io.Copy(w, rc) },
		"bit by bit":  func(w io.Writer, rc io.ReadCloser) (int64, error) { return io.Copy(w, struct{ io.Reader }{rc}) },
		"with a beginning that was read": func(w io.Writer, rc io.ReadCloser) (int64, error) {
			first, err := io.CopyN(w, struct{ io.Reader }{rc}, 100)
			rest, restErr := io.Copy(w, rc)
			return first + rest, errors.Join(err, restErr)
		},
	} {
		rc, length, err := b.Open()
		if err != nil {
			t.Fatal(err)
		}
		var sent strings.Builder
		n, err := read(&sent, rc)
		if err != nil || n != length || sent.String() != want {
			t.Errorf("%s: %d bytes of %d, %v, as they should be: %t", name, n, length, err, sent.String() == want)
		}
		if n, err := rc.Read(make([]byte, 8)); n != 0 || err != io.EOF || rc.Close() != nil {
			t.Errorf("%s: %d, %v afterwards", name, n, err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rc, _, err := b.Open()
	if err == nil {
		_, err = io.Copy(io.Discard, rc)
	}
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err != nil || taken > size/2 {
		t.Errorf("sending a body of %d bytes took %d of memory, %v", size, taken, err)
	}
}

// http.Transport keeps a body as long as its answer, which may be a stream.
func TestALongBodyLetsGoOfItsBytesWhenItWasReadOrClosed(t *testing.T) {
	for name, end := range map[string]func(rc io.ReadCloser) error{
		"read": func(rc io.ReadCloser) error {
			_, err := io.Copy(io.Discard, rc)
			return err
		},
		"read by a buffer": func(rc io.ReadCloser) error {
			_, err := io.Copy(io.Discard, struct{ io.Reader }{rc})
			return err
		},
		"closed": io.ReadCloser.Close,
	} {
		rc, data := long(t)
		if runtime.GC(); data.Value() == nil {
			t.Fatalf("%s: the bytes are gone before", name)
		}
		if err := end(rc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if runtime.GC(); data.Value() != nil {
			t.Errorf("%s: the bytes are still there", name)
		}
		if n, err := rc.Read(make([]byte, 8)); n != 0 || err != io.EOF {
			t.Errorf("%s: %d, %v afterwards", name, n, err)
		}
		runtime.KeepAlive(rc)
	}
}
