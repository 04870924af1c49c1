package video

import (
	"fmt"
	"net/url"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/webhook"
)

// mostLink is the longest address, in bytes: signed ones are long.
const mostLink = 8192

// isLink reports whether text is an http or https address.
func isLink(text string) bool {
	if len(text) > mostLink {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != ""
}

// notLink is the refusal of what is no address.
func notLink(param string) *fault.Error {
	return must(URLInvalid, param, "an http or https address")
}

// checkWebhook refuses an address to which no notice would ever go, so that the
// caller hears of it now. Whether the address that a name stands for is public,
// is decided when it is dialled.
func checkWebhook(text string, private bool) error {
	const param = "webhook_url"
	if !isLink(text) {
		return notLink(param)
	}
	if err := webhook.CheckURL(text, private); err != nil {
		return refusal(URLInvalid, param, fmt.Sprintf("%q cannot be used: %s.", param, err))
	}
	return nil
}
