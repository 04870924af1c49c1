package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// speechOperation adapts speech to the pipeline.
type speechOperation struct {
	unstreamed
	*speech.Request
}

func parseSpeech(_ *Gateway, data []byte) (operation, error) {
	r, err := speech.Parse(data)
	return speechOperation{Request: r}, err
}

func (s speechOperation) op() upstream.Op         { return upstream.Speech }
func (s speechOperation) model() string           { return s.Model }
func (s speechOperation) source() []byte          { return s.Source() }
func (s speechOperation) unknownModel() error     { return speech.UnknownModel(s.Model) }
func (s speechOperation) validate(m *Model) error { return s.Validate(m.Voices) }
func (s speechOperation) usage() billing.Usage    { return billing.Usage{Characters: s.Characters()} }

func (s speechOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return s.Unpriced(pass)
}

// input is nothing: speech is sold by the character, which bound counts.
func (s speechOperation) input() billing.Usage { return billing.Usage{} }

// bound is exact: the characters are known.
func (s speechOperation) bound(*Model) (most, least billing.Usage) { return s.usage(), s.usage() }

func (s speechOperation) implausible(_ *Model, u billing.Usage) bool {
	return u.Characters > s.Characters()
}

// parts are the calls that the request is made of.
func (s speechOperation) parts(m *Model) []speech.Part { return s.Prepared(m.Voices).Split(m.Batch) }

// request and answer are not for audio, which call.speak asks for.
func (s speechOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return s.Body(), s.Request, 0
}

func (s speechOperation) answer([]byte) ([]byte, billing.Usage, error) {
	return nil, billing.Usage{}, fault.New(fault.InternalError, "The gateway took audio for a document.")
}
