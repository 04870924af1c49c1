package ark

import (
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// refusal is the vendor's error object: {error: {code, message, param, type}}.
type refusal struct{ code, message, param string }

// parseRefusal reads an error body; false if it is not one.
func parseRefusal(data []byte) (r refusal, ok bool) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return r, false
	}
	if o, err = rawjson.Index(o.Raw("error"), nil, nil); err != nil {
		return r, false
	}
	r.code, _ = rawjson.String(o.Raw("code"))
	r.message, _ = rawjson.String(o.Raw("message"))
	r.param, _ = rawjson.String(o.Raw("param"))
	return r, r.code != ""
}

// meaning is what a code of the vendor's means.
type meaning struct {
	prefix  string     // of the code
	status  int        // what it should have come with; 0 for what it did
	code    fault.Code // the API's code; empty for the vendor's own
	private bool       // the vendor's text is of the vendor account: it does not go to callers
	fatal   bool       // the operator's key or vendor account is at fault
}

// meanings is the table: the first row that fits counts. A code without a row
// means what its status does, and is kept if it is the caller's fault.
var meanings = []meaning{
	{prefix: "MissingParameter", code: "InvalidParameter.MissingRequired"},
	{prefix: "InputTextSensitiveContentDetected", code: "InputTextSensitiveContentDetected"},
	{prefix: "InputImageSensitiveContentDetected", code: "InputImageSensitiveContentDetected"},
	{prefix: "InputVideoSensitiveContentDetected", code: "InputVideoSensitiveContentDetected"},
	{prefix: "InputAudioSensitiveContentDetected", code: "InputAudioSensitiveContentDetected"},
	{prefix: "InvalidEndpointOrModel", status: http.StatusNotFound, code: fault.ModelNotFound, private: true},
	{prefix: "ModelNotOpen", status: http.StatusNotFound, code: fault.ModelNotFound, private: true},
	{prefix: "UnsupportedModel", status: http.StatusNotFound, code: fault.ModelNotFound, private: true},
	{prefix: "ResourceNotFound", status: http.StatusNotFound, code: fault.ResourceNotFound},
	{prefix: "AuthenticationError", status: http.StatusUnauthorized, fatal: true},
	{prefix: "AccessDenied", status: http.StatusForbidden},
	{prefix: "AccountOverdueError", status: http.StatusPaymentRequired, fatal: true},
	{prefix: "OperationDenied.Service", status: http.StatusForbidden, fatal: true},
	{prefix: "OperationDenied", status: http.StatusForbidden},
	{prefix: "QuotaExceeded", status: http.StatusPaymentRequired, fatal: true},
	{prefix: "SetLimitExceeded", status: http.StatusPaymentRequired, fatal: true},
	{prefix: "ServerOverloaded", status: http.StatusServiceUnavailable},
}

func meaningOf(code string) meaning {
	for _, m := range meanings {
		if strings.HasPrefix(code, m.prefix) {
			return m
		}
	}
	return meaning{}
}

const noModel = "No upstream channel has the model."

// refused makes the error of a refusal. It is the caller's fault, with the vendor's text, or
// else the operator's or the vendor's fault.
func refused(c *httpdo.Client, status int, data []byte, h http.Header) error {
	r, known := parseRefusal(data)
	var m meaning
	if known && status < http.StatusInternalServerError {
		m = meaningOf(r.code)
	}
	if m.status != 0 {
		status = m.status
	}
	e, f := c.Refused(status, string(data), h)
	f.Stated = known && upstream.Stated(status, r.code)
	switch {
	case m.fatal:
		f.Ambiguous = false
	case e.Code != fault.InvalidRequest:
	case !known:
		c.QuoteError(e, httpdo.VendorError{Code: e.Code, Said: data})
	case m.private:
		e.Code, e.Message = m.code, noModel
	case m.code != "":
		c.QuoteError(e, httpdo.VendorError{Code: m.code, Message: r.message, Param: r.param})
	default:
		c.QuoteError(e, httpdo.VendorError{Code: fault.Code(r.code), Message: r.message, Param: r.param, Body: data})
	}
	return e
}

// taskNotFound returns the error of a poll. The thing that was not found is the task, whatever
// the vendor calls it.
func taskNotFound(err error) error {
	e := fault.From(err)
	if e.HTTPStatus() != http.StatusNotFound || e.Code == fault.ModelNotFound {
		return err
	}
	return e.With(func(e *fault.Error) { e.Code, e.Body = fault.ResourceNotFound, nil })
}
