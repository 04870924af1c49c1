package openai

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// TestAKeyThatIsRefusedOrAtItsLimitCostsNobodyAnErrorWhileAnotherWorks is the
// rotation of a key: the old one and the new one are listed for a while.
func TestAKeyThatIsRefusedOrAtItsLimitCostsNobodyAnErrorWhileAnotherWorks(t *testing.T) {
	for name, refusal := range map[string]struct {
		status int
		header map[string]string
	}{
		"refused": {401, nil}, "at its limit": {429, map[string]string{"Retry-After": "30"}}, "at its limit, it does not say for how long": {429, nil},
	} {
		var refused atomic.Int64
		up := driver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Authorization"), "sk-old") {
				refused.Add(1)
				vendortest.Responds(refusal.status, refusal.header, `{"error":{"message":"No."}}`)(w, r)
				return
			}
			vendortest.Responds(200, nil, `{}`)(w, r)
		}), Options{Keys: []secret.String{secret.New("sk-old"), secret.New("sk-new")}})
		router := upstream.SingleRouter(up)
		for i := range 20 {
			reply, err := router.Do(t.Context(), chat(t, false))
			if err != nil {
				t.Errorf("%s, call %d: %v", name, i, err)
				continue
			}
			_ = reply.Body.Close()
		}
		if n := refused.Load(); n == 0 || n > 3 {
			t.Errorf("%s: the old key was used %d times", name, n)
		}
		if c := router.Channels()[0]; c.State != upstream.Ready || c.Failures != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
