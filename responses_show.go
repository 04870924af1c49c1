package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/upstream"
)

// StoredResponse is a response of the caller's account: the JSON that a server answers, and
// that a responses.Response reads. What the gateway keeps is as its client got it; what a
// vendor keeps is asked of the channel and the key that made it, and costs nothing. One that
// was not stored, was deleted or has expired is a fault.NotFound, as is another account's.
// The caller is the principal in ctx, as for [Gateway.Chat]; it is one request of its key,
// which has a slot of the key's and of the gateway's meanwhile, and memory for what is read.
func (g *Gateway) StoredResponse(ctx context.Context, id string) ([]byte, error) {
	c, err := g.openStored(ctx)
	if err != nil {
		return nil, err
	}
	defer c.release()
	return c.storedResponse(ctx, id)
}

// StoredResponse is [Gateway.StoredResponse] for the request's caller, as a part of that
// request: slots and memory are given back by End, when the answer is written.
func (e *Entry) StoredResponse(id string) ([]byte, error) { return e.storedResponse(e.Context(), id) }

func (e *Entry) storedResponse(ctx context.Context, id string) ([]byte, error) {
	row, err := e.ownResponse(ctx, id)
	if err != nil {
		return nil, err
	}
	if atVendor(row) {
		return e.askKeeper(ctx, upstream.ShowResponse, row, nil)
	}
	opened := e.g.stored.Open(row)
	if opened == nil {
		return nil, errNoResponse(id)
	}
	return opened.Response, nil
}

// DeleteResponse deletes a response of the caller's account, which no request can go on
// from any more, where a vendor keeps it there too. It fails as [Gateway.StoredResponse]
// does, and then the response is there as before.
func (g *Gateway) DeleteResponse(ctx context.Context, id string) error {
	c, err := g.openStored(ctx)
	if err != nil {
		return err
	}
	defer c.release()
	return c.deleteResponse(ctx, id)
}

// DeleteResponse is [Gateway.DeleteResponse] for the request's caller, as
// [Entry.StoredResponse] is.
func (e *Entry) DeleteResponse(id string) error { return e.deleteResponse(e.Context(), id) }

func (e *Entry) deleteResponse(ctx context.Context, id string) error {
	row, err := e.ownResponse(ctx, id)
	if err != nil {
		return err
	}
	if atVendor(row) {
		if _, err := e.askKeeper(ctx, upstream.DeleteResponse, row, nil); err != nil && !fault.Is(err, fault.NotFound) { // it has expired there
			return err
		}
	} else if e.g.stored.Open(row) == nil {
		return errNoResponse(id)
	}
	deleted, err := e.g.stored.Delete(ctx, row.Account, id)
	if err == nil && !deleted { // another request was faster
		return errNoResponse(id)
	}
	return err
}

// InputItemsOptions choose a page of the items of a response's input.
type InputItemsOptions struct {
	Limit     int    // how many there are at most; zero means 20
	Ascending bool   // the oldest first, else the newest
	After     string // the id of the item before the page; empty for the beginning
	// Include names what an item has only on demand, as OpenAI's API does:
	// "reasoning.encrypted_content", "message.input_image.image_url" and so on.
	Include []string
}

// ResponseInputItems is a page of the items that made a stored response: those of its own
// request, and before them the input and the output of the responses that it goes on from,
// up to one that is deleted or has expired. It is the JSON that a server answers. It fails as
// [Gateway.StoredResponse] does, and with a 400 if After is the id of no item or Include has
// another word than OpenAI's.
func (g *Gateway) ResponseInputItems(ctx context.Context, id string, o InputItemsOptions) ([]byte, error) {
	c, err := g.openStored(ctx)
	if err != nil {
		return nil, err
	}
	defer c.release()
	return c.inputItems(ctx, id, o)
}

// ResponseInputItems is [Gateway.ResponseInputItems] for the request's caller, as
// [Entry.StoredResponse] is.
func (e *Entry) ResponseInputItems(id string, o InputItemsOptions) ([]byte, error) {
	return e.inputItems(e.Context(), id, o)
}

