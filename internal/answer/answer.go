// Package answer judges the errors that upstreams put into answers whose status is 200.
package answer

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Whole returns what is wrong with an answer that must be one JSON object without an error in
// it; nil if it is sound. o is its index and err the error of indexing it.
func Whole(o *rawjson.Object, err error) error {
	if err != nil {
		return upstream.BadAnswer("The upstream's answer is not one JSON object.", err)
	}
	if e := o.Raw("error"); !rawjson.IsNull(e) {
		return ErrorFrame(o.Src)
	}
	return nil
}

// Document is the index of a whole answer that came instead of a stream, or the error
// that it is. Google puts an error into a list.
func Document(data []byte) (*rawjson.Object, error) {
	if all := rawjson.Elements(data); len(all) == 1 {
		data = all[0]
	}
	o, err := rawjson.Index(data, nil, nil)
	if _, decodable, broken := rawjson.Mend(data); err != nil && broken {
		o, err = rawjson.Index(decodable, nil, nil)
	}
	if err := Whole(&o, err); err != nil {
		return nil, err
	}
	for _, name := range [...]string{"choices", "content", "output", "data"} {
		if !rawjson.IsNull(o.Raw(name)) {
			return &o, nil
		}
	}
	if IsError(&o) {
		return nil, ErrorFrame(data)
	}
	return &o, nil
}

// IsError reports whether an object is an error in a form of a vendor's own. It is for objects
// that have nothing of what was asked for: some of their members are harmless elsewhere.
func IsError(o *rawjson.Object) bool {
	kind, _ := rawjson.String(o.Raw("type"))
	object, _ := rawjson.String(o.Raw("object"))
	switch kind {
	case "error", "response.error", "response.failed":
		return true
	}
	if object == "error" || len(o.Members) == 1 && o.Raw("detail") != nil {
		return true
	}
	if code, _ := rawjson.Int(rawjson.Lookup(o.Raw("base_resp"), "status_code")); code != 0 { // MiniMax
		return true
	}
	return words(o) != "" && (!rawjson.IsNull(o.Raw("code")) || !rawjson.IsNull(o.Raw("status")))
}

// ErrorFrame is the error that an upstream put into a 200 answer or stream: raw is the error
// object, or a document that has one. Its code, status or type says which status the vendor
// means, and the error is what a refusal with that status is. The caller gets the vendor's
// words only for a fault of the caller's. The log gets only the code, because the words may
// hold the caller's prompt. An error that does not say is a bad answer.
//
// Whoever passes the error on masks the operator's keys in it (upstream.Key.Masked).
func ErrorFrame(raw []byte) error {
	e := read(raw)
	f := &upstream.Failure{Status: http.StatusOK, Sent: true, Err: e.log()}
	f.Fatal, f.Ambiguous = e.operatorFault()
	status := e.status()
	switch {
	case f.Fatal, status == 0:
		return fault.Wrap(fault.BadGateway, reported, f)
	case status == http.StatusUnauthorized, status == http.StatusPaymentRequired, status == http.StatusForbidden:
		f.Fatal, f.Ambiguous = true, true
		return fault.Wrap(fault.BadGateway, reported, f)
	}
	said := f.Err
	f = upstream.FromStatus(status)
	f.Err, f.NoModel = said, missingModels[strings.ToLower(e.code)]
	f.Refused = status == http.StatusTooManyRequests // what the vendor did before another error is not known
	public := f.Fault()
	if f.Refused {
		public.RetryAfter = e.wait
	}
	if public.Code == fault.InvalidRequest {
		public.Code = e.publicCode()
		public.Param = safetext.Truncate(e.param, maxParam)
		if e.message != "" {
			public.Message = e.message
		}
	}
	return public
}

// reported is what a client reads of an error that is not its own fault.
const reported = "The upstream reported an error."

const (
	maxWords = 2 << 10 // bytes of a vendor's message that a caller gets
	maxParam = 256     // and of the name of a field
)

