package conversation

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
)

// Kinds are the kinds of models that continue conversations, whichever API a client speaks.
func Kinds() []string { return []string{"chat", "messages"} }

// Info is what the pipeline reads of a conversation with a model.
func (p *Parsed) Info(model string) operation.Info {
	return operation.Info{Model: model, Source: p.Source(), Session: &p.Object}
}

// CheckFiles refuses a file that only an id names, unless the channels pass it on. The id may
// be another customer's: all share the gateway's account at the vendor.
func (p *Parsed) CheckFiles(c operation.Channels) error {
	if p.file == "" || c.Passes("file_id", "file_id") {
		return nil
	}
	return fault.Invalid(p.file, fmt.Sprintf("%q names a file in the vendor's account of this gateway, which its customers share. Send the content itself.", p.file))
}

// Tokens are what a conversation may cost, which streams or not, without what its caller
// bounds. passed is as in [operation.Request].
func (p *Parsed) Tokens(m *operation.Facts, price *billing.Price, stream, passed bool) operation.Tokens {
	media := chat.MediaBound(m.Media)
	t := operation.Tokens{
		Input: p.InputBound(media), ExtraMedia: p.LinkedBound(media), Candidates: 1,
		Uncounted:  !stream || m.HidesReasoning || p.HidesReasoning(),
		CacheWrite: cacheWriteIsDearest(price), Requests: requests(price),
	}
	if !passed {
		t.InputLimit = p.InputLimit(media)
	}
	return t
}

// requests is 1 if the price has a part for the request itself.
func requests(p *billing.Price) int64 {
	if p.Covers(billing.Request) {
		return 1
	}
	return 0
}

// cacheWriteIsDearest reports whether a token that a vendor writes to its cache costs more than
// any other token of the input.
func cacheWriteIsDearest(p *billing.Price) bool {
	const tokens = 1_000_000
	plain, err := p.Cost(billing.Usage{Input: tokens})
	written, err2 := p.Cost(billing.Usage{CacheWrite: tokens})
	return err == nil && err2 == nil && written > plain
}

// Ordered is what a vendor counts at least that got the request and failed.
func (p *Parsed) Ordered(m *operation.Facts, price *billing.Price) billing.Usage {
	if p.CountOnly {
		return billing.Usage{}
	}
	return billing.Usage{Input: p.InputEstimate(chat.MediaBound(m.Media)), Requests: requests(price), Estimated: true}
}
