package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// maxAdminBody is far more than any request of the operator's needs.
const maxAdminBody = 1 << 20

// body reads the request's JSON object. An unknown, repeated or mistyped field
// is a 400 that names it.
func (q *adminRequest) body(into any) error {
	err := json.UnmarshalRead(http.MaxBytesReader(q.w, q.r.Body, maxAdminBody), into, json.RejectUnknownMembers(true))
	var (
		large  *http.MaxBytesError
		member *json.SemanticError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return tooLarge(maxAdminBody)
	case errors.As(err, &member):
		return badMember(member)
	}
	return fault.Wrap(fault.InvalidRequest, "The request body must be one JSON object.", err)
}

// badMember does not repeat the value: it may be a key in the wrong place.
func badMember(e *json.SemanticError) error {
	field := e.JSONPointer.LastToken()
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return fault.Invalid(clip(field), "There is no field "+strconv.Quote(clip(field))+" in this request.")
	case field == "":
		return fault.New(fault.InvalidRequest, "The request body must be a JSON object.")
	}
	return fault.Invalid(clip(field), fmt.Sprintf("The field %q must not be a JSON %s.", clip(field), e.JSONKind))
}

// amount reads an optional decimal string; absent is 0.
func amount(field, text string) (billing.Money, error) {
	if text == "" {
		return 0, nil
	}
	m, err := billing.ParseMoney(text)
	if err != nil {
		return 0, fault.Invalid(field, fmt.Sprintf("The field %q must be a decimal string such as \"25.00\".", field))
	}
	return m, nil
}
