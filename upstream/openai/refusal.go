package openai

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// vendorError is the object under "error". Vendors differ in what they put
// where: a code may be a number, and the object a mere string.
type vendorError struct {
	message, kind, code, param string
	codeNumber                 int    // a code that is a number
	body                       []byte // the document, if it has OpenAI's form
	google                     googleDetail
}

// parseError reads an error body; false if it is not one.
func parseError(data []byte) (v vendorError, ok bool) {
	data = unwrapList(data)
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return v, false
	}
	raw := o.Raw("error")
	if rawjson.IsNull(raw) {
		return parseBare(&o)
	}
	if v.message, ok = rawjson.String(raw); ok {
		v.code, _ = rawjson.String(o.Raw("code")) // xAI's stands beside it
		return v, true
	}
	if o, err = rawjson.Index(raw, nil, nil); err != nil {
		return v, false
	}
	v.body = data
	v.message, _ = rawjson.String(o.Raw("message"))
	v.kind, _ = rawjson.String(o.Raw("type"))
	v.param, _ = rawjson.String(o.Raw("param"))
	v.code, _ = rawjson.String(o.Raw("code"))
	n, _ := rawjson.Int(o.Raw("code"))
	if n >= 400 && n < 600 {
		v.codeNumber = int(n)
	}
	if v.kind == "" {
		v.kind, _ = rawjson.String(o.Raw("status")) // Google's word for it
	}
	v.google = parseDetails(o.Raw("details"))
	return v, true
}

// parseBare reads an error that is not under "error". It is a message alone (Cohere, Mistral,
// Amazon), or an object of the kind "error" (Mistral, vLLM). Or it is a detail (Mistral,
// NVIDIA, and FastAPI's servers), or MiniMax's base_resp. An answer has choices, data or
// output, and none of these.
func parseBare(o *rawjson.Object) (v vendorError, ok bool) {
	if base := o.Raw("base_resp"); !rawjson.IsNull(base) {
		b, err := rawjson.Index(base, nil, nil)
		code, _ := rawjson.Int(b.Raw("status_code"))
		v.message, _ = rawjson.String(b.Raw("status_msg"))
		v.code = strconv.FormatInt(code, 10)
		return v, err == nil && code != 0
	}
	for _, name := range [2]string{"message", "detail"} {
		raw := o.Raw(name)
		if v.message, ok = rawjson.String(raw); !ok && !rawjson.IsNull(raw) && (raw[0] == '{' || raw[0] == '[') {
			v.message, ok = string(raw), true // a list of what is wrong with which field
		}
		if ok {
			break
		}
	}
	v.kind, _ = rawjson.String(o.Raw("type"))
	v.code, _ = rawjson.String(o.Raw("code"))
	v.param, _ = rawjson.String(o.Raw("param"))
	return v, ok
}

// googleFaults are Google's words for what is the operator's fault in a 400, in lower case,
// besides those of [answer.OperatorFault].
var googleFaults = map[string]int{
	"failed_precondition": http.StatusPaymentRequired, // no free use in the operator's country
}

// oversizedCodes are the codes of a request that is too large for the vendor's limits at any
// rate.
var oversizedCodes = map[string]int{
	"context_length_exceeded": http.StatusTooManyRequests,
	"request_too_large":       http.StatusTooManyRequests,
	"string_above_max_length": http.StatusTooManyRequests,
}

// missingModels are codes and types of errors about a model that the vendor does not
// have, or not for the vendor account.
var missingModels = map[string]bool{
	"1211":                             true, // Z.ai
	"deploymentnotfound":               true, // Azure
	"invalid_model":                    true, // Mistral
	"model_not_available":              true, // Together
	"model_not_found":                  true,
	"model_not_supported":              true, // Hugging Face
	"model_permission_blocked_org":     true, // Groq
	"model_permission_blocked_project": true,
	"unknown_model":                    true,
}

// missingTexts are all that some vendors say of such a model, in lower case, with any status.
var missingTexts = map[string]bool{
	"model not exist":                          true, // DeepSeek
	"the provided model identifier is invalid": true, // Amazon
}

// missingWords are what vendors without a code write of such a model, in lower case.
var missingWords = []string{
	"not found", "not exist", "no access", "not have access", "don't have access", "no endpoints found", "not a valid model", "not supported", "not deployed", "unknown model", "invalid model",
}

// lookup looks the error's codes up.
func (v *vendorError) lookup(table map[string]int) int {
	for _, word := range v.words() {
		if status := table[strings.ToLower(word)]; status != 0 {
			return status
		}
	}
	return 0
}

// words are those of the error that can be a code.
func (v *vendorError) words() [3]string { return [3]string{v.code, v.kind, v.google.reason} }

