package responses

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// clientTool reports a type of tools that the client runs, or that only holds or finds
// such tools: they cost nothing but tokens. Vendors charge for each call of all others.
func clientTool(kind string) bool {
	return slices.Contains([]string{"function", "custom", "namespace", searchTool, "apply_patch", "local_shell"}, kind)
}

// searchTool is the type of a tool that finds others. The vendor runs it, unless its
// execution says that the client does.
const searchTool = "tool_search"

// hostedTool reports whether the vendor runs a declared tool, and what it is called.
func hostedTool(o *rawjson.Object) (kind string, hosted bool) {
	if kind, hosted = rule.HostedTool(o, clientTool); hosted {
		return kind, true
	}
	kind, _ = rawjson.String(o.Raw("type"))
	by, _ := rawjson.String(o.Raw("execution"))
	return kind, kind == searchTool && by != "client"
}

// hosted is what a request has of tools that the vendor runs itself. They are left out
// where they have no price, for clients declare them whether or not they need them.
type hosted struct {
	kinds   []string // the types of them, each once
	clients int      // how many other tools there are

	drop      bool     // they are left out
	choice    []byte   // tool_choice without them; nil for that of the caller
	dropTier  bool     // service_tier is left out too
	reasoning []string // the members of reasoning that are left out too
	betas     bool     // the header OpenAI-Beta is left out too
}

// mostKinds bounds the types that are reported by name.
const mostKinds = 32

// note notes a hosted tool.
func (h *hosted) note(kind string) {
	const longest = 64
	if kind = safetext.Truncate(kind, longest); len(h.kinds) < mostKinds && !slices.Contains(h.kinds, kind) {
		h.kinds = append(h.kinds, kind)
	}
}

// freeTiers are the service tiers that cost no more than the price says.
var freeTiers = []string{"auto", "default"}

const (
	serviceTier = "service_tier"
	fileID      = "file_id" // of an account that all callers share
)

// errUnpriced says that something of the request has no price; which, is asked again.
var errUnpriced = errors.New("something has no price")

// Unpriced refuses the first member that costs money without a price, or that chooses another
// model or account. pass may let it through. It gets the name as the table spells it, "tools"
// and "cache_control" included, and as the client does. What may cost money unknown to the
// gateway is left out instead. These are tools that the vendor runs, a service tier, unknown
// members, and unknown words of the header OpenAI-Beta. See [Request.Omitted]. A count of
// tokens costs nothing, so it is refused only for another model or account.
func (r *Request) Unpriced(h http.Header, pass func(name, spelled string) bool) error {
	if r.CountOnly {
		return rule.CheckUnpriced(&r.Object, rule.Count, nil, pass)
	}
	reasoning, betas := r.unknownOfReasoning(pass), !rule.FreeOpenAIBetas(h, pass)
	if pass == nil && (len(r.hosted.kinds) > 0 || len(reasoning) > 0 || betas) {
		return errUnpriced
	}
	err := rule.CheckUnpriced(&r.Object, rule.Generation, freeTiers, func(name, spelled string) bool {
		if pass == nil || pass(name, spelled) {
			return pass != nil
		}
		if name == serviceTier {
			r.hosted.dropTier = true
		}
		return name == serviceTier
	})
	if err != nil {
		return err
	}
	if err := r.Paid.Check(pass); err != nil {
		return err
	}
	if err := r.Unknown.Find(&r.Object, isKnown, pass); err != nil {
		return err
	}
	r.hosted.reasoning, r.hosted.betas = reasoning, betas
	if err := r.unknown().Check(); err != nil {
		return err
	}
	if len(r.hosted.kinds) > 0 && !pass("tools", "tools") {
		choice, err := r.choiceWithoutHosted()
		r.hosted.drop, r.hosted.choice = err == nil, choice
		return err
	}
	return nil
}

