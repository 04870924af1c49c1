package upstream

import (
	"context"
	"errors"
	"net/http"

	"github.com/tollhouse-ai/gateway/fault"
)

// Join is the driver of a vendor that speaks two wires at two addresses. A call goes to main
// if main supports it, otherwise to other. Both use the same keys, and each learns from its
// own calls which keys the vendor refuses. Everything else, such as the list of models, is
// asked of main.
func Join(main, other Driver) Driver { return &joined{main, other} }

// joined is what [Join] makes.
type joined struct{ main, other Driver }

// Unwrap is the driver that is asked for all but calls.
func (j *joined) Unwrap() Upstream { return j.main }

// Supports implements [Supporter].
func (j *joined) Supports(op Op, model string) bool {
	return j.main.Supports(op, model) || j.other.Supports(op, model)
}

// Do hands the call to the driver that supports it.
func (j *joined) Do(ctx context.Context, call *Call) (*Reply, error) {
	if !j.main.Supports(call.Op, call.Model) && j.other.Supports(call.Op, call.Model) {
		reply, err := j.other.Do(ctx, call)
		return reply, lacksRoute(err)
	}
	return j.main.Do(ctx, call)
}

// lacksRoute returns err, or a 501 if err is a 404 or 405 about the route and not about what
// the call names. The second address then does not have the operation. The next channel is
// asked then, and the main driver, whose circuit breaker is the same, counts as healthy.
func lacksRoute(err error) error {
	f, found := FailureOf(err)
	if !found || f.NoModel || f.Status != http.StatusMethodNotAllowed && (f.Status != http.StatusNotFound || fault.From(err).Body != nil) {
		return err
	}
	lacking := *f
	lacking.Status = http.StatusNotImplemented
	return lacking.Fault()
}

// Close closes both drivers.
func (j *joined) Close() error { return errors.Join(j.main.Close(), j.other.Close()) }
