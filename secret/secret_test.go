package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/secret"
)

func TestNoWayOfPrintingShowsTheValue(t *testing.T) {
	const value = "sk-canary"
	s := secret.New(value)
	held := struct {
		Open   secret.String
		hidden secret.String
		deep   map[string]secret.String
	}{s, s, map[string]secret.String{"k": s}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "held", held)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", s, "held", held)
	out := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		out += fmt.Sprintf(verb+verb, s, held)
	}
	data, err := json.Marshal(map[string]any{"s": s, "held": held})
	if err != nil {
		t.Fatal(err)
	}
	out += string(data) + fmt.Sprint(fmt.Errorf("error with %v", held))
	if strings.Contains(out, value) || strings.Contains(out, fmt.Sprintf("%x", value)) {
		t.Errorf("printed: %s", out)
	}
	if s.Reveal() != value || s.IsZero() || !(secret.String{}).IsZero() || (secret.String{}).Reveal() != "" {
		t.Error("the value itself is wrong")
	}
}
