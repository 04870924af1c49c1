package formdata

import (
	"mime"
	"strings"
	"testing"
)

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
