package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// jsonRequests are the good requests with a JSON body, by path.
func jsonRequests(t *testing.T) map[string]goodRequest {
	all := make(map[string]goodRequest)
	for route, r := range goodRequests(t) {
		if r.contentType == "application/json" {
			all[strings.TrimPrefix(route, "POST ")] = r
		}
	}
	return all
}

// callCounter is the simulator, which counts who asks it.
type callCounter struct {
	*sim.Upstream
	asked atomic.Int64
}

func (w *callCounter) Do(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	w.asked.Add(1)
	return w.Upstream.Do(ctx, c)
}

// newJSONFixture serves every model of the simulator.
func newJSONFixture(t testing.TB) (*fixture, *callCounter) {
	t.Helper()
	w := &callCounter{Upstream: sim.New(sim.Options{})}
	return newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) { o.Upstream, o.Video.DuplicateWindow = w, -1 }}), w
}

// brokenBodies are bodies that two readers can read differently. Each is made of a good one
// and has one fault. There is one for each decision of the strict reader that each endpoint
// must use. Package rawjson has the whole table of what JSON is, and each operation that of
// its numbers.
func brokenBodies(body, number string) map[string]string {
	all := map[string]string{"nothing": "", "null": "null", "a list": "[" + body + "]", "a second object": body + " {}", "cut": body[:len(body)-1]}
	begin := func(members string) { all[members[:min(len(members), 30)]] = "{" + members + "," + body[1:] }
	for _, members := range []string{
		`"\u006dodel":"x"`, `"MODEL":"x"`, `"zz":1,"zz":2`, "\"zz\":\"\xff\"", `"zz":"\ud83d"`, `"zz":NaN`,
		`"zz":` + strings.Repeat("[", 64) + strings.Repeat("]", 64), `"parameters":{"size":1,"size":2}`, `"parameters":{"SIZE":1}`,
	} {
		begin(members)
	}
	for _, name := range []string{"n", "max_tokens", "max_completion_tokens", "stream", "duration", "resolution", "size", "quality", "input"} { // by which prices go
		begin(fmt.Sprintf(`"%s":1,"%[1]s":2`, name))
		begin(fmt.Sprintf(`"%s":1`, strings.ToUpper(name[:1])+name[1:]))
	}
	if number != "" {
		at := strings.Index(body, `"`+number+`":`) + len(number) + 3
		end := at + strings.IndexAny(body[at:], ",}")
		for _, n := range []string{"1e400", "9223372036854775808", "-1", "0", "4.5", `"5"`} {
			all[number+" is "+n] = body[:at] + n + body[end:]
		}
	}
	return all
}

// TestABodyThatCanBeReadInTwoWaysIsA400AndCostsNothing is docs/reference/faults.md, rows 21, 25
// and 27 to 29, at every endpoint.
func TestABodyThatCanBeReadInTwoWaysIsA400AndCostsNothing(t *testing.T) {
	s, w := newJSONFixture(t)
	for path, route := range jsonRequests(t) {
		for name, body := range brokenBodies(route.body, route.number) {
			a := s.do(t, "POST", path, body, "Content-Type: application/json")
			if a.status != 400 || w.asked.Load() != 0 {
				t.Errorf("%s, %s: %d %.200s (%d asked)", path, name, a.status, a.body, w.asked.Swap(0))
			}
		}
	}
	if s.posted(t) != 1_000_000_000 {
		t.Errorf("refusals cost %s", 1_000_000_000-s.posted(t))
	}
}

// TestABodyThatIsCodedIsNeverDecoded is docs/reference/faults.md, row 30, at every path that
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

// TestAFormThatIsABombIsRefused is docs/reference/faults.md, row 30.
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
		"two boundaries":              {good + end, "multipart/form-data; boundary=b; boundary=c", 415},
		"headers of 8 KiB":            {good + formPart(promptHead+"\r\nX: "+strings.Repeat("y", 8<<10), "a") + end, usual, 400},
		"base64":                      {good + formPart(promptHead+"\r\nContent-Transfer-Encoding: base64", "YQ==") + end, usual, 400},
		"more than may be":            {good + formPart(`Content-Disposition: form-data; name="zz"`, strings.Repeat("z", 5<<20)) + end, usual, 413},
		"more than may be, in front":  {strings.Repeat("z", 5<<20) + "\r\n" + good + end, usual, 413},
		"more than may be, behind":    {good + end + strings.Repeat("z", 5<<20), usual, 413},
		"a prompt of megabytes":       {strings.Replace(good, "\r\n\r\na\r\n", "\r\n\r\n"+strings.Repeat("a", 3<<20)+"\r\n", 1) + end, usual, 400},
		"a multipart in the form":     {picture + formPart(`Content-Disposition: form-data; name="model"`+"\r\nContent-Type: multipart/mixed; boundary=c", "--c\r\n\r\nimagegen-2\r\n--c--") + end, usual, 404},
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