// vendorError is what an error object says.
type vendorError struct {
	message, code, kind, param string
	number                     int           // a status, if there is one
	wait                       time.Duration // Google's, of a RetryInfo; may be 0
}

// read reads an error object or the document around it. A document may have its error as a
// text beside its code. A text alone is a message.
func read(raw []byte) (e vendorError) {
	o, err := rawjson.Index(raw, nil, nil)
	for _, name := range [...]string{"error", "base_resp"} {
		if inner, failed := rawjson.Index(o.Raw(name), nil, nil); failed == nil {
			o = inner
		}
	}
	if err != nil {
		text, _ := rawjson.String(raw)
		return vendorError{message: bounded(text)}
	}
	e.message = bounded(words(&o))
	for _, detail := range rawjson.Elements(o.Raw("details")) {
		if wait, err := time.ParseDuration(rawjson.LookupString(detail, "retryDelay")); err == nil && wait > 0 {
			e.wait = min(wait, time.Hour)
		}
	}
	e.kind, _ = rawjson.String(o.Raw("type"))
	e.param, _ = rawjson.String(o.Raw("param"))
	for _, name := range [...]string{"code", "status", "status_code"} {
		value := o.Raw(name)
		word, isWord := rawjson.String(value)
		if !isWord {
			word = string(value)
		}
		if n, err := strconv.Atoi(word); err == nil && n >= 400 && n < 600 {
			if e.number == 0 {
				e.number = n
			}
			continue
		}
		if e.code == "" && safetext.IsCode(word) && word != "null" {
			e.code = word
		}
	}
	return e
}

// words are those of the error that can say what is wrong.
func (e *vendorError) words() [2]string { return [2]string{e.code, e.kind} }

// log is the error for the log.
func (e *vendorError) log() error {
	said := "an error in a 200 answer"
	switch word := string(e.publicCode()); {
	case word != string(fault.InvalidRequest) || e.kind == word || e.code == word:
		said += ": " + word
	case e.number != 0:
		said += ": " + strconv.Itoa(e.number)
	}
	return errors.New(said)
}

// operatorFault reports whether the error is about the operator's key or vendor account, and
// whether it can be about what one request asks for instead.
func (e *vendorError) operatorFault() (fatal, ambiguous bool) {
	for _, word := range e.words() {
		if OperatorFault(word) != 0 {
			return true, false
		}
		ambiguous = ambiguous || permissionFaults[strings.ToLower(word)]
	}
	message := strings.ToLower(e.message)
	if slices.ContainsFunc(unpaid, func(text string) bool { return strings.Contains(message, text) }) {
		return true, false
	}
	return ambiguous, ambiguous
}

// unpaid are phrases, in lower case. Only they tell Anthropic's errors about an unusable
// account from those about a bad request.
var unpaid = []string{"credit balance", "you have reached your specified api usage limits", "this organization has been disabled"}

// status is the status that the error means; 0 if it does not say. A code says more than a
// number, and a number more than a type.
func (e *vendorError) status() int {
	if status := statusOf[strings.ToLower(e.code)]; status != 0 {
		return status
	}
	if e.number != 0 {
		return e.number
	}
	return statusOf[strings.ToLower(e.kind)]
}

// publicCode is the code of a caller's fault.
func (e *vendorError) publicCode() fault.Code {
	for _, word := range e.words() {
		if safetext.IsCode(word) && word != "error" {
			return fault.Code(word)
		}
	}
	return fault.InvalidRequest
}

