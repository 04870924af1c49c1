package openai

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// meant is what a vendor's status means to the caller and to the channel.
type meant struct {
	code           fault.Code
	public         int // what the caller gets
	again          bool
	counts         bool // against the channel
	fatal, refused bool
}

// meaning is the whole table from 300 to 599.
func meaning(status int) meant {
	in := func(list ...int) bool { return slices.Contains(list, status) }
	switch {
	case in(401, 402, 403, 407, 421, 426):
		return meant{fault.NoChannel, 502, true, true, true, false}
	case status == 408, status == 504:
		return meant{fault.RequestTimeout, 504, true, true, false, false}
	case status == 429:
		return meant{fault.UpstreamRateLimit, 429, true, true, false, true}
	case in(425, 503, 529):
		return meant{fault.ServiceUnavailable, 503, true, true, false, true}
	case status == 500:
		return meant{fault.InternalServerError, 500, true, true, false, false}
	case status < 400, status > 500, in(405, 406, 411, 412, 414, 416, 417, 424, 428, 431, 499):
		return meant{fault.BadGateway, 502, true, true, false, false}
	}
	return meant{"theirs", status, false, false, false, false}
}

func TestOfAllStatusesOnlyTheCallersOwnFaultIsTheirs(t *testing.T) {
	var status int
	up := driver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		vendortest.Responds(status, nil, `{"error":{"message":"Text of the vendor.","code":"theirs"}}`)(w, r)
	}), Options{})
	other := driver(t, vendortest.Responds(200, nil, `{"id":"x","object":"chat.completion","choices":[]}`), Options{})
	all := map[string]string{"*": "*"}
	for status = 300; status < 600; status++ {
		want := meaning(status)
		e, f := vendortest.Refused(t, up, chat(t, false))
		if e.Code != want.code || e.HTTPStatus() != want.public || f.Status != status || f.Fatal != want.fatal || f.Refused != want.refused {
			t.Errorf("%d: %d %s, %+v, want %+v", status, e.HTTPStatus(), e.Code, f, want)
		}
		if told := strings.Contains(e.Message, "Text of the vendor") || e.Body != nil; told != (want.code == "theirs") {
			t.Errorf("%d: the caller reads %q, %s", status, e.Message, e.Body)
		}
		r, err := upstream.NewRouter([]upstream.Channel{
			{Name: "bad", Upstream: up, Models: all}, {Name: "good", Upstream: other, Models: all, Priority: 1},
		}, upstream.RouterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := r.Do(t.Context(), chat(t, false))
		if err == nil {
			_ = reply.Body.Close()
		}
		bad := r.Channels()[0]
		if again := err == nil; again != want.again || (bad.Failures == 1) != want.counts || (bad.LastError != "") != want.counts {
			t.Errorf("%d: asked elsewhere %v, %d failures, last error %q, want %+v", status, again, bad.Failures, bad.LastError, want)
		}
	}
}

// A proxy does not know the vendor's keys.
func TestAProxysRefusalSaysNothingOfTheKey(t *testing.T) {
	for _, status := range []int{407, 421, 426} {
		var asked []string
		up := driver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			w.WriteHeader(status)
		}), Options{Keys: vendortest.Keys("1", "2")})
		for range 8 {
			if _, f := vendortest.Refused(t, up, chat(t, false)); f.OtherKey {
				t.Errorf("%d: another key is to be tried", status)
			}
		}
		if got := strings.Join(asked, ""); got != "12121212" {
			t.Errorf("%d: keys %s", status, got)
		}
	}
}
