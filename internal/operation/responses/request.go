// Package responses reads, checks and counts Responses for the gateway.
package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request: the typed view, and what bounds, edits and
// estimates need.
type Request struct {
	*responses.Request
	conversation.Parsed
	// References are the items of the input that only name one that was stored.
	References []Reference
	// Named are those that name what the model has made, such as a thought, and do not hold
	// it. They go to an upstream that keeps responses, and are left out for all others.
	Named []Reference
	// Links are what items refer to besides: the request for an approval, or a container.
	Links []Reference
	// Shared are the names in declarations of tools of what lies in the vendor's account:
	// containers, files, vector stores, skills. The gateway's customers share that account.
	Shared []Reference
	// DropCitations leaves out of the input's messages the citations of files and containers.
	DropCitations bool
	// VendorState says that the upstream keeps responses, and knows those that the request
	// refers to: then store, previous_response_id and references go as they came.
	VendorState bool
	// Added is what such an upstream adds to the input by itself.
	Added Added
	// DropIDs leaves out the ids of items that hold their content. An upstream that keeps the
	// responses of several callers may look such ids up all the same.
	DropIDs bool

	typed    *responses.Request // whose fields the view has; nil if they are read from the body
	hasInput bool
	hasIDs   bool // items have ids that hold what these name
	cites    bool // messages have citations of files or containers
	hosted   hosted
}

// Added is what a vendor adds to the input of a request that goes on from what it keeps.
type Added struct {
	AtVendor bool  // the request refers to something that a vendor keeps
	Tokens   int64 // most tokens of that
}

// Parse reads a request body in one pass. It fails with a 400 that names the byte offset if
// data is not one strict JSON object (docs/reference/http-api.md). It does not fail on fields
// that break a rule. [Request.Validate] reports the first of them, so that an unknown model is
// noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: the request's own Extra is empty, use [responses.Request.Field] for
// other members.
func Parse(data []byte) (*Request, error) { return read(data, nil, false) }

// ParseCount is [Parse] for a count of input tokens: stream is not looked at.
func ParseCount(data []byte) (*Request, error) { return read(data, nil, true) }

// Encode marshals a typed request and checks it as [Parse] checks a body. Its fields
// are the caller's own and not decoded again, unless it has an Extra or breaks a rule:
// then the bytes are parsed.
func Encode(typed *responses.Request) (*Request, error) {
	return encode(typed, false)
}

// EncodeCount is [Encode] for a count of input tokens.
func EncodeCount(typed *responses.Request) (*Request, error) {
	return encode(typed, true)
}

func encode(typed *responses.Request, count bool) (*Request, error) {
	type members responses.Request
	return rule.Encode(typed, (*members)(typed), hasExtra(typed), func(data []byte, typed *responses.Request) (*Request, error) { return read(data, typed, count) })
}

// hasExtra reports whether the request or a part of it has members without a field
// of their own.
func hasExtra(r *responses.Request) bool {
	return len(r.Extra) > 0 || r.Reasoning != nil && len(r.Reasoning.Extra) > 0 ||
		r.Text != nil && (len(r.Text.Extra) > 0 || r.Text.Format != nil && len(r.Text.Format.Extra) > 0)
}

// read indexes and checks a body; count says that it is of a count of tokens. It fills the
// view with typed's fields, or with what it decodes if typed is nil.
func read(data []byte, typed *responses.Request, count bool) (*Request, error) {
	all := new(struct {
		request Request
		view    responses.Request
		members [12]rawjson.Member // which most bodies have no more than
	})
	r := &all.request
	r.Object.Members = all.members[:0]
	r.Request, r.typed, r.CountOnly = &all.view, typed, count
	if typed != nil {
		all.view = *typed
		r.Stream = r.Stream && !count
	}
	if err := r.ReadBody(rule.Items, data, "input", uncounted, r.readInput); err != nil {
		return nil, err
	}
	r.Body = upstream.ObjectBody(r.Object)
	r.KeepNames("prompt_cache_key", "safety_identifier", "user")
	fields.Read(r, &r.Object, &r.Problem, typed != nil)
	if typed != nil && r.Problem.Found() {
		return read(data, nil, count)
	}
	return r, nil
}

