package dashscope

import (
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// refusal is the vendor's error object: {code, message, request_id}.
type refusal struct{ code, message string }

// parseRefusal reads an error object; false if data is not one. A good answer may also have
// both members, empty.
func parseRefusal(data []byte) (r refusal, ok bool) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return r, false
	}
	r.code, _ = rawjson.String(o.Raw("code"))
	r.message, _ = rawjson.String(o.Raw("message"))
	return r, r.code != "" && rawjson.IsNull(o.Raw("output"))
}

// rateQuota is a code of a rate limit here, and of a balance that is used up at other vendors.
const rateQuota = "insufficient_quota"

// statuses are those of codes that come in a 200, by their prefix.
var statuses = []struct {
	prefix string
	status int
}{
	{"Throttling", http.StatusTooManyRequests},
	{"InvalidApiKey", http.StatusUnauthorized},
	{"AccessDenied", http.StatusForbidden},
	{"ModelNotFound", http.StatusNotFound},
	{"InternalError.Algo.InvalidParameter", http.StatusBadRequest},
	{"InternalError.Algo.DataInspectionFailed", http.StatusBadRequest},
	{"InternalError", http.StatusInternalServerError},
	{"SystemError", http.StatusInternalServerError},
	{"ModelServingError", http.StatusInternalServerError},
	{"ModelServiceFailed", http.StatusInternalServerError},
	{"RequestTimeOut", http.StatusGatewayTimeout},
	{"ResponseTimeout", http.StatusGatewayTimeout},
	{"ModelUnavailable", http.StatusServiceUnavailable},
}

// statusOf is what a code would have come with, had the vendor not said 200. An
// unknown one is the caller's fault, as most are.
func statusOf(code string) int {
	for _, s := range statuses {
		if strings.HasPrefix(code, s.prefix) {
			return s.status
		}
	}
	return http.StatusBadRequest
}

// refused makes the error of a refusal. It is the caller's fault, with the vendor's text, or
// else the operator's or the vendor's fault.
func refused(c *httpdo.Client, status int, data []byte, h http.Header) error {
	r, known := parseRefusal(data)
	e, f := c.Refused(status, string(data), h)
	f.Stated = known && upstream.Stated(status, r.code)
	if known && r.code != rateQuota && answer.OperatorFault(r.code) != 0 {
		e = c.OperatorFault(f)
	}
	switch {
	case e.Code != fault.InvalidRequest:
	case !known:
		c.QuoteError(e, httpdo.VendorError{Code: e.Code, Said: data})
	default:
		e.Code = fault.Code(c.Keys.Mask(r.code))
		if message := c.Keys.Mask(r.message); message != "" {
			e.Message = message
		}
		if len(data) <= httpdo.MaxRefusal && c.Keys.Mask(string(data)) == string(data) {
			e.Body = data
		}
	}
	return e
}

// refusedWith200 is the error object in an answer of status 200.
func (d *driver) refusedWith200(data []byte, h http.Header) error {
	r, _ := parseRefusal(data)
	return refused(d.Client, statusOf(r.code), data, h)
}

// videoCodes are the API's codes for those of the vendor, by their prefix; any other
// is kept.
var videoCodes = []struct {
	prefix string
	code   fault.Code
}{
	{"BadRequest.InputDownloadFailed", "InvalidParameter.UrlNotAccessible"},
	{"InvalidParameter.DataInspection", "InvalidParameter.DataInspectionFailed"},
	{"InvalidURL", "InvalidParameter.UrlNotAccessible"},
	{"ModelNotFound", fault.ModelNotFound},
}

// publicVideoError is a refusal in the form of the endpoint, whose errors do not have the
// vendor's form.
func publicVideoError(err error) error {
	return fault.From(err).With(func(e *fault.Error) {
		e.Body = nil
		for _, row := range videoCodes {
			if strings.HasPrefix(string(e.Code), row.prefix) {
				e.Code = row.code
				break
			}
		}
	})
}