// operatorFault is the status by which the error says that the operator's key or vendor
// account is at fault; 0 if it does not.
func (v *vendorError) operatorFault() int {
	for _, word := range v.words() {
		if status := answer.OperatorFault(word); status != 0 {
			return status
		}
	}
	return v.lookup(googleFaults)
}

// oversized reports whether a rate limit refuses the request for its own size, so waiting
// does not help. OpenAI then answers 429: "Request too large for … on tokens per min:
// Limit 30000, Requested 90000".
func (v *vendorError) oversized() bool {
	return v.lookup(oversizedCodes) != 0 || strings.HasPrefix(strings.ToLower(v.message), "request too large")
}

// overBatch reports whether llama.cpp refuses, by a 500, an input that is larger than one
// of its batches. Any caller can send one, so it says nothing about the server's health.
func (v *vendorError) overBatch() bool {
	text := strings.ToLower(v.message)
	return strings.HasPrefix(text, "input (") && strings.Contains(text, "is too large to process")
}

// noModel reports whether the error is about the request's model alone. An error that names
// another parameter is about that. Without a code, the status and the text must both say so.
func (v *vendorError) noModel(status int) bool {
	if status < 400 || status >= 500 || status == http.StatusTooManyRequests || v.param != "" && v.param != "model" {
		return false
	}
	text := strings.TrimSuffix(strings.ToLower(v.message), ".")
	if missingModels[strings.ToLower(v.code)] || missingModels[strings.ToLower(v.kind)] || missingTexts[text] ||
		strings.HasPrefix(text, "model `") && strings.HasSuffix(text, "` isn't supported on this route") { // Amazon, whose addresses have different models
		return true
	}
	about := strings.Contains(text, "model") || strings.Contains(text, "function '") // NVIDIA's models are functions
	says := func(words string) bool { return strings.Contains(text, words) }
	return (status == http.StatusForbidden || status == http.StatusNotFound) && about && slices.ContainsFunc(missingWords, says)
}

// publicCode is the error's code for the caller.
func (v *vendorError) publicCode() fault.Code {
	switch {
	case v.code != "":
		return fault.Code(v.code)
	case v.kind != "":
		return fault.Code(v.kind)
	case v.codeNumber != 0:
		return fault.Code(strconv.Itoa(v.codeNumber))
	}
	return fault.InvalidRequest
}

// refused makes the error of a refusal. It is the caller's fault, with the vendor's text, or
// else the operator's or the vendor's fault.
func refused(c *httpdo.Client, status int, data []byte, h http.Header) error {
	v, _ := parseError(data)
	if status == http.StatusInternalServerError && v.overBatch() {
		status = http.StatusBadRequest
	}
	e, f := c.Refused(status, string(data), h)
	switch {
	case v.noModel(status) && v.operatorFault() == 0:
		f.NoModel, f.Fatal, f.Ambiguous = true, false, false
		if status == http.StatusForbidden || status == http.StatusUnauthorized { // the text is about the vendor account
			return fault.Wrap(fault.ModelNotFound, "The upstream does not have the model for this gateway.", f)
		}
		e = f.Fault()
	case v.operatorFault() != 0 && status < 500:
		e = c.OperatorFault(f)
		f.Ambiguous = strings.EqualFold(v.kind, "FAILED_PRECONDITION") // of many kinds
	case status == http.StatusTooManyRequests && v.oversized():
		f.Oversized = true
		e = f.Fault()
	case f.Refused && e.RetryAfter == 0:
		e.RetryAfter = v.google.wait
	}
	if e.Code == fault.InvalidRequest {
		c.QuoteError(e, httpdo.VendorError{Code: v.publicCode(), Message: v.message, Param: v.param, Body: v.body, Said: data})
	}
	return e
}

// googleDetail is what Google says in an error's details. The reason tells a bad key from
// a bad request. How long to wait is in no header.
type googleDetail struct {
	reason string        // of an ErrorInfo
	wait   time.Duration // of a RetryInfo
}

// parseDetails reads a list of messages that each have a "@type".
func parseDetails(raw []byte) (d googleDetail) {
	for _, item := range rawjson.Elements(raw) {
		o, err := rawjson.Index(item, nil, nil)
		if err != nil {
			continue // no object
		}
		if reason, ok := rawjson.String(o.Raw("reason")); ok {
			d.reason = reason
		}
		delay, _ := rawjson.String(o.Raw("retryDelay"))
		if wait, err := time.ParseDuration(delay); err == nil && wait > 0 {
			d.wait = min(wait, httpdo.MaxWait)
		}
	}
	return d
}

// unwrapList is the element of a list of one, in which some of Google's endpoints wrap
// an error, and data itself otherwise.
func unwrapList(data []byte) []byte {
	if all := rawjson.Elements(data); len(all) == 1 {
		return all[0]
	}
	return data
}