// Outgoing is what an upstream gets: the body as [Request.Limited] says, and else the
// caller's, byte for byte.
func (r *Request) Outgoing(most int64) operation.Outgoing {
	limited := r.Limited(most)
	out := operation.Outgoing{Body: limited.Body, View: limited, Omitted: r.Omitted()}
	if r.hosted.betas {
		out.NoHeader = rule.OpenAIBetas
	}
	return out
}

// Limited is the request as a model in Go gets it. It asks for most output tokens, if most is
// positive and less than what the caller allows. Nothing is stored unless the upstream keeps
// the state of conversations. The fields of [Request.Omitted] are left out.
func (r *Request) Limited(most int64) *responses.Request {
	limited := *r.Request
	body := &limited.Body
	if most > 0 && (r.MaxOutputTokens == 0 || most < r.MaxOutputTokens) {
		limited.MaxOutputTokens = most
		*body = body.Set("max_output_tokens", strconv.AppendInt(nil, most, 10))
	}
	if !r.VendorState && !r.CountOnly {
		limited.Store = new(bool)
		if string(r.original("store")) != "false" {
			*body = body.Set("store", []byte("false"))
		}
	}
	for _, e := range r.leftOut() {
		if e.value == nil {
			*body = body.Delete(e.name)
		} else {
			*body = body.Set(e.name, e.value)
		}
		switch e.name {
		case "tools":
			limited.Tools = e.value
		case "tool_choice":
			limited.ToolChoice = e.value
		case "parallel_tool_calls":
			limited.ParallelToolCalls = nil
		case serviceTier:
			limited.ServiceTier = ""
		case "reasoning":
			limited.Reasoning = &responses.Reasoning{}
			_ = json.Unmarshal(e.value, limited.Reasoning, jsontext.AllowDuplicateNames(true)) // Parse has decoded more of it
		case "input":
			limited.Input = e.value
		}
	}
	return &limited
}

// Omitted names what of the request [Request.Outgoing] leaves out, as the headers of an
// answer spell it; nil for nothing.
func (r *Request) Omitted() []string {
	var names []string
	if r.hosted.drop {
		for _, kind := range r.hosted.kinds {
			names = append(names, "tools."+kind)
		}
	}
	if r.hosted.dropTier {
		names = append(names, serviceTier)
	}
	names = append(names, r.unknown()...)
	if r.hosted.betas {
		names = append(names, rule.OpenAIBetas)
	}
	if r.dropsNamed() {
		for _, n := range r.Named {
			if name := "input." + conversation.Known(namedTypes, n.Type); name != "input." && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// namedTypes are the types of [Request.Named] that Omitted names.
var namedTypes = []string{
	"reasoning", "message", "web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "mcp_call", "mcp_list_tools", "mcp_approval_request",
}

// Summary returns the parts of the request that matter once a stream has begun: bounds,
// estimates and a [Tap] are the same by it. It does not refer to the request's bytes, which
// may be many, and has neither a body nor messages.
func (r *Request) Summary() *Request {
	return &Request{
		Request: &responses.Request{Model: r.Model, MaxOutputTokens: r.MaxOutputTokens, Stream: r.Stream},
		Parsed:  r.Summarized(r.Model), VendorState: r.VendorState,
	}
}

// uncounted are the top-level members that are no part of a prompt, whatever they
// hold: the numbers, flags and ids of the table of fields.
var uncounted = []string{
	"model", "input", "max_output_tokens", "stream", "stream_options", "temperature", "top_p", "top_logprobs", "include", "store",
	"previous_response_id", "metadata", "client_metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
	"service_tier", "truncation", "reasoning",
}

// original is a member of the body as the caller sent it; nil if there is none.
func (r *Request) original(name string) []byte {
	if raw := r.Object.Raw(name); !rawjson.IsNull(raw) {
		return raw
	}
	return nil
}