// freeFields are members that no rule is about, and that cost nothing.
var freeFields = []string{"client_metadata", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias"}

// freeReasoning are the members of reasoning that cost no more than the tokens that they make.
// The bound of the output includes all of those.
var freeReasoning = []string{"effort", "summary", "generate_summary", "context"}

// isKnown reports whether a member of the body has a rule, or costs nothing.
func isKnown(name string) bool {
	return name == "input" || fields.Find(name) != nil || slices.Contains(freeFields, name)
}

// unknownOfReasoning returns the members of reasoning that the gateway does not know and pass
// does not let through. A vendor may add a member that makes it work and bill beyond the bound
// of the output. Examples are subagents, and several answers of which it shows the best.
func (r *Request) unknownOfReasoning(pass rule.PassUnpriced) []string {
	o, err := rawjson.Index(r.original("reasoning"), nil, nil)
	if err != nil {
		return nil // there is none
	}
	return rule.UnknownMembers(&o, func(name string) bool { return slices.Contains(freeReasoning, name) }, func(name string) bool {
		return pass != nil && pass(reasoningPrefix+name, "reasoning")
	})
}

// reasoningPrefix is what a caller and an operator spell before a member of reasoning.
const reasoningPrefix = "reasoning."

// unknown names all members that are left out, as a caller and an operator spell them.
func (r *Request) unknown() (names rule.Unknown) {
	names = slices.Clone(r.Unknown)
	for _, name := range r.hosted.reasoning {
		names = append(names, reasoningPrefix+name)
	}
	return names
}

// withoutUnknown appends the edits that leave out the members that are not known.
func (r *Request) withoutUnknown(edits []edit) []edit {
	for _, name := range r.Unknown {
		edits = append(edits, edit{name, nil})
	}
	if o, err := rawjson.Index(r.original("reasoning"), nil, nil); err == nil && len(r.hosted.reasoning) > 0 {
		var inner []rawjson.Edit
		for _, name := range r.hosted.reasoning {
			inner = append(inner, rawjson.Delete(name))
		}
		edits = append(edits, edit{"reasoning", o.Apply(nil, inner...)})
	}
	return edits
}

// OmitsBetas reports whether the header OpenAI-Beta is left out.
func (r *Request) OmitsBetas() bool { return r.hosted.betas }

// choiceWithoutHosted is tool_choice as it is sent without the tools that are left out;
// nil if it need not change. It fails if it demands one of them.
func (r *Request) choiceWithoutHosted() (choice []byte, err error) {
	raw := r.original("tool_choice")
	demanded := func() error {
		return fault.Invalid("tool_choice", fmt.Sprintf(`"tool_choice" demands a tool that the vendor runs (%q), for which this gateway has no price. Leave it out, or name a function.`, r.hosted.kinds[0]))
	}
	if word, ok := rawjson.String(raw); ok || raw == nil {
		if word == "required" && r.hosted.clients == 0 {
			err = demanded()
		}
		return nil, err
	}
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil, nil // Parse read it as an object
	}
	switch kind, _ := rawjson.String(o.Raw("type")); {
	case kind != "allowed_tools":
		if !clientTool(kind) || slices.Contains(r.hosted.kinds, kind) {
			err = demanded()
		}
		return nil, err
	default:
		tools := withoutHosted(o.Raw("tools"), func(o *rawjson.Object) (string, bool) { // which does not say who runs it
			kind, _ := rawjson.String(o.Raw("type"))
			return kind, !clientTool(kind) || slices.Contains(r.hosted.kinds, kind)
		})
		if string(tools) == "[]" {
			return nil, demanded()
		}
		return o.Apply(nil, rawjson.Set("tools", tools)), nil
	}
}

// withoutHosted is a list of tools without those that the vendor runs, and without
// namespaces that then are empty.
func withoutHosted(list []byte, hosted func(*rawjson.Object) (string, bool)) []byte {
	var left [][]byte
	for _, raw := range rawjson.Elements(list) {
		o, err := rawjson.Index(raw, nil, nil)
		if err != nil {
			continue // Parse read objects
		}
		if _, is := hosted(&o); is {
			continue
		}
		if inner := o.Raw("tools"); !rawjson.IsNull(inner) && inner[0] == '[' {
			kept := withoutHosted(inner, hosted)
			if string(kept) == "[]" && string(inner) != "[]" {
				continue
			}
			raw = o.Apply(nil, rawjson.Set("tools", kept))
		}
		left = append(left, raw)
	}
	return rawjson.AppendArray(nil, left)
}

