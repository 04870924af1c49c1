package server_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/server"
)

// TestABodyThatIsCodedIsNeverDecoded is docs/faults.md, row 30, at every path that
// takes a body: a bomb is refused by its name, and nothing of it is unfolded.
func TestABodyThatIsCodedIsNeverDecoded(t *testing.T) {
	var bomb bytes.Buffer
	w, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zero{}, 32<<20); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, up := newJSONFixture(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tried := 0
	for _, r := range s.h.Routes() {
		if r.Method != http.MethodPost {
			continue
		}
		kind := "application/json"
		if r.Path == edits {
			kind = "multipart/form-data; boundary=b"
		}
		for _, coding := range []string{"gzip", "GZIP", "x-gzip", "zstd", "br", "deflate", "compress", "gzip, gzip", "identity, gzip", "aes128gcm", "nonsense"} {
			tried++
			a := s.do(t, "POST", r.Path, bomb.String(), "Content-Encoding: "+coding, "Content-Type: "+kind)
			if a.status != 415 {
				t.Errorf("%s, %s: %d %.200s", r.Path, coding, a.status, a.body)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d MiB were taken for %d bombs of %d KiB", n>>20, tried, bomb.Len()>>10)
	}
	if up.asked.Load() != 0 || tried < 80 {
		t.Errorf("%d tried, %d asked", tried, up.asked.Load())
	}
}

// formPart is one part of a form that a test writes by hand.
func formPart(head, content string) string { return "--b\r\n" + head + "\r\n\r\n" + content + "\r\n" }

const promptHead = `Content-Disposition: form-data; name="prompt"`

// TestAFormThatIsABombIsRefused is docs/faults.md, row 30.
func TestAFormThatIsABombIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := newImagesFixture(t, fixtureOptions{server: server.Options{MaxForm: 4 << 20, TempDir: dir}})
	picture := formPart("Content-Disposition: form-data; name=\"image\"; filename=\"a\"", pngFile(t, 16, 16))
	good := picture + formPart(`Content-Disposition: form-data; name="model"`, "imagegen-2") + formPart(promptHead, "a")
	const end = "--b--\r\n"
	send := func(body, kind string) answer {
		return s.do(t, "POST", edits, body, "Content-Type: "+kind)
	}
	const usual = "multipart/form-data; boundary=b"
	if a := send(good+end, usual); a.status != 200 {
		t.Fatalf("the good form: %d %s", a.status, a.body)
	}
	spent := s.posted(t)
	for name, row := range map[string]struct {
		body, kind string
		want       int
	}{
		"60,000 parts":                {strings.Repeat(formPart(`Content-Disposition: form-data; name="zz"`, ""), 60_000) + end, usual, 400},
		"no boundary":                 {"", "multipart/form-data", 400},
		"two boundaries":              {good + end, "multipart/form-data; boundary=b; boundary=c", 415},
		"headers of 8 KiB":            {good + formPart(promptHead+"\r\nX: "+strings.Repeat("y", 8<<10), "a") + end, usual, 400},
		"headers without an end":      {"--b\r\nX: " + strings.Repeat("y", 1<<20), usual, 400},
		"base64":                      {good + formPart(promptHead+"\r\nContent-Transfer-Encoding: base64", "YQ==") + end, usual, 400},
		"no end":                      {good, usual, 400},
		"more than may be":            {good + formPart(`Content-Disposition: form-data; name="zz"`, strings.Repeat("z", 5<<20)) + end, usual, 413},
		"more than may be, in front":  {strings.Repeat("z", 5<<20) + "\r\n" + good + end, usual, 413},
		"more than may be, behind":    {good + end + strings.Repeat("z", 5<<20), usual, 413},
		"a prompt of megabytes":       {strings.Replace(good, "\r\n\r\na\r\n", "\r\n\r\n"+strings.Repeat("a", 3<<20)+"\r\n", 1) + end, usual, 400},
		"a multipart in the form":     {picture + formPart(`Content-Disposition: form-data; name="model"`+"\r\nContent-Type: multipart/mixed; boundary=c", "--c\r\n\r\nimagegen-2\r\n--c--") + end, usual, 404},
		"related, not a form":         {good + end, "multipart/related; boundary=b", 415},
		"a picture that is too large": {strings.Replace(good, "IHDR\x00\x00\x00\x10\x00\x00\x00\x10", "IHDR\x7f\xff\xff\xff\x7f\xff\xff\xff", 1) + end, usual, 400},
	} {
		if a := send(row.body, row.kind); a.status != row.want {
			t.Errorf("%s: %d, want %d: %.300s", name, a.status, row.want, a.body)
		}
	}
	if s.posted(t) != spent {
		t.Errorf("refusals cost %s", spent-s.posted(t))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}
