package mcp

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
)

// call is one use of a tool.
type call struct {
	*Handler
	tool    *tool
	ctx     context.Context
	entry   *gateway.Entry
	caller  *caller
	request *sdk.CallToolRequest
	args    arguments
	started time.Time
}

// handle runs a tool. Whatever goes wrong with it is a result for the model; an
// error would be for the program that it runs in.
func (h *Handler) handle(t *tool) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		v := callerFrom(ctx)
		if v == nil {
			return nil, fault.New(fault.InternalError, "The tool was called outside of a request.")
		}
		v.toolStarted()
		ctx, leave := v.join(ctx)
		defer leave()
		entry, err := h.authenticate(ctx, v)
		var result *sdk.CallToolResult
		if err == nil {
			c := &call{Handler: h, tool: t, ctx: ctx, entry: entry, caller: v, request: r, started: time.Now()}
			result, err = c.run()
		}
		entry.End(http.StatusOK, err)
		if err != nil {
			return errorResult(entry.ID, err), nil
		}
		return result, nil
	}
}

// run runs the tool and makes an error of a panic, which would end the process otherwise.
func (c *call) run() (_ *sdk.CallToolResult, err error) {
	defer fault.Recover(&err)
	if c.args, err = parseArguments(c.tool.arguments(), c.request.Params.Arguments); err != nil {
		return nil, err
	}
	if !c.tool.paid() {
		return c.tool.run(c)
	}
	return c.runPaid()
}

// runPaid runs a tool that costs money through the gateway's pipeline.
func (c *call) runPaid() (*sdk.CallToolResult, error) {
	key, err := c.idempotencyKey()
	if err != nil {
		return nil, err
	}
	// An answer that is kept for a repetition is asked for whole, with a progress
	// token or without: else the two would be different requests.
	c.args.stream = c.progressToken() != nil && key == ""
	q, err := c.tool.request(c.args)
	if err != nil {
		return nil, err
	}
	done := func() {}
	if !c.args.stream { // which notifies of what has come instead
		done = c.notifyEvery("waiting for the model")
	}
	q.IdempotencyKey = key
	response, err := c.entry.Do(c.ctx, q)
	done()
	if err != nil {
		return nil, err
	}
	return c.tool.answer(c, response)
}

// labelMember is the member of _meta by which a program, not its model, says
// that a call is a repetition.
const labelMember = "tollhouse.ai/idempotency-key"

// idempotencyKey is the first that the call brings: the model's task_label, the
// program's member of _meta, the header of its HTTP request. Its scope is the
// account and the tool.
func (c *call) idempotencyKey() (string, error) {
	const maxLength = 200 // with the tool's name it is at most idempotency.MaxKey
	member, _ := c.request.Params.Meta[labelMember].(string)
	for _, key := range []struct{ name, value string }{
		{"task_label", c.args.text("task_label")}, {"_meta." + labelMember, member}, {"Idempotency-Key", c.caller.idempotencyKey},
	} {
		switch {
		case key.value == "":
		case len(key.value) > maxLength:
			return "", fault.Invalid(key.name, fmt.Sprintf("%s must be at most %d bytes long.", key.name, maxLength))
		default:
			return "mcp " + c.tool.name + " " + key.value, nil
		}
	}
	return "", nil
}

// principalContext is the call's context with its principal, for other methods of
// the gateway.
func (c *call) principalContext() context.Context {
	return auth.NewContext(c.ctx, c.entry.Principal())
}

// caller is what the calls of one HTTP request have in common.
type caller struct {
	ctx            context.Context // ends when the client disconnects, or takes its request back
	token          secret.String
	principal      *auth.Principal
	idempotencyKey string // the Idempotency-Key header
	toolStarted    func() // is called when a tool runs

	mu    sync.Mutex
	first *gateway.Entry // of the HTTP request; its first call takes it
}

type callerKey struct{}

func callerFrom(ctx context.Context) *caller {
	v, _ := ctx.Value(callerKey{}).(*caller)
	return v
}

// authenticate begins the next call. The request itself counted as the first one;
// each other, of a batch, is authenticated by the key as it is now.
func (h *Handler) authenticate(ctx context.Context, v *caller) (*gateway.Entry, error) {
	v.mu.Lock()
	first := v.first
	v.first = nil
	v.mu.Unlock()
	if first != nil {
		return first, nil
	}
	return h.g.Enter(ctx, gateway.Caller{Token: v.token.Reveal()})
}

