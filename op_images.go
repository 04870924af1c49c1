package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// imagesOperation adapts image generation to the pipeline.
type imagesOperation struct {
	*images.Request
	id     string // the request's
	tokens bool   // the price is for tokens
}

func parseImages(_ *Gateway, data []byte) (operation, error) {
	r, err := images.Parse(data)
	return &imagesOperation{Request: r}, err
}

func (i *imagesOperation) op() upstream.Op                 { return upstream.GenerateImage }
func (i *imagesOperation) model() string                   { return i.Model }
func (i *imagesOperation) streams() bool                   { return i.Stream }
func (i *imagesOperation) source() []byte                  { return i.Source() }
func (i *imagesOperation) unknownModel() error             { return images.UnknownModel(i.Model) }
func (i *imagesOperation) validate(*Model) error           { return i.Validate() }
func (i *imagesOperation) outputLimit(*Model, int64) int64 { return 0 } // pictures are not made longer
func (i *imagesOperation) identify(id string)              { i.id = id }

func (i *imagesOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return i.Unpriced(pass)
}

// bound is exact for pictures, and for tokens what the vendor's tables or the
// operator say that a picture takes at most.
func (i *imagesOperation) bound(m *Model) (most, least billing.Usage) {
	most = billing.Usage{Input: i.InputBound(), ImageOutput: i.OutputBound(m.MaxOutput), Images: i.Count()}
	return most, most
}

// request notes whether tokens are paid for: only then a missing report of them
// is worth an estimate.
func (i *imagesOperation) request(_ *Model, h billing.Hold) (upstream.Body, any, int64) {
	i.tokens = paysTokens(h)
	return i.Prepared(), i.Request, 0
}

// paysTokens reports whether a price is for more than pictures.
func paysTokens(h billing.Hold) bool {
	for _, rate := range h.Price.Rates() {
		if rate.Unit != billing.Image {
			return true
		}
	}
	return false
}

func (i *imagesOperation) implausible(m *Model, u billing.Usage) bool {
	most, _ := i.bound(m)
	return implausiblePictures(i.Known(), most, u)
}

// implausiblePictures reports more pictures than were asked for, or tokens far above
// what these can be. Of a model that no table describes little is known.
func implausiblePictures(known bool, most, u billing.Usage) bool {
	const several = 100
	pictures, input, output := most.Images, 2*(most.Input+most.ImageInput)+countSlack, 2*most.ImageOutput+countSlack
	if !known {
		pictures, input, output = max(pictures, several), maxContext, maxContext
	}
	return u.Images > pictures || u.Input+u.CachedInput+u.ImageInput > input || u.Output+u.ImageOutput > output
}

func (i *imagesOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := i.ReadAnswer(data, i.id, i.tokens)
	return a.Body, a.Usage, err
}

func (i *imagesOperation) opening(name string, data []byte) (bool, error) {
	return true, images.Opening(name, data)
}

// input is the prompt, where tokens are paid for; bound counts the pictures.
func (i *imagesOperation) input() billing.Usage {
	return billing.Usage{Input: i.Estimate(), Estimated: true}
}

func (i *imagesOperation) tap() tap { return imagesTap{i.NewTap(i.id, i.tokens)} }

// imagesTap adapts the tap of partial pictures. Its stream has no end but its
// last picture, and nothing that could be said in a silence.
type imagesTap struct{ *images.Tap }

func (t imagesTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

func (t imagesTap) usage() billing.Usage        { return t.Usage() }
func (t imagesTap) output() int64               { return t.Output() }
func (t imagesTap) heartbeat(dst []byte) []byte { return dst }
func (t imagesTap) cutShort(dst []byte) []byte  { return dst }
func (t imagesTap) terminator() string          { return "" }
