package anthropic

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// vendorError is the object under "error" of an error body.
type vendorError struct {
	kind, message string
	code          string // of other vendors of the wire
	body          []byte // the document, if it has the form of the public wire
}

// parseError reads an error body; false if it is not one.
func parseError(data []byte) (v vendorError, ok bool) {
	outer, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return v, false
	}
	inner, err := rawjson.Index(outer.Raw("error"), nil, nil)
	if err != nil {
		return v, false
	}
	v.kind, _ = rawjson.String(inner.Raw("type"))
	v.message, _ = rawjson.String(inner.Raw("message"))
	v.code, _ = rawjson.String(inner.Raw("code"))
	if name, _ := rawjson.String(outer.Raw("type")); name == "error" && v.kind != "" {
		v.body = data
	}
	return v, true
}

// permissionError is the type of an error that is the operator's fault, or of what one
// request asks for.
const permissionError = "permission_error"

// unpaidPrefixes begin the messages, in lower case, of an account that may no longer be used.
// Only they tell it from a bad request: both are a 400 of type invalid_request_error.
var unpaidPrefixes = []string{
	"your credit balance is too low",
	"you have reached your specified api usage limits",
	"this organization has been disabled",
}

// operatorsFault reports whether the operator's key or vendor account is at fault.
func (v *vendorError) operatorsFault() bool {
	if v.kind == permissionError || answer.OperatorFault(v.kind) != 0 || answer.OperatorFault(v.code) != 0 {
		return true
	}
	if strings.Contains(v.message, ": ") {
		return false // it names a field, and fields a caller names as they like
	}
	message := strings.ToLower(v.message)
	return slices.ContainsFunc(unpaidPrefixes, func(begin string) bool { return strings.HasPrefix(message, begin) })
}

// noModel reports whether the error is about a model that the vendor does not have. It knows
// the words of Anthropic, Ollama, vLLM and DeepSeek, and Z.ai's code 1211.
func (v *vendorError) noModel(status int) bool {
	text := strings.TrimSuffix(strings.ToLower(v.message), ".")
	switch {
	case status == http.StatusNotFound && (v.kind == "not_found_error" || v.kind == "NotFoundError"):
		named := strings.HasPrefix(text, "model '") || strings.HasPrefix(text, "the model `")
		return strings.HasPrefix(text, "model: ") || named && (strings.HasSuffix(text, "not found") || strings.HasSuffix(text, "does not exist"))
	case status == http.StatusBadRequest:
		return v.kind == "1211" || v.code == "1211" || text == "model not exist"
	}
	return false
}

// publicCode is the error's code for the caller.
func (v *vendorError) publicCode() fault.Code {
	if v.kind == "" {
		return fault.InvalidRequest
	}
	return fault.Code(v.kind)
}

// oversized reports whether a rate limit refuses the request for its own size, so waiting does
// not help. All input tokens of the minute were still left
// (https://docs.claude.com/en/api/rate-limits#response-headers). The message is the same for a
// request that came after too many others.
func oversized(h http.Header) bool {
	limit, err := strconv.ParseUint(h.Get("Anthropic-Ratelimit-Input-Tokens-Limit"), 10, 64)
	left, err2 := strconv.ParseUint(h.Get("Anthropic-Ratelimit-Input-Tokens-Remaining"), 10, 64)
	requests, err3 := strconv.ParseUint(h.Get("Anthropic-Ratelimit-Requests-Remaining"), 10, 64)
	return err == nil && err2 == nil && limit > 0 && left >= limit && (err3 != nil || requests > 0)
}

// refused makes the error of a refusal. It is the caller's fault, with the vendor's text, or
// else the operator's or the vendor's fault.
func refused(c *httpdo.Client, status int, data []byte, h http.Header) error {
	v, _ := parseError(data)
	e, f := c.Refused(status, string(data), h)
	if status < 500 && v.operatorsFault() {
		e = c.OperatorFault(f)
		f.Ambiguous = v.kind == permissionError
	}
	if f.Status == http.StatusTooManyRequests && !f.Fatal && oversized(h) {
		f.Oversized = true
		e = f.Fault()
	}
	f.NoModel = v.noModel(status)
	if e.Code == fault.InvalidRequest {
		c.QuoteError(e, httpdo.VendorError{Code: v.publicCode(), Message: v.message, Body: v.body, Said: data})
	}
	return e
}
