// Package answer makes the errors of upstreams' answers that are not what their
// status 200 says.
package answer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

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
	certain := false // it is the operator's fault, whatever was asked for
	if o, err := rawjson.Index(raw, nil, nil); err == nil {
		for _, name := range [...]string{"code", "type"} {
			if s, ok := rawjson.String(o.Raw(name)); ok && safetext.IsCode(s) {
				f.Err = fmt.Errorf("an error in a 200 answer: %s", s)
				certain = certain || OperatorFault(s) != 0
				f.Fatal = f.Fatal || certain || permissionFaults[s]
			}
		}
	}
	f.Ambiguous = f.Fatal && !certain
	return fault.Wrap(fault.BadGateway, "The upstream reported an error.", f)
}

// OperatorFault is the status that a vendor's code, type or reason means by which it says that
// the operator's key or vendor account is at fault, whatever the status that it comes with; 0 for any
// other. Letters count as lower-case ones.
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

// permissionFaults are types that say the same in a 200, but may also be of what one request
// asks for; in a refusal its status says it already.
var permissionFaults = map[string]bool{"permission_denied_error": true, "permission_error": true}
