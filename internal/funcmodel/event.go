package funcmodel

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// Decode reads a request of a call that came without a typed one. Below the members that the
// gateway has looked at, a name may stand twice in it.
func Decode[R any](data []byte) (*R, error) {
	r := new(R)
	if err := json.Unmarshal(data, r, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, rule.Unacceptable(err)
	}
	return r, nil
}

// Named frames pieces as events, which are called what name says.
func Named[P any](name func(*P) string) func(dst []byte, piece *P) ([]byte, error) {
	return func(dst []byte, piece *P) ([]byte, error) {
		data, err := json.Marshal(piece)
		if err != nil {
			return nil, err
		}
		return sse.AppendEvent(dst, name(piece), data), nil
	}
}

// DecodeNamed reads such an event back. kind is where a piece has its type, which is the
// event's name where the data does not say it. The event called error, which ends a stream,
// is the error that it reports.
func DecodeNamed[P any](e sse.Event, kind func(*P) *string, wire string) (*P, error) {
	piece := new(P)
	if err := json.Unmarshal(e.Data, piece); err != nil {
		return nil, fault.Wrap(fault.BadGateway, "The upstream sent an event that is not of the "+wire+" form.", err)
	}
	k := kind(piece)
	if *k = cmp.Or(*k, e.Name); e.Name != "error" && *k != "error" {
		return piece, nil
	}
	return nil, ReportedError(e.Data)
}

// ReportedError is the error that the data of an event reports, which ends a stream.
func ReportedError(data []byte) error {
	var body struct {
		Error struct {
			Message string     `json:"message"`
			Code    fault.Code `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &body); err != nil || body.Error.Message == "" {
		return fault.Wrap(fault.BadGateway, "The upstream reported an error.", err)
	}
	return fault.New(cmp.Or(body.Error.Code, fault.BadGateway), body.Error.Message)
}