// statusOf are the statuses that vendors mean by a code or a type, in lower case.
var statusOf = map[string]int{
	"api_error":                http.StatusInternalServerError,
	"badrequesterror":          http.StatusBadRequest, // vLLM
	"content_filter":           http.StatusBadRequest,
	"content_policy_violation": http.StatusBadRequest,
	"context_length_exceeded":  http.StatusBadRequest,
	"deadline_exceeded":        http.StatusGatewayTimeout, // Google, as the other words without "error" in their ends
	"engine_overloaded_error":  http.StatusTooManyRequests,
	"internal":                 http.StatusInternalServerError,
	"internal_error":           http.StatusInternalServerError,
	"internal_server_error":    http.StatusInternalServerError,
	"invalid_argument":         http.StatusBadRequest,
	"invalid_prompt":           http.StatusBadRequest,
	"invalidparameter":         http.StatusBadRequest, // DashScope
	"invalid_request_error":    http.StatusBadRequest,
	"model_not_found":          http.StatusNotFound,
	"not_found_error":          http.StatusNotFound,
	"overloaded_error":         529,
	"permission_denied":        http.StatusForbidden,
	"rate_limit_error":         http.StatusTooManyRequests,
	"rate_limit_exceeded":      http.StatusTooManyRequests,
	"rate_limit_reached_error": http.StatusTooManyRequests,
	"request_too_large":        http.StatusRequestEntityTooLarge,
	"resource_exhausted":       http.StatusTooManyRequests,
	"server_error":             http.StatusInternalServerError,
	"server_is_overloaded":     http.StatusServiceUnavailable,
	"service_unavailable":      http.StatusServiceUnavailable,
	"slow_down":                http.StatusServiceUnavailable,
	"string_above_max_length":  http.StatusBadRequest,
	"throttling":               http.StatusTooManyRequests,
	"throttling.ratequota":     http.StatusTooManyRequests,
	"timeout_error":            http.StatusGatewayTimeout,
	"too_many_requests":        http.StatusTooManyRequests,
	"unauthenticated":          http.StatusUnauthorized,
	"unavailable":              http.StatusServiceUnavailable,
}

// missingModels are the codes of errors about a model that the vendor does not have.
var missingModels = map[string]bool{"model_not_found": true}

// OperatorFault returns the status that a vendor's code, type or reason means if it blames the
// operator's key or vendor account. The status that came with it does not count. It returns 0
// for any other code. Case does not count.
func OperatorFault(code string) int { return operatorFaults[strings.ToLower(code)] }

// operatorFaults is the table of [OperatorFault].
var operatorFaults = map[string]int{
	"1004":                         http.StatusUnauthorized,    // MiniMax, in a 200
	"1008":                         http.StatusPaymentRequired, // MiniMax, in a 200
	"1113":                         http.StatusPaymentRequired, // Z.ai, in a 429
	"accessdenied.unpurchased":     http.StatusForbidden,       // DashScope, as the other words without a "_"
	"account_deactivated":          http.StatusPaymentRequired,
	"accountoverdueerror":          http.StatusPaymentRequired,
	"allocationquota.freetieronly": http.StatusPaymentRequired,
	"api_key_invalid":              http.StatusUnauthorized, // Google, in a 400
	"arrearage":                    http.StatusPaymentRequired,
	"authentication_error":         http.StatusUnauthorized,
	"billing_error":                http.StatusPaymentRequired,
	"billing_hard_limit_reached":   http.StatusPaymentRequired,
	"billing_not_active":           http.StatusPaymentRequired,
	"commoditynotpurchased":        http.StatusPaymentRequired,
	"exceeded_current_quota_error": http.StatusPaymentRequired,
	"incorrect_api_key_error":      http.StatusUnauthorized,
	"insufficient_balance":         http.StatusPaymentRequired,
	"insufficient_quota":           http.StatusPaymentRequired,
	"invalid_api_key":              http.StatusUnauthorized,
	"invalid_authentication_error": http.StatusUnauthorized,
	"invalidapikey":                http.StatusUnauthorized,
	"postpaidbilloverdue":          http.StatusPaymentRequired,
	"prepaidbilloverdue":           http.StatusPaymentRequired,
}

// permissionFaults are types that blame the operator in a 200, but may also be about one
// request. In a refusal, the status already says which.
var permissionFaults = map[string]bool{"permission_denied_error": true, "permission_error": true}