// edit is a member of the body with another value, or without one.
type edit struct {
	name  string
	value []byte // nil to delete it
}

// leftOut are the edits that leave out what is not sent for lack of a price or of what it
// refers to.
func (r *Request) leftOut() (edits []edit) {
	h := &r.hosted
	for _, name := range [...]string{"tools", "tool_choice", "parallel_tool_calls"} {
		raw := r.original(name)
		switch {
		case raw == nil || !h.drop:
		case h.clients == 0:
			edits = append(edits, edit{name, nil})
		case name == "tools":
			if tools := withoutHosted(raw, hostedTool); string(tools) == "[]" { // the others are in the input
				edits = append(edits, edit{name, nil})
			} else {
				edits = append(edits, edit{name, tools})
			}
		case name == "tool_choice" && h.choice != nil:
			edits = append(edits, edit{name, h.choice})
		}
	}
	if h.dropTier {
		edits = append(edits, edit{serviceTier, nil})
	}
	edits = r.withoutUnknown(edits)
	if raw := r.original("input"); raw != nil && raw[0] == '[' && (h.drop || r.dropsNamed() || r.DropIDs && r.hasIDs || r.DropCitations && r.cites) {
		if input, changed := r.keptInput(raw); changed {
			edits = append(edits, edit{"input", input})
		}
	}
	return edits
}

// dropsNamed reports whether items are left out that name what they do not hold: an
// upstream that stores nothing refuses them.
func (r *Request) dropsNamed() bool { return len(r.Named) > 0 && !r.VendorState }

// keptInput is the input without the hosted tools that items of it declare, and without
// the items and ids that are left out.
func (r *Request) keptInput(input []byte) (out []byte, changed bool) {
	linked := make(map[string]bool, len(r.Links)) // ids of items that other items refer to
	for _, l := range r.Links {
		linked[l.ID] = true
	}
	items := rawjson.Elements(input)
	left := items[:0]
	for i, raw := range items {
		o, err := rawjson.Index(raw, nil, nil)
		if err != nil {
			continue // Parse read objects
		}
		if _, bare := slices.BinarySearchFunc(r.Named, i, func(n Reference, i int) int { return n.Index - i }); bare && r.dropsNamed() {
			changed = true
			continue
		}
		var edits []rawjson.Edit
		if id, _ := rawjson.String(o.Raw("id")); r.DropIDs && o.Raw("id") != nil && !r.names(i) && !linked[id] {
			edits = append(edits, rawjson.Delete("id"))
		}
		if r.DropCitations && r.cites {
			if content, cited := withoutCitations(o.Raw("content")); cited {
				edits = append(edits, rawjson.Set("content", content))
			}
		}
		if tools := o.Raw("tools"); r.hosted.drop && !rawjson.IsNull(tools) && tools[0] == '[' && declares(tools) {
			edits = append(edits, rawjson.Set("tools", withoutHosted(tools, hostedTool)))
		}
		if len(edits) > 0 {
			changed = true
			raw = o.Apply(nil, edits...)
		}
		left = append(left, raw)
	}
	return rawjson.AppendArray(make([]byte, 0, len(input)), left), changed
}

// declares reports whether a list of tools has one that the vendor runs.
func declares(list []byte) bool {
	return slices.ContainsFunc(rawjson.Elements(list), func(raw []byte) bool {
		o, err := rawjson.Index(raw, nil, nil)
		if err != nil {
			return false
		}
		_, hosted := hostedTool(&o)
		inner := o.Raw("tools")
		return hosted || !rawjson.IsNull(inner) && inner[0] == '[' && declares(inner)
	})
}
