// Package answer makes the errors of upstreams' answers that are not what their
// status 200 says.
package answer

import (
	"errors"
	"fmt"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Whole is what is wrong with an answer that is to be one JSON object, of which o
// is the index and err its error: it is none, or it holds an error; nil if it is
// sound so far.
func Whole(o *rawjson.Object, err error) error {
	if err != nil {
		return upstream.BadAnswer("The upstream's answer is not one JSON object.", err)
	}
	if e := o.Raw("error"); !rawjson.IsNull(e) {
		return ErrorFrame(e)
	}
	return nil
}

// ErrorFrame is the error that an upstream put into a 200 answer or stream. Its
// text may hold the operator's key or the caller's prompt: neither the caller
// nor the log gets more than the vendor's code.
func ErrorFrame(raw []byte) error {
	f := &upstream.Failure{Status: 200, Sent: true, Err: errors.New("an error in a 200 answer")}
	if o, err := rawjson.Index(raw, nil, nil); err == nil {
		for _, name := range [...]string{"code", "type"} {
			if s, ok := rawjson.String(o.Raw(name)); ok && safetext.IsCode(s) {
				f.Err = fmt.Errorf("an error in a 200 answer: %s", s)
				f.Fatal = f.Fatal || fatal[s]
			}
		}
	}
	return fault.Wrap(fault.BadGateway, "The upstream reported an error.", f)
}

// fatal are the codes by which vendors say that the operator's key or account
// is at fault.
var fatal = map[string]bool{
	"invalid_api_key": true, "incorrect_api_key_error": true, "invalid_authentication_error": true, "authentication_error": true,
	"permission_error": true, "permission_denied_error": true, "account_deactivated": true, "billing_error": true,
	"insufficient_quota": true, "exceeded_current_quota_error": true, "insufficient_balance": true, "Arrearage": true,
}
