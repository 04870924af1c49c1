package video

import (
	"fmt"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
)

// The codes of api.md's table of video errors that the gateway itself gives,
// all with status 400. The table is both families': its row NotInEnum names
// aspect_ratio, which only beta has. A contradiction within a request is a
// fault.InvalidRequest.
const (
	InvalidParameter       fault.Code = "InvalidParameter"                        // a value of the wrong kind, or one that the model does not take
	MissingRequired        fault.Code = "InvalidParameter.MissingRequired"        // a required field is absent
	NotInEnum              fault.Code = "InvalidParameter.NotInEnum"              // a word that is not one of those allowed
	PromptTooLong          fault.Code = "InvalidParameter.PromptTooLong"          // more characters than the model takes
	URLInvalid             fault.Code = "InvalidParameter.UrlInvalid"             // no address, or not http(s)
	ResolutionNotSupported fault.Code = "InvalidParameter.ResolutionNotSupported" // the model does not have the resolution
	DurationOutOfRange     fault.Code = "InvalidParameter.DurationOutOfRange"     // the model does not make videos of that length
	ContentEmpty           fault.Code = "InvalidParameter.ContentEmpty"           // neither a prompt nor content
	UnsupportedRole        fault.Code = "InvalidParameter.UnsupportedRole"        // the role of a content block
)

// refusal is a 400 about a field.
func refusal(code fault.Code, param, message string) *fault.Error {
	return &fault.Error{Code: code, Status: 400, Param: param, Message: message}
}

// must is a refusal whose message is made of what would be right.
func must(code fault.Code, param, be string) *fault.Error {
	return refusal(code, param, fmt.Sprintf("%q must be %s.", param, be))
}

// missing is the refusal of a request that lacks a field.
func missing(param, what string) *fault.Error {
	return refusal(MissingRequired, param, fmt.Sprintf("%q is missing: it is %s.", param, what))
}

// clip bounds what a message or a record repeats of another's text.
func clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