func (e *Entry) inputItems(ctx context.Context, id string, o InputItemsOptions) ([]byte, error) {
	if o.Limit <= 0 {
		o.Limit = 20
	}
	for _, word := range o.Include {
		if !slices.Contains(responsesop.Includable(), word) {
			return nil, fault.Invalid("include", fmt.Sprintf(`"include" must be one or several of %s.`, strings.Join(responsesop.Includable(), ", ")))
		}
	}
	row, err := e.ownResponse(ctx, id)
	if err != nil {
		return nil, err
	}
	if atVendor(row) {
		return e.askKeeper(ctx, upstream.ListInput, row, o.query())
	}
	items, found, err := e.g.stored.Input(ctx, row, stored.Page{Limit: o.Limit, Ascending: o.Ascending, After: o.After}, e)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errNoResponse(id)
	}
	page, ok := responsesop.InputPage(items, o.Limit, o.After, o.Include)
	if !ok {
		return nil, fault.Invalid("after", fmt.Sprintf("The input has no item with the id %q.", clip(o.After)))
	}
	return page, nil
}

// query is the page as a vendor is asked for it.
func (o *InputItemsOptions) query() url.Values {
	q := url.Values{"limit": {strconv.Itoa(o.Limit)}, "order": {"desc"}}
	if o.Ascending {
		q.Set("order", "asc")
	}
	if o.After != "" {
		q.Set("after", o.After)
	}
	if len(o.Include) > 0 {
		q["include[]"] = o.Include
	}
	return q
}

// atVendor reports whether a response that was found is kept by a vendor.
func atVendor(row *state.Response) bool { return len(row.Body) == 0 && row.Channel != "" }

// openStored begins the call of an operation on what is stored, in process.
func (g *Gateway) openStored(ctx context.Context) (c *Entry, err error) {
	c = g.newEntry()
	return c, c.begin(ctx, &Caller{inProcess: true})
}

// ownResponse is a response that the caller's account has stored, here or at a vendor. What
// is stored may be much, and costs nothing: before it is read the request has a slot among
// the calls and one of its key's, and its bytes are memory of the request's.
func (e *Entry) ownResponse(ctx context.Context, id string) (row *state.Response, err error) {
	if e.principal == nil {
		return nil, errUnknownCaller
	}
	if e.g.stored.Mode() == stored.Off {
		return nil, fault.New(fault.NotFound, "This gateway does not show or delete stored responses.")
	}
	if err := e.AcquireSlot(ctx, 0); err != nil {
		return nil, err
	}
	if e.lease == nil {
		if err := e.acquireLease(ctx, 0); err != nil {
			return nil, err
		}
	}
	if row, err = e.g.stored.Find(ctx, e.principal.Account, id); err != nil {
		return nil, err
	}
	if row == nil || row.ID != id {
		return nil, errNoResponse(id)
	}
	return row, e.Reserve(int64(len(row.Body)))
}

func errNoResponse(id string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no stored response %q: it was made with \"store\": false, has been deleted or has expired.", clip(id)))
}

// keeperTimeout is how long the vendor may take that keeps a response.
const keeperTimeout = 30 * time.Second

// askKeeper asks the vendor that keeps a response, by the channel and the key that made it.
// The vendor's answer is checked: it is about this response, and no larger than any answer.
// Its memory is the request's. What the vendor says of a mistake is the caller's to read, in
// the gateway's own form.
func (e *Entry) askKeeper(ctx context.Context, op upstream.Op, row *state.Response, query url.Values) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	sent := upstream.Call{
		Op: op, Model: row.Model, Channel: row.Channel, Key: row.Key, TaskID: row.ID, Query: query.Encode(), RequestID: e.ID, Account: row.Account,
	}
	read := func(ctx context.Context, r *upstream.Reply) ([]byte, error) { return e.readKept(ctx, op, row, r) }
	var unobserved observers // it is no attempt to answer a request
	body, _, err = ask(&via.Context{Context: ctx, Trail: e.trail}, &unobserved, e.catalog.router.Routes(op, row.Model), &sent, read)
	if err == nil {
		return body, nil
	}
	f := fault.From(err)
	if f.HTTPStatus() == http.StatusNotFound {
		return nil, errNoResponse(row.ID)
	}
	return nil, f.With(func(f *fault.Error) { f.Body = nil })
}

// readKept reads a vendor's answer about a response that it keeps.
func (e *Entry) readKept(ctx context.Context, op upstream.Op, row *state.Response, r *upstream.Reply) ([]byte, error) {
	most := min(e.g.options.MaxAnswer, stored.MostBytes)
	body, err := readBody(ctx, e, r, most, func(data []byte) (answer, body *[]byte, err error) {
		switch op {
		case upstream.ShowResponse:
			data, err = responsesop.ReadShown(data, row.ID, row.Model)
		case upstream.ListInput:
			data, err = responsesop.ReadInputList(data)
		}
		return &data, &data, err
	})
	if err != nil {
		return nil, err
	}
	return *body, nil
}
