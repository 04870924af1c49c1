package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// passing says what the channels of a model do with members of a request of an operation.
type passing struct{ routes router.Routes }

// Passes reports whether the channels pass a member on as it is, see [operation.Channels].
func (p *passing) Passes(name, spelled string) bool {
	return p.routes.Passes(name, spelled, true)
}

// findModel finds the model of a request that its key may use. Its order is fixed: unknown
// model, not allowed, wrong endpoint, no price. What is stored is read for such a model alone.
func (c *call) findModel() (*Model, error) {
	id := c.info.Model
	if id == "" {
		if err := c.request.Check(new(operation.Facts), nil, &c.passing); err != nil {
			return nil, err
		}
	}
	c.routes = c.catalog.router.Routes(c.spec.Op, id)
	served, find := c.routes.Supported(), c.catalog.priced
	if !served { // it may serve other operations
		find = c.catalog.model
	}
	m, ok := find(id)
	if !ok {
		c.noteUnpriced()
		return m, c.unknownModel()
	}
	if m.withdrawn(c.started) {
		return m, noModel(m.ID)
	}
	if !c.principal.MayUse(m.ID) {
		return m, notAllowed(m.ID).With(func(e *fault.Error) {
			e.Code, e.Status = cmp.Or(c.spec.Forbidden, e.Code), e.HTTPStatus()
		})
	}
	if m.Kind != "" && !slices.Contains(c.spec.Kinds, string(m.Kind)) || !served && !c.catalog.supports(c.spec, m.ID) {
		return m, c.errWrongEndpoint(m)
	}
	if !c.catalog.hasPrice(c.spec.Op, m.ID) {
		c.noteUnpriced()
		return m, c.unknownModel()
	}
	return m, nil
}

// unknownModel is the refusal of a model that does not exist, in the words of the endpoint.
func (c *call) unknownModel() error {
	if c.spec.Unknown != nil {
		return c.spec.Unknown(c.info.Model)
	}
	return noModel(c.info.Model)
}

// check checks the request: what it refers to, the rules of its endpoint, fields without a
// price. Then it is known what the request may cost.
func (c *call) check(ctx context.Context, m *Model) (err error) {
	c.price = c.catalog.prices.Price(m.ID)
	c.passing = passing{c.routes}
	if r, ok := c.request.(*responsesop.Request); ok {
		if err := c.expand(ctx, r, m); err != nil {
			return err
		}
	}
	if err := c.request.Check(&m.facts, c.price, &c.passing); err != nil {
		return err
	}
	passed, err := c.checkUnpriced()
	if err != nil {
		return err
	}
	c.quote = c.request.Quote(&m.facts, c.price, passed)
	if c.turn != nil {
		c.turn.Quoted(c.quote.Least.Input + c.quote.Least.CacheWrite)
	}
	return nil
}

// checkUnpriced refuses, where billing is prepaid, what costs money without a
// price or chooses another model or account, unless the model's channels take it. A field
// that the gateway does not know is left out, unless the channels take or rename it. passed
// says that some such field may reach the vendor.
func (c *call) checkUnpriced() (passed bool, err error) {
	if c.catalog.requirePrice {
		if err := c.checkRenamed(); err != nil {
			return false, err
		}
	}
	if c.request.Unpriced(c.header, nil) == nil { // as nearly all are
		return false, nil
	}
	if !c.catalog.requirePrice {
		return true, nil
	}
	return c.checkPassed()
}

// checkPassed is checkUnpriced of a request that has such a field.
func (c *call) checkPassed() (passed bool, err error) {
	err = c.request.Unpriced(c.header, func(name, spelled string) bool {
		passes := c.routes.Passes(name, spelled, !slices.Contains(c.spec.Translated, name)) ||
			!rule.Unpriced(name) && c.routes.Renames(spelled)
		passed = passed || passes
		return passes
	})
	return passed, err
}

// checkRenamed is checkUnpriced of the fields that some channel renames to one
// that has no price, by their new names.
func (c *call) checkRenamed() error {
	return c.routes.EachRename(func(from, to string) error {
		if !rule.Unpriced(to) { // as nearly all are not
			return nil
		}
		var raw []byte
		if c.info.Form != nil {
			sent := func(p upstream.Part) bool { return p.Name == from && p.Size > 0 }
			if !slices.ContainsFunc(c.info.Form.Parts, sent) {
				return nil
			}
		} else {
			o, err := rawjson.Index(c.info.Source, nil, nil)
			if err != nil {
				return rule.Unacceptable(err)
			}
			if raw = o.Raw(from); raw == nil {
				return nil
			}
		}
		return rule.CheckRenamed(from, to, raw, c.spec.Scope)
	})
}

// errWrongEndpoint is the refusal of a model that serves another endpoint, which it names
// where the kind of the model says it.
func (c *call) errWrongEndpoint(m *Model) error {
	e := fault.Invalid("model", fmt.Sprintf("The model %q does not serve %s.", m.ID, c.spec.Path))
	for _, served := range all.Specs() {
		if served != c.spec && slices.Contains(served.Kinds, string(m.Kind)) && c.catalog.router.Supports(served.Op, m.ID) {
			e.Message = fmt.Sprintf("The model %q is of kind %s: call %s, not %s.", m.ID, m.Kind, served.Path, c.spec.Path)
			break
		}
	}
	e.Code = cmp.Or(c.spec.Mismatch, e.Code)
	return e
}
