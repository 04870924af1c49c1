package voyage

import (
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// refused makes the error of a refusal. It is the caller's fault, with the vendor's text, or
// else the operator's or the vendor's fault.
func refused(c *httpdo.Client, status int, data []byte, h http.Header) error {
	e, f := c.Refused(status, string(data), h)
	message, param := parseDetail(data)
	if status == http.StatusTooManyRequests && lacksPayment(message) {
		e = c.OperatorFault(f)
	}
	if e.Code == fault.InvalidRequest {
		c.QuoteError(e, httpdo.VendorError{Code: e.Code, Message: message, Param: publicParam(param), Said: data})
	}
	return e
}

// lacksPayment reports whether a rate limit is that of an account which has no means
// of payment: three requests a minute, which no waiting cures.
func lacksPayment(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "payment method") || strings.Contains(message, "billing")
}

// publicParam is the API's name of a field of Voyage's.
func publicParam(param string) string {
	switch param {
	case "output_dimension":
		return "dimensions"
	case "top_k":
		return "top_n"
	}
	return param
}

// parseDetail reads an error body: a text, or a list of {loc, msg, type} whose first element
// names the field.
func parseDetail(data []byte) (message, param string) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return "", ""
	}
	raw := o.Raw("detail")
	if message, ok := rawjson.String(raw); ok {
		return message, ""
	}
	var messages []string
	for i, item := range rawjson.Elements(raw) {
		message, field := fieldDetail(item)
		if message != "" {
			messages = append(messages, message)
		}
		if i == 0 {
			param = field
		}
	}
	return strings.Join(messages, "; "), param
}

// fieldDetail reads {"loc":["body","input"],"msg":…}; the field is the last name
// of loc.
func fieldDetail(raw []byte) (message, field string) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return "", ""
	}
	message, _ = rawjson.String(o.Raw("msg"))
	for _, part := range rawjson.Elements(o.Raw("loc")) {
		if name, ok := rawjson.String(part); ok && name != "body" {
			field = name
		}
	}
	if field != "" {
		message = field + ": " + message
	}
	return message, field
}