// join gives the call a context that ends with the caller's too: the SDK hides the
// end of an HTTP request from what it answers.
func (v *caller) join(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(v.ctx, func() { cancel(context.Cause(v.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// The least time between two progress notifications, and the time between those
// that say only that the call still waits.
const (
	minNotifyInterval  = 250 * time.Millisecond
	waitNotifyInterval = 5 * time.Second
)

// progressToken names the progress notifications that the client wants; nil if there is none.
func (c *call) progressToken() any { return c.request.Params.GetProgressToken() }

// notify tells the client how far the call is. The numbers of one call must
// grow. A client that does not take it loses nothing.
func (c *call) notify(progress float64, message string) {
	if c.progressToken() == nil {
		return
	}
	_ = c.request.Session.NotifyProgress(c.ctx, &sdk.ProgressNotificationParams{
		ProgressToken: c.progressToken(), Progress: progress, Message: message,
	})
}

// notifyEvery says every few seconds how long the call has been at something, until
// done is called.
func (c *call) notifyEvery(what string) (done func()) {
	if c.progressToken() == nil {
		return func() {}
	}
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(waitNotifyInterval)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case <-c.ctx.Done():
				return
			case <-ticker.C:
				seconds := time.Since(c.started).Round(time.Second).Seconds()
				c.notify(seconds, fmt.Sprintf("%s for %.0f s", what, seconds))
			}
		}
	})
	return func() {
		close(end)
		running.Wait()
	}
}

// progressCounter notifies of how much has come, at most every minNotifyInterval.
type progressCounter struct {
	c    *call
	n    int
	last time.Time
}

// add counts n more.
func (p *progressCounter) add(n int) {
	p.n += n
	if now := time.Now(); n > 0 && now.Sub(p.last) >= minNotifyInterval {
		p.last = now
		p.c.notify(float64(p.n), fmt.Sprintf("%d characters", p.n))
	}
}

// decode reads an answer of the API. What cannot be read was charged all the same.
func decode[T any](data []byte, form string) (answer T, err error) {
	if err := json.Unmarshal(data, &answer, jsontext.AllowDuplicateNames(true)); err != nil {
		return answer, notOfForm(form, err)
	}
	return answer, nil
}

func notOfForm(form string, err error) error {
	return fault.Wrap(fault.BadGateway, "The model's answer is not of "+form+". It was charged.", err)
}

// chargeInfo is what each result of a paid tool says of its price.
type chargeInfo struct {
	RequestID string           `json:"request_id" jsonschema:"the id by which the charge is found"`
	Charge    string           `json:"charge,omitzero" jsonschema:"what the call cost, as a decimal number; absent until that is known"`
	Currency  string           `json:"currency,omitzero" jsonschema:"what the charge is in"`
	Usage     map[string]int64 `json:"usage,omitzero" jsonschema:"what is charged for, by unit: tokens (input, output, ...), images, seconds, characters, search units or requests"`
	Estimated bool             `json:"estimated,omitzero" jsonschema:"the vendor did not say what was used, so that it was counted here"`
	Replayed  bool             `json:"replayed,omitzero" jsonschema:"this is the answer to an earlier call with the same task_label, which was not charged again"`
	Dropped   []string         `json:"dropped,omitzero" jsonschema:"arguments that the model's vendor does not take and did not get"`
}

// receipt is what is known now of the call's price.
func (c *call) receipt(r *gateway.Response) chargeInfo {
	p := chargeInfo{RequestID: r.ID, Currency: c.currency(), Replayed: r.Replayed, Dropped: r.Dropped}
	receipt, ok := r.Receipt()
	if !ok {
		return p
	}
	if p.Replayed {
		p.RequestID = receipt.ID
	}
	p.Charge, p.Usage, p.Estimated = receipt.Charge.String(), units(receipt.Usage), receipt.Usage.Estimated
	return p
}

// units are the counts of what was used, by unit.
func units(u billing.Usage) map[string]int64 {
	counts := make(map[string]int64)
	for unit, n := range u.Units {
		counts[string(unit)] = n
	}
	return counts
}

// currency is what the gateway charges in; empty where it keeps no balances.
func (h *Handler) currency() string {
	if reports, ok := h.g.Meter().(billing.Reports); ok {
		return reports.Currency()
	}
	return ""
}

// receiptLine is the receipt for a reader.
func (p chargeInfo) receiptLine() string {
	s := "request_id: " + p.RequestID
	if p.Charge != "" {
		s += fmt.Sprintf(", charge: %s %s", p.Charge, p.Currency)
	}
	if p.Replayed {
		s += " (paid by the first call with this task_label)"
	}
	return s
}

// success is a result: what there is to see, then the receipt.
func success(structured any, content ...sdk.Content) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: content, StructuredContent: structured}
}

func textContent(format string, args ...any) sdk.Content {
	return &sdk.TextContent{Text: fmt.Sprintf(format, args...)}
}

// checkSize refuses a result that is larger than a client is likely to take. It was
// charged all the same.
func (c *call) checkSize(size int64, advice string) error {
	if size <= c.o.MaxResult {
		return nil
	}
	return fault.New(fault.RequestTooLarge, fmt.Sprintf("The result has more than %d bytes, which is more than a tool may give. %s", c.o.MaxResult, advice))
}
