package upstream

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestNoTimerOutlivesItsAnswer(t *testing.T) {
	up := Func(func(context.Context, *Call) (*Reply, error) {
		return &Reply{Status: 200, Body: io.NopCloser(strings.NewReader("ok"))}, nil
	})
	for name, leave := range map[string]func(io.ReadCloser){
		"closed": func(b io.ReadCloser) { _ = b.Close() },
		"read":   func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b) },
	} {
		reply, err := SingleRouter(up).Do(t.Context(), &Call{Op: ChatCompletion, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		a := reply.Body.(*attempt)
		leave(reply.Body)
		if a.timer.Stop() {
			t.Errorf("%s: the timer runs on", name)
		}
	}
}
