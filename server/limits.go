package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
)

// The headers of a window, in canonical form: limit, remaining, reset.
var (
	requestLimits = [3]string{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}
	tokenLimits   = [3]string{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}
)

// limitHeaders tells the caller what is left of the key's limits, in OpenAI's
// form, where limits are set. Later calls do nothing.
func (x *exchange) limitHeaders() {
	if x.told {
		return
	}
	x.told = true
	state := x.Limits()
	if state.Requests.Limit > 0 {
		setWindow(x.w.Header(), requestLimits, state.Requests)
	}
	if state.Tokens.Limit > 0 {
		setWindow(x.w.Header(), tokenLimits, state.Tokens)
	}
}

func setWindow(h http.Header, names [3]string, w auth.Window) {
	values := []string{
		strconv.FormatInt(w.Limit, 10),
		strconv.FormatInt(max(w.Remaining, 0), 10),
		w.Reset.Round(time.Millisecond).String(),
	}
	for i, name := range names {
		h[name] = values[i : i+1 : i+1]
	}
}
