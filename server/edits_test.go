package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
)

const edits = "/v1/images/edits"

func pngFile(t testing.TB, width, height int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// editBody is a form and its content type. Fields are "name=value"; "name@file"
// is a file.
func editBody(t testing.TB, fields ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		at := strings.IndexAny(f, "=@")
		var part io.Writer
		var err error
		if f[at] == '@' {
			part, err = w.CreateFormFile(f[:at], "anonymous_file")
		} else {
			part, err = w.CreateFormField(f[:at])
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.WriteString(part, f[at+1:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

// edit sends a form.
func (s *fixture) edit(t testing.TB, fields ...string) answer {
	t.Helper()
	body, contentType := editBody(t, fields...)
	return s.do(t, "POST", edits, body, "Content-Type: "+contentType)
}

// cube are the fields of a good form.
func cube(t testing.TB, more ...string) []string {
	t.Helper()
	return append([]string{"image@" + pngFile(t, 16, 16), "model=imagegen-2", "prompt=make it blue"}, more...)
}

// unasked is an upstream that must not be asked.
type unasked struct{ t *testing.T }

func (u unasked) Do(context.Context, *upstream.Call) (*upstream.Reply, error) {
	u.t.Error("the upstream was asked")
	return nil, errors.New("asked")
}

func TestAnUploadThatStopsIsToldSoAndCostsNothing(t *testing.T) {
	for name, row := range map[string]struct {
		body   func(form string) io.Reader
		gone   bool
		status int
		want   string
	}{
		"cut": {func(form string) io.Reader { return strings.NewReader(form[:len(form)/2]) }, false, 400, "cut off"},
		"broken": {func(form string) io.Reader {
			return io.MultiReader(strings.NewReader(form[:len(form)/2]), failingBody{func() {}})
		}, false, 400, "could not be read"},
		"the client left": {func(form string) io.Reader { return strings.NewReader(form[:len(form)/2]) }, true, 499, "disconnected"},
	} {
		s := newImagesFixture(t, fixtureOptions{upstream: unasked{t}})
		form, contentType := editBody(t, cube(t)...)
		ctx, cancel := context.WithCancel(t.Context())
		body := row.body(form)
		if row.gone {
			body = io.MultiReader(body, failingBody{cancel})
		}
		r := httptest.NewRequest("POST", edits, body).WithContext(ctx)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Authorization", "Bearer "+s.key.Reveal())
		w := httptest.NewRecorder()
		s.h.ServeHTTP(w, r)
		cancel()
		if w.Code != row.status || !strings.Contains(w.Body.String(), row.want) || s.posted(t) != billing.One {
			t.Errorf("%s: %d %s, posted %s", name, w.Code, w.Body, s.posted(t))
		}
	}
}

func TestAClientThatLeavesInTheMiddleOfItsUploadLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	s := newImagesFixture(t, fixtureOptions{upstream: unasked{t}, server: server.Options{TempDir: dir}})
	ended := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		s.h.ServeHTTP(w, r)
	}))
	defer ts.Close()
	conn, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	form, contentType := editBody(t, cube(t, "image[]@"+strings.Repeat("x", 4<<20))...)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", edits, s.key.Reveal(), contentType, len(form))
	if _, err := io.WriteString(conn, form[:3<<20]); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 || s.posted(t) != billing.One {
		t.Errorf("%v, %v, posted %s", left, err, s.posted(t))
	}
}

func TestADiskThatIsFullIsA503AndCostsNothing(t *testing.T) {
	large := slices.Concat(cube(t), []string{"image[]@" + pngFile(t, 16, 16) + strings.Repeat("\x00", 2<<20) + pngFile(t, 1, 1)})
	for name, o := range map[string]server.Options{
		"no directory": {TempDir: filepath.Join(t.TempDir(), "none")},
		"no room":      {MaxUploads: 1 << 20},
	} {
		s := newImagesFixture(t, fixtureOptions{server: o})
		a := s.edit(t, large...)
		e := a.errorOf(t)
		if a.status != 503 || e.Code != "ServiceUnavailable" || e.Type != "api_error" || a.header.Get("Retry-After") == "" || s.posted(t) != billing.One {
			t.Errorf("%s: %d %s, posted %s", name, a.status, a.body, s.posted(t))
		}
		if small := s.edit(t, cube(t)...); small.status != 200 { // which needs no disk
			t.Errorf("%s: %d %s", name, small.status, small.body)
		}
	}
	s := newImagesFixture(t, fixtureOptions{server: server.Options{MaxUploads: 3 << 20}})
	for range 3 { // the room is free again when the call has ended
		if a := s.edit(t, large...); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}
