package gateway

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

func TestATransportsErrorKeepsItsReasonAndLosesTheVendorsWords(t *testing.T) {
	const broken = "BadGateway: The upstream's answer was malformed or cut short. (upstream: "
	for text, want := range map[string]string{
		"read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer": broken + "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer)",
		io.ErrUnexpectedEOF.Error():                                         broken + "unexpected EOF)",
		`malformed MIME header line: "secret"`:                              broken + "malformed MIME header",
		"malformed MIME header initial line: secret":                        broken + "malformed MIME header",
		`transport connection broken: malformed HTTP "secret"`:              broken + "transport connection broken: malformed HTTP",
		`bad Content-Length "secret"`:                                       broken + "bad Content-Length",
		`cannot contain multiple headers; got ["secret" "b"]`:               broken + "cannot contain multiple headers; got",
		strings.Repeat("long ", 100):                                        "",
	} {
		got := redactError((&upstream.Failure{Sent: true, Err: errors.New(text)}).Fault())
		if want != "" && got != want || len(got) > 256+len("…") {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
}
