package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// dangerous are texts that would do something to whoever reads a log.
var dangerous = []string{
	"plain", "a\nlevel=ERROR msg=\"forged\"", "a\r\nb", "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\u009b31m", "\u0085next", "\u2028line\u2029paragraph",
	"\u202egnp.exe", "\u2066isolated", "\u200bnothing", "\x00", "\x7f", "\xff\xfe", "\"quoted\"", "`", "a=b c=\"d\"", "{\"a\":1}", "\ud7ff\ue000\U000e0041",
	strings.Repeat("long ", 1000), strings.Repeat("€", 100), strings.Repeat("\x1b", 300), "%s%d%!", "${jndi:ldap://evil/}", "<script>",
}

// lineOf asks with a text wherever a caller's or a vendor's text comes in, and
// gives the log line in both forms.
func linesOf(t *testing.T, text string) (asText, asJSON string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": text, "messages": []any{map[string]string{"role": "user", "content": "hi"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []string{string(body), askWhole} {
		var one, two bytes.Buffer
		for buf, handler := range map[*bytes.Buffer]slog.Handler{&one: slog.NewTextHandler(&one, nil), &two: slog.NewJSONHandler(&two, nil)} {
			h := newHouse(t, &scripted{err: (&upstream.Failure{Sent: true, Err: errors.New(text)}).Fault()}, "1", func(o *gateway.Options) {
				o.Logger = slog.New(handler)
			})
			x := h.Begin()
			x.ClientID = "mine"
			if err := x.Authenticate(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			_, callErr := x.Call(t.Context(), upstream.ChatCompletion, []byte(asked), nil)
			x.End(t.Context(), 500, callErr)
			if strings.Count(buf.String(), "\n") != 1 {
				t.Errorf("%q makes %d lines: %q", text, strings.Count(buf.String(), "\n"), buf)
			}
		}
		asText, asJSON = asText+one.String(), asJSON+two.String()
	}
	return asText, asJSON
}

// checkLines is faults.md, row 38: no sign but the line breaks of the log itself
// does anything, and no text is long.
func checkLines(t *testing.T, text, form, lines string) {
	t.Helper()
	if !utf8.ValidString(lines) {
		t.Errorf("%s: %q is no UTF-8: %q", form, text, lines)
	}
	for _, r := range lines {
		if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			t.Errorf("%s: %q leaves %U in %q", form, text, r, lines)
			return
		}
	}
	const most = 4 << 10 // of two lines, each with some texts of at most 256 bytes
	if len(lines) > 2*most {
		t.Errorf("%s: %q makes %d bytes", form, text[:min(len(text), 20)], len(lines))
	}
}

func TestNoTextOfAnybodyDoesAnythingInALog(t *testing.T) {
	for _, text := range dangerous {
		asText, asJSON := linesOf(t, text)
		checkLines(t, text, "text", asText)
		checkLines(t, text, "JSON", asJSON)
		for line := range strings.Lines(asJSON) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["msg"] != "request" {
				t.Errorf("%q is no line of JSON: %v", line, err)
			}
			for name, value := range fields {
				if s, ok := value.(string); ok && len(s) > 256+len("…") {
					t.Errorf("%s has %d bytes", name, len(s))
				}
			}
		}
	}
}

func FuzzALogLineIsOneHarmlessLine(f *testing.F) {
	for _, text := range dangerous {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		asText, asJSON := linesOf(t, text)
		checkLines(t, text, "text", asText)
		checkLines(t, text, "JSON", asJSON)
	})
}

func TestAVendorsWordForAnErrorIsToldOnlyIfItIsAWord(t *testing.T) {
	for said, want := range map[fault.Code]string{
		"no_such_voice": "no_such_voice", "Throttling.RateQuota": "Throttling.RateQuota",
		"You said: say four words": "upstream_error", fault.Code(strings.Repeat("x", 65)): "upstream_error",
	} {
		var d diary
		var log bytes.Buffer
		up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
			return nil, &fault.Error{Code: said, Status: 422, Message: "No.", Err: &upstream.Failure{Sent: true, Status: 422}}
		})
		h := newHouse(t, up, "1", func(o *gateway.Options) {
			o.Observe, o.Logger = d.observer(), slog.New(slog.NewTextHandler(&log, nil))
		})
		if _, err := h.Chat(t.Context(), chatRequest()); fault.From(err).Code != said {
			t.Errorf("the caller got %v", err)
		}
		f := d.facts[0]
		if f.Outcome != want || string(f.Code) != want || string(f.Attempts[0].Code) != want || f.Attempts[0].Error != want+" (upstream status 422)" {
			t.Errorf("%q is told as %+v", said, f)
		}
		if want != string(said) && strings.Contains(log.String(), string(said)) {
			t.Errorf("the log has %q", said)
		}
	}
}
