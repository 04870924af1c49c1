package httpdo_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// TestAKeyAtTheCutOfAVendorsTextIsMasked moves a key over the place where a text
// is cut for the log.
func TestAKeyAtTheCutOfAVendorsTextIsMasked(t *testing.T) {
	const key = "sk-vendor-0123456789-0123456789"
	call := &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Stream: true, Body: vendortest.Body(t, `{"model":"m"}`)}
	var answer http.HandlerFunc
	up := vendortest.New(t, openai.New, openai.Options{
		BaseURL: vendortest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) })), Keys: vendortest.Keys(key),
	})
	for at := 1024 - len(key) - 1; at <= 1025; at++ {
		text := strings.Repeat("x", at) + key + "y"
		for name, row := range map[string]http.HandlerFunc{
			"an error's body": vendortest.Responds(http.StatusInternalServerError, nil, text),
			"a location":      vendortest.Responds(http.StatusFound, map[string]string{"Location": "/" + text[1:]}, ""),
			"a content type":  vendortest.Responds(http.StatusOK, map[string]string{"Content-Type": "text/" + text[5:]}, ""),
		} {
			answer = row
			e, _ := vendortest.Refused(t, up, call)
			if strings.Contains(e.Error(), key[:4]) {
				t.Fatalf("%s with a key at %d: %s", name, at, e.Error()[max(0, len(e.Error())-60):])
			}
		}
	}
}
