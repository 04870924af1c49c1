package rule

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Scope is the kind of requests that a check is for.
type Scope int

// The scopes.
const (
	Other      Scope = iota // what is neither of the others
	Generation              // chat and messages
	Count                   // counts of tokens, which cost nothing
)

// PassUnpriced reports whether the channels take a member of unpricedFields anyway. name is
// the table's, spelled the client's. A nil PassUnpriced lets none through.
type PassUnpriced func(name, spelled string) bool

// allows is f, which may be nil.
func (f PassUnpriced) allows(name, spelled string) bool { return f != nil && f(name, spelled) }

// unpricedField is a request member without a price. It costs money that the vendor's counts
// do not show. Or it makes the upstream use another model, address or account than the gateway
// has priced. Prepaid billing refuses it (docs/reference/billing.md).
type unpricedField struct {
	why string // completes "The field … "
	// free reports values that cost nothing more; nil means none but null and
	// what is empty.
	free func(raw []byte) bool
	// empty says that an empty value, an object above all, asks for it too.
	empty bool
	// generation says that only chat and messages have it.
	generation bool
}

// Why a member is refused.
const (
	costsMore    = "costs money for which this gateway has no price"
	otherModel   = "can choose another model than the one that the request pays for"
	otherAccount = "can choose another address or account than the gateway's own"
	otherFields  = "can hold fields that cost money without a price, or choose another model or account"
	otherTier    = "asks for a tier that this gateway has no price for"
)

// unpricedFields is the table of such members, by their names in lower case. The members for
// every operation are those that routers in front of vendors take: OpenRouter's page "Provider
// Routing" and LiteLLM's "Input Params". The vendors' own pages name the others. Service tiers
// have their own rule, see [CheckUnpriced].
var unpricedFields = map[string]unpricedField{
	"models": {why: otherModel}, "fallback": {why: otherModel}, "fallbacks": {why: otherModel},
	"fallback_model": {why: otherModel}, "fallback_models": {why: otherModel},
	"context_window_fallback_dict": {why: otherModel}, "route": {why: otherModel}, "provider": {why: otherModel},
	"preset": {why: otherModel}, "model_list": {why: otherModel}, "user_config": {why: otherModel},
	"router_settings_override": {why: otherModel}, "custom_llm_provider": {why: otherModel},
	"deployment_id": {why: otherModel}, "litellm_metadata": {why: otherModel},

	"api_base": {why: otherAccount}, "base_url": {why: otherAccount}, "api_key": {why: otherAccount},
	"api_version": {why: otherAccount}, "organization": {why: otherAccount}, "azure_ad_token": {why: otherAccount},
	"litellm_credential_name": {why: otherAccount}, "litellm_params": {why: otherAccount},
	"vertex_project": {why: otherAccount}, "vertex_location": {why: otherAccount}, "vertex_credentials": {why: otherAccount},
	"aws_access_key_id": {why: otherAccount}, "aws_secret_access_key": {why: otherAccount}, "aws_session_token": {why: otherAccount},
	"aws_region_name": {why: otherAccount}, "aws_bedrock_runtime_endpoint": {why: otherAccount},
	"headers": {why: otherAccount}, "extra_headers": {why: otherAccount}, "extra_query": {why: otherAccount},

	"extra_body": {why: otherFields, free: onlyGoogle},
	"plugins":    {why: costsMore}, // OpenRouter

	serviceTier:               {why: otherTier, generation: true},
	"web_search_options":      {why: costsMore, generation: true, empty: true},             // OpenAI, Perplexity
	"search_parameters":       {why: costsMore, generation: true, empty: true},             // xAI
	"search_options":          {why: costsMore, generation: true, empty: true},             // routers
	"enable_search":           {why: costsMore, generation: true, free: isFalse},           // DashScope
	"enable_code_interpreter": {why: costsMore, generation: true, free: isFalse},           // DashScope
	"connectors":              {why: costsMore, generation: true},                          // Cohere
	"citation_options":        {why: costsMore, generation: true},                          // Cohere
	"data_sources":            {why: costsMore, generation: true},                          // Azure
	"compound_custom":         {why: costsMore, generation: true},                          // Groq
	"modalities":              {why: costsMore, generation: true, free: onlyText},          // OpenAI: audio; OpenRouter: images
	"audio":                   {why: costsMore, generation: true},                          // OpenAI
	"speed":                   {why: costsMore, generation: true, free: isOne("standard")}, // Anthropic
	"inference_geo":           {why: costsMore, generation: true, free: isOne("global")},   // Anthropic
	"container":               {why: costsMore, generation: true},                          // Anthropic
	"mcp_servers":             {why: costsMore, generation: true},                          // Anthropic
	"advisor":                 {why: otherModel, generation: true},                         // Anthropic
	"anthropic_beta":          {why: costsMore, generation: true, free: freeBetas},         // Bedrock and Vertex: the header of that name
	"betas":                   {why: costsMore, generation: true, free: freeBetas},         // Anthropic's SDKs: the same header
	"context_management":      {why: costsMore, generation: true, free: onlyClears},        // Anthropic: a compaction is counted apart
}

