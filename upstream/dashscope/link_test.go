package dashscope

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// linking are the ways in which a vendor's answer has a link.
var linking = map[string]func(link string) (kind, body string){
	"in events": func(link string) (string, string) { return "text/event-stream", event(1, nil, `"stop"`, link) },
	"in a document": func(link string) (string, string) {
		return "application/json", strings.Split(strings.Split(event(1, nil, `"stop"`, link), "data:")[1], "\n")[0]
	},
}

func TestTheAudioOfAnAnswerIsBehindItsLink(t *testing.T) {
	for how, answer := range linking {
		for name, row := range map[string]struct {
			link string
			want string // empty for a bad gateway
		}{
			"the vendor's host":  {"http://HOST/x.wav", string(file("abcd"))},
			"a redirect":         {"http://HOST/redirect", ""},
			"a file that is not": {"http://HOST/none", ""},
			"an address inside":  {"http://10.0.0.1/x.wav", ""},
		} {
			up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPost:
					kind, body := answer(strings.Replace(row.link, "HOST", r.Host, 1))
					w.Header().Set("Content-Type", kind)
					_, _ = io.WriteString(w, body)
				case r.URL.Path == "/x.wav":
					_, _ = w.Write(file("abcd"))
				case r.URL.Path == "/redirect":
					http.Redirect(w, r, "/x.wav", http.StatusFound)
				default:
					http.NotFound(w, r)
				}
			}))
			if row.want != "" {
				if _, audio := vendortest.Answer(t, up, asking(t, true)); audio != row.want {
					t.Errorf("%s %s: audio %q", name, how, audio)
				}
				continue
			}
			if e, f := vendortest.Refused(t, up, asking(t, true)); e.Code != fault.BadGateway || f.Status != http.StatusOK {
				t.Errorf("%s %s: %v, %+v", name, how, e, f)
			}
		}
	}
}
