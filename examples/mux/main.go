// Command mux mounts the gateway in a program's own http.ServeMux, beside its
// own pages and behind its own login.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/server"
)

func main() {
	up, err := vendor.New()
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: up})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own page") })
	// The handler answers for every path that it is given, also for its 404s.
	mux.Handle("/ai/", loggedIn(http.StripPrefix("/ai", server.New(g, server.Options{}))))

	// http.ListenAndServe(…, mux) would put it on the network; here its own
	// client calls it in process.
	show(mux, http.MethodGet, "/", "")
	show(mux, http.MethodPost, "/ai/v1/chat/completions",
		`{"model":"`+vendor.Model()+`","messages":[{"role":"user","content":"Hello."}]}`)
	show(mux, http.MethodGet, "/ai/v1/elsewhere", "")
}

// loggedIn says on whose account a call goes; a real one would ask the
// program's session. With a principal in the context no API key is asked for.
func loggedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &auth.Principal{Account: "alice", Key: "session", Models: []string{vendor.Model()}}
		next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), p)))
	})
}

func show(mux http.Handler, method, path, body string) {
	r, err := http.NewRequest(method, "http://shop"+path, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	answer, err := server.Client(mux).Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	fmt.Println(method, path, answer.StatusCode, answer.Header.Get("Content-Type"))
}

// Output:
// GET / 200
// POST /ai/v1/chat/completions 200 application/json
// GET /ai/v1/elsewhere 404 application/json