const serviceTier = "service_tier"

// mostWord is how many bytes a message repeats of a tool's type or a beta feature.
const mostWord = 64

func isFalse(raw []byte) bool { return string(raw) == "false" }

// isOne allows a few words.
func isOne(words ...string) func(raw []byte) bool { return OneOf(words...).OK }

// onlyText reports modalities without audio and images.
func onlyText(raw []byte) bool {
	return all(raw, func(modality string) bool { return modality == "text" })
}

// all reports whether raw is a list of strings that all are as they should be.
func all(raw []byte, ok func(s string) bool) bool {
	yes := true
	count := rawjson.Each(raw, func(_ int, at rawjson.Span) {
		s, isString := rawjson.String(at.Of(raw))
		yes = yes && isString && ok(s)
	})
	return yes && count >= 0
}

// onlyGoogle reports an extra_body with nothing but the settings of Gemini's own
// that its OpenAI form takes there (Google's page "OpenAI compatibility").
func onlyGoogle(raw []byte) bool {
	return only(raw, func(name string, value []byte) bool {
		return name == "google" && only(value, func(name string, _ []byte) bool { return name == "thinking_config" || name == "safety_settings" })
	})
}

// only reports whether raw is an object and every member is ok.
func only(raw []byte, ok func(name string, value []byte) bool) bool {
	o, err := rawjson.Index(raw, nil, nil)
	return err == nil && !slices.ContainsFunc(o.Members, func(m rawjson.Member) bool { return !ok(m.Name, m.Value.Of(raw)) })
}

// paidBetas are how the names of beta features begin that raise the price of
// tokens by themselves (the vendor's page "Pricing"). Others only allow members
// that are in the table.
var paidBetas = []string{"context-1m", "fast-mode"}

// paidBeta returns the first word of a comma-separated list that begins as one of paidBetas
// does; empty if there is none.
func paidBeta(list string) string {
	for beta := range strings.SplitSeq(list, ",") {
		beta = strings.ToLower(strings.TrimSpace(beta))
		if slices.ContainsFunc(paidBetas, func(prefix string) bool { return strings.HasPrefix(beta, prefix) }) {
			return beta
		}
	}
	return ""
}

// freeBetas reports beta features, in an array or a text, without any of
// paidBetas.
func freeBetas(raw []byte) bool {
	if list, ok := rawjson.String(raw); ok {
		return paidBeta(list) == ""
	}
	return all(raw, func(list string) bool { return paidBeta(list) == "" })
}

// onlyClears reports a context_management that takes something out of the
// context, and has no model summarize it.
func onlyClears(raw []byte) bool {
	lists, ok := valuesOf(raw, "edits")
	for _, edits := range lists {
		ok = ok && (rawjson.IsNull(edits) || edits[0] == '[')
		for _, edit := range rawjson.Elements(edits) {
			kinds, isObject := valuesOf(edit, "type")
			ok = ok && isObject && !slices.ContainsFunc(kinds, func(raw []byte) bool {
				kind, _ := rawjson.String(raw)
				return !strings.HasPrefix(kind, "clear_")
			})
		}
	}
	return ok
}

