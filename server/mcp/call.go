package mcp

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

// call is one use of a tool.
type call struct {
	*box
	tool    *tool
	ctx     context.Context
	x       *gateway.Exchange
	visit   *visit
	request *sdk.CallToolRequest
	args    arguments
	began   time.Time
}

// handle runs a tool. Whatever goes wrong with it is a result for the model; an
// error would be for the program that it runs in.
func (b *box) handle(t *tool) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		v := visitOf(ctx)
		if v == nil {
			return nil, fault.New(fault.InternalError, "The tool was called outside of a request.")
		}
		if v.busy != nil {
			v.busy()
		}
		ctx, leave := v.join(ctx)
		defer leave()
		x, err := v.exchange(ctx)
		var result *sdk.CallToolResult
		if err == nil {
			c := &call{box: b, tool: t, ctx: ctx, x: x, visit: v, request: r, began: time.Now()}
			result, err = c.guarded()
		}
		x.End(ctx, http.StatusOK, err)
		if err != nil {
			return failure(x.ID, err), nil
		}
		return result, nil
	}
}

// guarded makes an error of a panic, which would end the process otherwise.
func (c *call) guarded() (_ *sdk.CallToolResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.InternalError, "The gateway failed to handle the request.", fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if c.args, err = read(c.tool.arguments(), c.request.Params.Arguments); err != nil {
		return nil, err
	}
	if !c.tool.paid() {
		return c.tool.run(c)
	}
	return c.buy()
}

// buy runs a tool that costs money through the gateway's pipeline.
func (c *call) buy() (*sdk.CallToolResult, error) {
	var err error
	if c.x.IdempotencyKey, err = c.idempotencyKey(); err != nil {
		return nil, err
	}
	// An answer that is kept for a repetition is asked for whole, with a progress
	// token or without: else the two would be different requests.
	c.args.stream = c.token() != nil && c.x.IdempotencyKey == ""
	q, err := c.tool.ask(c.args)
	if err != nil {
		return nil, err
	}
	done := c.ticking()
	var r *gateway.Result
	if q.form != nil {
		r, err = c.x.CallForm(c.ctx, q.op, q.form, nil)
	} else {
		r, err = c.x.Call(c.ctx, q.op, q.body, nil)
	}
	done()
	if err != nil {
		return nil, err
	}
	return c.tool.answer(c, r)
}

// labelMember is the member of _meta by which a program, not its model, says
// that a call is a repetition.
const labelMember = "tollhouse.ai/idempotency-key"

// idempotencyKey is the first that the call brings: the model's task_label, the
// program's member of _meta, the header of its HTTP request. Its scope is the
// account and the tool.
func (c *call) idempotencyKey() (string, error) {
	const most = 200 // with the tool's name it is at most idempotency.MaxKey
	member, _ := c.request.Params.Meta[labelMember].(string)
	for _, key := range []struct{ name, value string }{
		{"task_label", c.args.text("task_label")}, {"_meta." + labelMember, member}, {"Idempotency-Key", c.visit.key},
	} {
		switch {
		case key.value == "":
		case len(key.value) > most:
			return "", fault.Invalid(key.name, fmt.Sprintf("%s must be at most %d bytes long.", key.name, most))
		default:
			return "mcp " + c.tool.name + " " + key.value, nil
		}
	}
	return "", nil
}

// own is the call's context with the principal that it belongs to, for methods of
// the gateway that are no exchange.
func (c *call) own() context.Context { return auth.NewContext(c.ctx, c.x.Principal()) }
