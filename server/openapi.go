package server

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/server/openapi"
)

// description is the API's document as it leaves.
type description struct {
	body []byte
	tag  string // of these bytes, quoted
}

var describe = sync.OnceValues(func() (description, error) {
	body, err := openapi.JSON()
	if err != nil {
		return description{}, err
	}
	return description{body, fmt.Sprintf(`"%x"`, sha256.Sum256(body))}, nil
})

// serveDescription answers /openapi.json. Like the checks of health, it takes no
// key, counts as no request and is not logged.
func serveDescription(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != descriptionPath {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	}
	d, err := describe()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	h := w.Header()
	h.Set("ETag", d.tag)
	h.Set("Cache-Control", "no-cache") // that is: ask whether it changed
	if strings.Contains(r.Header.Get("If-None-Match"), d.tag) {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(d.body)))
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(d.body)
	return true
}
