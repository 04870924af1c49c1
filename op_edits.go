package gateway

import (
	"net/http"

	"context"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// CallForm is [Exchange.Call] for an operation whose request is a form. It closes
// the form: at once where it fails, else when the call has ended, a stream's
// with its Close.
func (x *Exchange) CallForm(ctx context.Context, op upstream.Op, form *upstream.Form, silence func([]byte)) (_ *Result, err error) {
	running := false
	defer func() {
		if !running {
			x.g.drop(x, form)
		}
	}()
	defer guard(&err)
	if op != upstream.EditImage {
		return nil, fault.New(fault.NotFound, "There is no such operation on a form.")
	}
	parsed, err := images.ParseForm(form)
	if err != nil {
		return nil, err
	}
	result, err := x.run(ctx, &editOperation{Edit: parsed}, silence)
	running = err == nil && result.Stream != nil
	return result, err
}

// drop closes a form that is not needed any more.
func (g *Gateway) drop(x *Exchange, form *upstream.Form) {
	if err := form.Close(); err != nil {
		g.options.Logger.Error("a form could not be closed", "request_id", x.ID, "error", err)
	}
}

// EditImage changes pictures, with the same checks, limits, holds and fail-over
// as over HTTP; Stream in req is ignored. The files of req are opened once per
// attempt and more, and must stay until it returns. The caller is the principal
// in ctx, as for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) EditImage(ctx context.Context, req *images.Edit) (*images.Response, error) {
	return answered(ctx, g, "image", func() (operation, error) {
		typed := *req
		typed.Stream, typed.PartialImages = false, 0
		parsed, err := images.EncodeForm(&typed)
		return &editOperation{Edit: parsed}, err
	}, pictures)
}

// editOperation adapts image edits to the pipeline.
type editOperation struct {
	*images.Edit
	id     string // the request's
	tokens bool   // the price is for tokens
}

func (e *editOperation) op() upstream.Op                 { return upstream.EditImage }
func (e *editOperation) model() string                   { return e.Model }
func (e *editOperation) streams() bool                   { return e.Stream }
func (e *editOperation) source() []byte                  { return nil }
func (e *editOperation) form() *upstream.Form            { return e.Form() }
func (e *editOperation) unknownModel() error             { return noModel(e.Model) }
func (e *editOperation) validate(*Model) error           { return e.Validate() }
func (e *editOperation) outputLimit(*Model, int64) int64 { return 0 } // pictures are not made longer
func (e *editOperation) identify(id string)              { e.id = id }

func (e *editOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return e.Unpriced(pass)
}

// bound is exact for pictures, and for tokens what the vendor's tables or the
// operator say that a picture takes at most.
func (e *editOperation) bound(m *Model) (most, least billing.Usage) {
	most = billing.Usage{
		Input: e.InputBound(), ImageInput: e.ImageInputBound(), ImageOutput: e.OutputBound(m.MaxOutput), Images: e.Count(),
	}
	return most, most
}

func (e *editOperation) request(_ *Model, h billing.Hold) (upstream.Body, any, int64) {
	e.tokens = paysTokens(h)
	return e.Prepared(), e.Edit, 0
}

// implausible counts are more pictures than were asked for, or tokens far above what
// these can be.
func (e *editOperation) implausible(m *Model, u billing.Usage) bool {
	most, _ := e.bound(m)
	return implausiblePictures(e.Known(), most, u)
}

func (e *editOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := e.ReadAnswer(data, e.id, e.tokens)
	return a.Body, a.Usage, err
}

func (e *editOperation) opening(name string, data []byte) (bool, error) {
	return true, images.Opening(name, data)
}

// input is the prompt and the images, where tokens are paid for; bound counts the
// pictures.
func (e *editOperation) input() billing.Usage {
	prompt, shown := e.Estimate()
	return billing.Usage{Input: prompt, ImageInput: shown, Estimated: true}
}

func (e *editOperation) tap() tap { return imagesTap{e.NewTap(e.id, e.tokens)} }
