package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/server"
)

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestAListeningServerEndsWhenItsRequestsHave(t *testing.T) {
	g := gatewaytest.New(t)
	address := freeAddress(t)
	mux := http.NewServeMux()
	mux.Handle("/", server.New(g, server.Options{}))
	entered, finish := make(chan struct{}), make(chan struct{})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(ctx, g, server.Listen(address, mux)) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (string, error) {
		r, err := client.Get("http://" + address + path)
		if err != nil {
			return "", err
		}
		defer func() { _ = r.Body.Close() }()
		data, err := io.ReadAll(r.Body)
		return string(data), err
	}
	var body string
	err := io.EOF
	for err != nil && t.Context().Err() == nil { // until it listens
		body, err = get("/v1/models")
	}
	if !strings.Contains(body, "data") {
		t.Errorf("the models are %s", body)
	}
	answered := make(chan string, 1)
	go func() {
		body, err := get("/slow")
		if err != nil {
			body = err.Error()
		}
		answered <- body
	}()
	<-entered
	cancel()
	for err == nil { // until it takes no new connections
		_, err = get("/v1/models")
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended while a request ran: %v", err)
	default:
	}
	close(finish)
	if got := <-answered; got != "done" {
		t.Errorf("the running request got %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestAnAddressInUseEndsServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	g := gatewaytest.New(t)
	address := l.Addr().String()
	if err := gateway.Serve(t.Context(), g, server.Listen(address, http.NotFoundHandler())); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("got %v, want an error that names %s", err, address)
	}
}
