package gateway

import (
	"context"
	"fmt"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

// Models are the models that the caller may use, sorted by id: those of the
// principal in ctx, or all without an Authenticator.
func (g *Gateway) Models(ctx context.Context) ([]Model, error) {
	p, err := g.principal(ctx)
	if err != nil {
		return nil, err
	}
	return g.routes.Load().list(p, g.options.Now()), nil
}

// Model is one model that the caller may use. It fails with
// fault.ModelNotFound, or fault.PermissionDenied if the key is not for it.
func (g *Gateway) Model(ctx context.Context, id string) (Model, error) {
	p, err := g.principal(ctx)
	if err != nil {
		return Model{}, err
	}
	m, ok := g.routes.Load().model(id)
	if !ok || m.withdrawn(g.options.Now()) {
		return Model{}, noModel(id)
	}
	if !p.MayUse(id) {
		return Model{}, notAllowed(id)
	}
	return *m, nil
}

// noModel is the 404 of a model that does not exist, or not any more.
func noModel(id string) error {
	return &fault.Error{
		Code: fault.ModelNotFound, Param: "model",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists the models that this key may use.", clip(id)),
	}
}

func notAllowed(model string) error {
	return &fault.Error{
		Code: fault.PermissionDenied, Param: "model",
		Message: fmt.Sprintf("This API key may not use the model %q. GET /v1/models lists the models that it may use.", model),
	}
}

// principal is who an in-process call belongs to (decisions.md, Models,
// OpenAPI, agent tools, in process).
func (g *Gateway) principal(ctx context.Context) (*auth.Principal, error) {
	if p, ok := auth.FromContext(ctx); ok {
		return p, nil
	}
	if g.options.Authenticator == nil {
		return &local, nil
	}
	return nil, fault.New(fault.Unauthorized, "No principal in the context. Put one there with auth.NewContext, or send the key as \"Authorization: Bearer sk-…\".")
}

// local is who calls where nobody asks.
var local = auth.Principal{Account: "local", Key: "local", Name: "local"}