// valuesOf are the values of the members of an object that are called name, in any
// spelling; false if raw is no object.
func valuesOf(raw []byte, name string) (values [][]byte, ok bool) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil, false
	}
	for _, m := range o.Members {
		if Folded(m.Name) == name {
			values = append(values, m.Value.Of(raw))
		}
	}
	return values, true
}

// Folded is a name in small letters. A letter beyond ASCII counts as the ASCII letter that a
// case-insensitive reader takes it for.
func Folded(name string) string {
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' || c >= 0x80 {
			return strings.ToLower(strings.ToUpper(name))
		}
	}
	return name
}

// CheckUnpriced refuses the first member of a request that costs money without a price, or
// that chooses another model or account. A member passes if its value costs nothing or if pass
// allows it. tiers are the service tiers that cost no more than the price. Case variants of a
// name are refused too: some vendors ignore case.
func CheckUnpriced(o *rawjson.Object, s Scope, tiers []string, pass PassUnpriced) error {
	for i := range o.Members {
		m := &o.Members[i]
		name := Folded(m.Name)
		if f, ok := unpricedFields[name]; ok {
			if err := f.check(name, m.Name, m.Value.Of(o.Src), s, tiers, pass); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckUnpricedField is [CheckUnpriced] of one field of a form.
func CheckUnpricedField(spelled string, pass PassUnpriced) error {
	name := Folded(element(spelled))
	if f, ok := unpricedFields[name]; ok {
		return f.check(name, spelled, nil, Other, nil, pass)
	}
	return nil
}

// Unpriced reports whether [CheckRenamed] may refuse a field that reaches the
// upstream as name.
func Unpriced(name string) bool {
	_, ok := renamed(Folded(element(name)))
	return ok
}

// CheckRenamed is [CheckUnpriced] of one field that reaches the upstream under
// another name. A nil raw is any value.
func CheckRenamed(from, to string, raw []byte, s Scope) error {
	name := Folded(element(to))
	if f, ok := renamed(name); ok {
		return f.check(name, from, raw, s, nil, nil)
	}
	return nil
}

// renamed looks up a name that a field is renamed to. Members below the top level of a request
// are checked under their own name only, and so is unpriced here.
func renamed(name string) (f unpricedField, ok bool) {
	if name == hostedTools || name == longCache {
		return unpricedField{why: costsMore, generation: true}, true
	}
	f, ok = unpricedFields[name]
	return f, ok
}

// element returns the name of the list or object that a form's field belongs to: models[] and
// provider[order][] are elements of models and provider.
func element(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name
}

// check checks one member; a nil raw is any value.
func (f *unpricedField) check(name, spelled string, raw []byte, s Scope, tiers []string, pass PassUnpriced) error {
	switch {
	case s == Other && f.generation,
		s == Count && (f.why == costsMore || f.why == otherTier),
		raw != nil && f.isFree(name, raw, tiers),
		pass.allows(name, spelled):
		return nil
	}
	return fault.Invalid(spelled, fmt.Sprintf("The field %q %s. Leave it out.", spelled, f.why))
}

// isFree reports a value that costs nothing more. That is null, what the table or the price
// says, an empty array or object, and a text without letters.
func (f *unpricedField) isFree(name string, raw []byte, tiers []string) bool {
	switch {
	case rawjson.IsNull(raw), f.free != nil && f.free(raw), name == serviceTier && OneOf(tiers...).OK(raw):
		return true
	case f.empty:
		return false
	case raw[0] == '{':
		o, err := rawjson.Index(raw, nil, nil)
		return err == nil && len(o.Members) == 0
	}
	return string(raw) == `""` || rawjson.Each(raw, func(int, rawjson.Span) {}) == 0
}

// The names under which a channel passes what costs money below the top level of
// a request, or in its headers.
const (
	hostedTools = "tools"
	longCache   = "cache_control"
	PaidBetas   = "anthropic-beta"
	OpenAIBetas = "openai-beta"
)

// Paid is what a walk over a request found below its top level that no price row
// covers: the first of each kind. The zero value is nothing.
type Paid struct {
	tool, kind string // where a tool stands that the vendor runs, and its type
	cache      string // where a cache_control asks for more than the usual time
}

// Tool notes a tool at param unless it is of a type that the client runs. The
// type may stand in it under several spellings.
func (p *Paid) Tool(o *rawjson.Object, param string, client func(kind string) bool) {
	for i := range o.Members {
		if m := &o.Members[i]; Folded(m.Name) == longCache {
			p.CacheControl(m.Value.Of(o.Src), param)
		}
	}
	if kind, hosted := HostedTool(o, client); hosted && p.tool == "" {
		p.tool, p.kind = param, kind
	}
}

// HostedTool reports whether a vendor runs a tool itself, and what it is called. Such a tool
// has a type that the client does not run, or Gemini's form.
func HostedTool(o *rawjson.Object, client func(kind string) bool) (kind string, hosted bool) {
	for i := range o.Members {
		m := &o.Members[i]
		kind, hosted := m.Name, false
		switch name := Folded(m.Name); name {
		case "type":
			kind, hosted = rawjson.String(m.Value.Of(o.Src))
			hosted = hosted && !client(kind)
		default:
			hosted = slices.Contains(builtIn, strings.ReplaceAll(name, "_", ""))
		}
		if hosted {
			return kind, true
		}
	}
	return "", false
}

// builtIn are Gemini's own tools, which routers take as members of a tool
// (LiteLLM's page "Gemini - Google AI Studio"), without underscores.
var builtIn = []string{
	"googlesearch", "googlesearchretrieval", "enterprisewebsearch", "urlcontext", "codeexecution", "googlemaps", "filesearch", "computeruse",
}

// IsCacheControl reports whether a member's name is that of a cache_control.
func IsCacheControl[S string | []byte](name S) bool {
	return len(name) == len(longCache) && strings.EqualFold(string(name), longCache)
}

// CacheControl notes a cache_control of the member at param whose time to live is
// not the usual one.
func (p *Paid) CacheControl(raw []byte, param string) {
	times, _ := valuesOf(raw, "ttl")
	for _, raw := range times {
		if ttl, _ := rawjson.String(raw); p.cache == "" && ttl != "5m" && !rawjson.IsNull(raw) {
			p.cache = strings.TrimPrefix(param+".cache_control.ttl", ".")
		}
	}
}

// Check refuses what was found, unless pass lets it through.
func (p *Paid) Check(pass PassUnpriced) error {
	if p.tool != "" && !pass.allows(hostedTools, hostedTools) {
		return fault.Invalid(p.tool, fmt.Sprintf("The tool %q is run by the vendor, and %s. Leave it out.", safetext.Truncate(p.kind, mostWord), costsMore))
	}
	if p.cache != "" && !pass.allows(longCache, longCache) {
		return fault.Invalid(p.cache, `Only what is cached for five minutes has a price here. Leave "ttl" out, or send "5m".`)
	}
	return nil
}

// Betas refuses the first beta feature of a header that is charged for, unless
// pass lets it through.
func Betas(h http.Header, pass PassUnpriced) error {
	for name, values := range h {
		if !strings.EqualFold(name, PaidBetas) {
			continue
		}
		for _, list := range values {
			if beta := paidBeta(list); beta != "" && !pass.allows(PaidBetas, PaidBetas) {
				return fault.Invalid(PaidBetas, fmt.Sprintf("The beta feature %q %s. Leave it out of the header anthropic-beta.", safetext.Truncate(beta, mostWord), costsMore))
			}
		}
	}
	return nil
}

// freeOpenAIBetas are the words of OpenAI's own clients that only choose a version of the
// wire. Others may switch something on that is charged for.
var freeOpenAIBetas = []string{"responses=v1", "responses=experimental", "assistants=v1", "assistants=v2"}

// FreeOpenAIBetas reports whether a header's words for OpenAI all cost nothing, or pass lets
// the header through.
func FreeOpenAIBetas(h http.Header, pass PassUnpriced) bool {
	for name, values := range h {
		if !strings.EqualFold(name, OpenAIBetas) {
			continue
		}
		for beta := range strings.SplitSeq(strings.Join(values, ","), ",") {
			if beta = strings.TrimSpace(beta); beta != "" && !slices.Contains(freeOpenAIBetas, beta) {
				return pass.allows(OpenAIBetas, OpenAIBetas)
			}
		}
	}
	return true
}
