package responses

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The codes of a response that failed, by which clients decide whether to ask again:
// https://platform.openai.com/docs/api-reference/responses/object.
const (
	serverError       = "server_error"
	rateLimited       = "rate_limit_exceeded"
	overloaded        = "server_is_overloaded"
	slowDown          = "slow_down"
	contextExceeded   = "context_length_exceeded"
	invalidPrompt     = "invalid_prompt"
	insufficientQuota = "insufficient_quota"
)

// vendorWords are what a caller reads of an error that is not about its own request, by the
// vendor's code. The vendor's own words name the operator's organisation, its limits and
// models.
var vendorWords = map[string]string{
	rateLimited: "The upstream's rate limit is reached.",
	overloaded:  "The upstream is overloaded.",
	slowDown:    "The upstream asks for fewer requests.",
	serverError: "The upstream failed.",
}

// vendorError is the error that an upstream put into an answer or a stream. The log gets
// the code alone.
func vendorError(raw []byte) error {
	err := answer.ErrorFrame(raw)
	f, _ := upstream.FailureOf(err)
	for _, member := range [...]string{"code", "type"} {
		word := rawjson.LookupString(raw, member)
		if message := vendorWords[word]; message != "" && !f.Fatal {
			return fault.From(err).With(func(e *fault.Error) { e.Message = message + again(answer.Words(raw)) })
		}
		if word != "" && word != "error" { // it says what is wrong: the type would only be more general
			break
		}
	}
	return err
}

// again repeats how long the vendor's words ask to wait, which agents read there; empty if
// they do not say so.
func again(message string) string {
	_, rest, _ := strings.Cut(message, "try again in ")
	word, _, _ := strings.Cut(rest, " ")
	wait, err := time.ParseDuration(strings.TrimRight(word, ".,;"))
	if err != nil || wait <= 0 || wait > time.Hour {
		return ""
	}
	return fmt.Sprintf(" Please try again in %dms.", wait.Milliseconds())
}

// publicError is the error of a response that has output, as the caller gets it.
func publicError(raw []byte) []byte {
	_, response := errorJSON(fault.From(vendorError(raw)))
	return response
}

// streamCode is the code that a response fails with for an error. Clients repeat the
// request at "server_error", so that what cannot succeed has another one.
func streamCode(f *fault.Error) string {
	own := []string{contextExceeded, invalidPrompt, insufficientQuota, rateLimited, overloaded}
	switch status := f.HTTPStatus(); {
	case slices.Contains(own, string(f.Code)):
		return string(f.Code)
	case status == 402:
		return insufficientQuota
	case status == 429:
		return rateLimited
	case status == 503:
		return overloaded
	case status == 408, status == 409, status == 499:
		return serverError
	case status >= 400 && status < 500:
		return invalidPrompt
	}
	return serverError
}

// errorObject is an error on the wire.
type errorObject struct {
	Type    string     `json:"type"`
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Param   *string    `json:"param"`
}

// failure is the error of a response that failed.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// errorJSON is the error in the two forms in which a stream reports it.
func errorJSON(f *fault.Error) (object, response []byte) {
	e := errorObject{Type: fault.Type(f.HTTPStatus()), Code: f.Code, Message: f.Message}
	if f.Param != "" {
		e.Param = &f.Param
	}
	object, err := json.Marshal(e)
	response, err2 := json.Marshal(failure{streamCode(f), f.Message})
	if err != nil || err2 != nil { // invalid UTF-8 in a message
		return []byte(`{"type":"api_error","code":"internal_error","message":"The request failed.","param":null}`),
			[]byte(`{"code":"server_error","message":"The request failed."}`)
	}
	return object, response
}
