// Package openai is the driver for every vendor that speaks OpenAI's wire.
package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [upstream.DriverOptions.BaseURL] is empty.
const DefaultBaseURL = "https://api.openai.com/v1"

// driver is the driver of one vendor. It is safe for concurrent use.
type driver struct {
	*httpdo.Client
	doneOptional    bool
	noStreamOptions bool
}

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the driver when done.
func New(o upstream.DriverOptions) (upstream.Driver, error) {
	paths, err := paths(&o)
	if err != nil {
		return nil, err
	}
	client, err := httpdo.New(o, httpdo.Vendor{BaseURL: DefaultBaseURL, Refused: refused, Paths: paths})
	if err != nil {
		return nil, err
	}
	return &driver{client, o.DoneOptional, o.NoStreamOptions}, nil
}

// paths are the paths of the operations that the vendor has, below its base.
// [upstream.DriverOptions.Wire] decides which of those that generate text.
func paths(o *upstream.DriverOptions) (map[upstream.Op]string, error) {
	all := map[upstream.Op]string{
		upstream.GenerateImage: "/images/generations",
		upstream.EditImage:     "/images/edits",
		upstream.Embeddings:    "/embeddings",
		upstream.Speech:        "/audio/speech",
		upstream.Moderations:   "/moderations",
		upstream.Rerank:        "/rerank", // Jina's form, as vLLM, llama.cpp, Infinity, Xinference and Together speak it
	}
	wire := o.Wire
	if wire == nil {
		wire = defaultWire(o.BaseURL)
	}
	for _, op := range wire {
		switch op {
		case upstream.ChatCompletion:
			all[op] = "/chat/completions"
		case upstream.Responses:
			all[op], all[upstream.CountInput] = "/responses", "/responses/input_tokens"
			all[upstream.ShowResponse], all[upstream.DeleteResponse], all[upstream.ListInput] = "/responses", "/responses", "/responses"
		default:
			return nil, fmt.Errorf("the wire %q is unknown: a vendor of OpenAI's wire speaks %s, %s or both", op, upstream.ChatCompletion, upstream.Responses)
		}
	}
	return all, nil
}

// defaultWire is both at OpenAI's own address, that of a region included.
func defaultWire(base string) []upstream.Op {
	u, err := url.Parse(cmp.Or(base, DefaultBaseURL))
	if err == nil && strings.HasSuffix("."+strings.ToLower(u.Hostname()), ".api.openai.com") {
		return []upstream.Op{upstream.ChatCompletion, upstream.Responses}
	}
	return []upstream.Op{upstream.ChatCompletion}
}

// Do makes one call, once; a Router decides whether to repeat it. The Reply streams from the
// vendor until its body is closed.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, err := d.URL(call.Op)
	if err != nil {
		return nil, err
	}
	switch call.Op {
	case upstream.ShowResponse, upstream.DeleteResponse, upstream.ListInput:
		return d.stored(ctx, call)
	}
	if call.Query != "" {
		asked := *to
		asked.RawQuery = call.Query
		to = &asked
	}
	body := call.Body
	if d.noStreamOptions && call.Op == upstream.ChatCompletion && body.IsObject() {
		body = body.Delete("stream_options")
	}
	resp, key, err := d.Post(ctx, call, to, header(call), body)
	reply, err := d.Reply(call, resp, key, err)
	if err == nil && d.doneOptional && call.Op == upstream.ChatCompletion && call.Stream {
		reply = completed(call, reply)
	}
	return reply, err
}

// stored asks for a response that the vendor keeps, or has it deleted.
func (d *driver) stored(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, err := d.TaskURL(call)
	if err != nil {
		return nil, err
	}
	ask := d.Get
	switch call.Op {
	case upstream.DeleteResponse:
		ask = d.Delete
	case upstream.ListInput:
		to = to.JoinPath("input_items")
	}
	to.RawQuery = call.Query
	resp, key, err := ask(ctx, call, to, httpdo.Header("application/json", ""))
	return d.Reply(call, resp, key, err)
}

// betaHeader chooses among versions of the wire. It is the client's only header that travels.
const betaHeader = "Openai-Beta"

func header(call *upstream.Call) http.Header {
	accept := "application/json"
	switch {
	case call.Op == upstream.Speech:
		accept = "*/*"
	case call.Stream:
		accept = "text/event-stream"
	}
	h := httpdo.Header(accept, cmp.Or(call.Body.ContentType(), call.ContentType, "application/json"))
	if beta := call.Header[betaHeader]; beta != nil {
		h[betaHeader] = beta
	}
	return h
}

// ListModels implements [upstream.Lister] by GET /models. If that path is missing, the vendor
// may be an old Ollama, which has a list at another path.
func (d *driver) ListModels(ctx context.Context) (*upstream.ModelList, error) {
	l := httpdo.Listing{URL: d.Base.JoinPath("models"), Header: httpdo.Header("application/json", ""), Cursor: "after"}
	list, err := d.Client.ListModels(ctx, l)
	root, versioned := strings.CutSuffix(strings.TrimSuffix(d.Base.Path, "/"), "/v1")
	var f *upstream.Failure
	if !versioned || !errors.As(err, &f) || f.Status != http.StatusNotFound {
		return list, err
	}
	ollama := *d.Base
	ollama.Path, ollama.RawPath = root+"/api/tags", ""
	l.URL = &ollama
	if other, failed := d.Client.ListModels(ctx, l); failed == nil {
		return other, nil
	}
	return nil, err
}
