package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// findModel finds the model of a request that its key may use. Its order is fixed: unknown
// model, not allowed, wrong endpoint, no price. What is stored is read for such a model alone.
func (c *call) findModel(op *operation) (*Model, error) {
	if op.model == "" {
		if err := op.validate(op, new(Model), nil); err != nil {
			return nil, err
		}
	}
	m, ok := c.catalog.model(op.model)
	if !ok {
		c.noteUnpriced(op)
		return m, op.unknownModel(op.model)
	}
	if m.withdrawn(c.started) {
		return m, noModel(m.ID)
	}
	if !c.principal.MayUse(m.ID) {
		return m, notAllowed(m.ID).With(func(e *fault.Error) {
			e.Code, e.Status = cmp.Or(op.forbiddenModel, e.Code), e.HTTPStatus()
		})
	}
	if m.Kind != "" && !slices.Contains(kinds[m.Kind], op.name) || !c.catalog.supports(op, m.ID) {
		return m, c.errWrongEndpoint(op, m)
	}
	if !c.catalog.hasPrice(op.name, m.ID) {
		c.noteUnpriced(op)
		return m, op.unknownModel(op.model)
	}
	return m, nil
}

// check validates the request: what it refers to, the rules of the capability, files in the
// vendor's account, fields without a price.
func (c *call) check(ctx context.Context, op *operation, m *Model) (err error) {
	if op.expand != nil {
		if err := op.expand(ctx, op, m); err != nil {
			return err
		}
	}
	price := c.catalog.prices.Price(m.ID)
	if err := op.validate(op, m, price); err != nil {
		return err
	}
	if conversation := op.sessionBody; conversation != nil {
		passes := func(name string) bool { return c.catalog.router.Passes(op.name, m.ID, name, name, true) }
		if err = conversation.CheckFiles(passes); err != nil {
			return err
		}
	}
	if op.passed, err = c.checkUnpriced(op, m); err != nil {
		return err
	}
	op.bounds = op.bound(op, m, price)
	return nil
}

// checkUnpriced refuses, where billing is prepaid, what costs money without a
// price or chooses another model or account, unless the model's channels take it. A field
// that the gateway does not know is left out, unless the channels take or rename it. passed
// says that some such field may reach the vendor.
func (c *call) checkUnpriced(op *operation, m *Model) (passed bool, err error) {
	if c.catalog.requirePrice {
		if err := c.checkRenamed(op, m); err != nil {
			return false, err
		}
	}
	if op.unpriced(op, c.header, nil) == nil { // as nearly all are
		return false, nil
	}
	if !c.catalog.requirePrice {
		return true, nil
	}
	return c.checkPassed(op, m)
}

// checkPassed is checkUnpriced of a request that has such a field.
func (c *call) checkPassed(op *operation, m *Model) (passed bool, err error) {
	err = op.unpriced(op, c.header, func(name, spelled string) bool {
		passes := c.catalog.router.Passes(op.name, m.ID, name, spelled, !slices.Contains(op.translated, name)) ||
			!rule.Unpriced(name) && c.catalog.router.Renames(op.name, m.ID, spelled)
		passed = passed || passes
		return passes
	})
	return passed, err
}

// checkRenamed is checkUnpriced of the fields that some channel renames to one
// that has no price, by their new names.
func (c *call) checkRenamed(op *operation, m *Model) error {
	return c.catalog.router.EachRename(op.name, m.ID, func(from, to string) error {
		if !rule.Unpriced(to) { // as nearly all are not
			return nil
		}
		var raw []byte
		if op.form != nil {
			sent := func(p upstream.Part) bool { return p.Name == from && p.Size > 0 }
			if !slices.ContainsFunc(op.form.Parts, sent) {
				return nil
			}
		} else {
			o, err := rawjson.Index(op.clientBytes, nil, nil)
			if err != nil {
				return rule.Unacceptable(err)
			}
			if raw = o.Raw(from); raw == nil {
				return nil
			}
		}
		return rule.CheckRenamed(from, to, raw, op.scope)
	})
}

// errWrongEndpoint is the refusal of a model that serves another endpoint, which it names
// where the kind of the model says it.
func (c *call) errWrongEndpoint(op *operation, m *Model) error {
	e := fault.Invalid("model", fmt.Sprintf("The model %q does not serve %s.", m.ID, publicPaths[op.name]))
	for _, served := range kinds[m.Kind] {
		if served != op.name && c.catalog.router.Supports(served, m.ID) {
			e.Message = fmt.Sprintf("The model %q is of kind %s: call %s, not %s.", m.ID, m.Kind, publicPaths[served], publicPaths[op.name])
			break
		}
	}
	e.Code = cmp.Or(op.mismatch, e.Code)
	return e
}
