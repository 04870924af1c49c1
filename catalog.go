package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Kind says which endpoint a model serves.
type Kind string

// The kinds of models, as the configuration file spells them.
const (
	KindChat       Kind = "chat"     // chat completions, messages and responses, whichever its upstream speaks
	KindMessages   Kind = "messages" // the same: each is translated into the others
	KindEmbeddings Kind = "embeddings"
	KindImage      Kind = "image"      // generation and, where its upstream edits, edits
	KindImageEdit  Kind = "image_edit" // edits only
	KindVideo      Kind = "video"
	KindSpeech     Kind = "speech"
	KindRerank     Kind = "rerank"
	KindModeration Kind = "moderation"
)

// Kinds are all kinds, in the order of the API's documentation.
func Kinds() []Kind {
	var kinds []Kind
	for _, s := range all.Specs() {
		for _, k := range s.Kinds {
			if !slices.Contains(kinds, Kind(k)) {
				kinds = append(kinds, Kind(k))
			}
		}
	}
	return kinds
}

// KindOf is the kind that the built-in tables say a public model id has; empty
// if they do not know it.
func KindOf(id string) Kind {
	if m, ok := builtin()[id]; ok {
		return m.Kind
	}
	return ""
}

// Model is what the gateway knows of a public model id.
type Model struct {
	ID          string
	Kind        Kind      // which endpoint it serves; empty means whichever its upstream serves
	DisplayName string    // empty means ID
	OwnedBy     string    // empty means "tollhouse"
	Created     time.Time // zero means when the gateway was started
	// MaxOutput is the most output tokens of one candidate. 0 means unknown: 131,072 are
	// held for a whole answer without a bound, and a vendor that has to be limited is sent
	// 16,384 at most.
	MaxOutput int64
	// HoldTokens are the output tokens that are held for a stream without a bound, and
	// usual for a whole answer (billing.HoldRequest); 0 means 4,096.
	HoldTokens int64
	// Batch is the most texts (for speech: characters, for reranking: documents) of one
	// upstream call; 0 means that of its family.
	Batch int
	// Dimensions are those that embeddings can have; nil means those of its family.
	Dimensions []int64
	// Voices are the preset voices of speech, the first being the default; nil means
	// those of its family.
	Voices     []string
	Ratios     []string  // the values of `ratio` that a video may have; nil means all
	Priorities []string  // the values of `priority` that a video may have; nil means all
	Affinity   Affinity  // which of its calls belong to one session; empty means Options.Affinity
	Reasoning  Reasoning // whether its answers show its reasoning; empty means what the built-in table says of it
	Withdrawn  time.Time // from this day on the model does not exist; zero means never

	facts operation.Facts // the same for the rules and bounds of its requests
}

// Reasoning says whether a model's answers show its reasoning. Of a model that hides it only
// the end of a stream says what was made: such a stream is held as a whole answer is, and
// read on for its usage when its client disconnects.
type Reasoning string

// The values of Reasoning, as the configuration file spells them.
const (
	ReasoningShown  Reasoning = "shown"  // as text, or the model does not reason
	ReasoningHidden Reasoning = "hidden" // not at all, or as a summary
)

// Reasonings are all values, as the configuration file spells them.
func Reasonings() []string { return []string{string(ReasoningShown), string(ReasoningHidden)} }

// catalog is an immutable snapshot of what a reload replaces.
type catalog struct {
	router       *router.Router
	prices       *billing.PriceList
	models       map[string]*Model // that channels, the operator and the tables name, every default set; not to be changed
	listed       []string          // what Gateway.Models shows, sorted: channels, the operator and the prices name it
	affinity     Affinity
	requirePrice bool
	media        operation.Media // of every model
	allowPrivate bool            // webhooks may have private addresses
	started      time.Time       // of the gateway, which stands for the time of models without one
	unpriced     unpricedModels
}

func newCatalog(o *Options, started time.Time, bridge upstream.Middleware) (*catalog, error) {
	if o.Upstream == nil {
		return nil, errors.New("gateway: Options.Upstream is nil; give an upstream or a router of channels")
	}
	routing, ok := o.Upstream.(*router.Router)
	if !ok {
		routing = router.Single(o.Upstream)
	}
	c := &catalog{router: routing.Wrap(bridge), prices: o.Prices, models: builtin(), affinity: cmp.Or(o.Affinity, AffinitySession), requirePrice: o.RequirePrice, started: started, media: operation.Media(o.Media), allowPrivate: o.Video.AllowPrivate}
	if !c.affinity.known() {
		return nil, fmt.Errorf("gateway: Options.Affinity is %q; it is one of session, prefix and off", c.affinity)
	}
	for _, m := range o.Models {
		if err := c.addModel(m); err != nil {
			return nil, err
		}
	}
	for _, id := range c.router.Models() {
		if c.models[id] == nil {
			c.models[id] = &Model{ID: id}
		}
		c.listed = append(c.listed, id)
	}
	for _, m := range o.Models {
		c.listed = append(c.listed, m.ID)
	}
	c.listed = append(c.listed, o.Prices.Models()...)
	slices.Sort(c.listed)
	c.listed = slices.Compact(c.listed)
	for _, m := range c.models {
		c.setDefaults(m)
	}
	return c, nil
}

// supports reports whether a call of an endpoint can be answered.
func (c *catalog) supports(s *operation.Spec, model string) bool {
	return c.router.Supports(s.Op, model) || s.StandIn != "" && c.router.Supports(s.StandIn, model)
}

// maxUnpriced bounds the models that unpricedModels knows: behind a wildcard callers make up ids.
const maxUnpriced = 100

// unpricedModels are the models that callers asked for and that are not sold, since no price
// of theirs is enough: for a log line each.
type unpricedModels struct {
	mu  sync.Mutex
	ids map[string]bool
}

// add reports whether the model is new.
func (u *unpricedModels) add(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids[id] || len(u.ids) == maxUnpriced {
		return false
	}
	if u.ids == nil {
		u.ids = make(map[string]bool)
	}
	u.ids[id] = true
	return true
}

// noteUnpriced tells the operator, once after each reload, that a model which a channel serves
// is not sold. Its callers read that it does not exist.
func (e *Entry) noteUnpriced() {
	if id := clip(e.info.Model); e.catalog.requirePrice && e.catalog.supports(e.spec, e.info.Model) && e.catalog.unpriced.add(id) {
		e.g.options.Logger.Warn("a model was asked for that is not sold: its price lacks units; add them under prices",
			"request_id", e.ID, "model", id, "operation", e.spec.Op, "lacks", MissingUnits(e.spec.Op, e.catalog.prices.Price(e.info.Model)))
	}
}

// MissingUnits names the units that a price lacks for an operation, which then
// would be free by mistake; empty if it lacks none. A nil price lacks all, and one
// of which every rate is "0" lacks none. image_output may be given as output.
func MissingUnits(op upstream.Op, p *billing.Price) string {
	if spec := all.Find(op); spec != nil {
		return missingUnits(spec, p)
	}
	return ""
}

// missingUnits is MissingUnits of the operation of spec.
func missingUnits(spec *operation.Spec, p *billing.Price) string {
	var missing []string
	for _, set := range spec.Units {
		var lacks []string
		for _, u := range set {
			if !p.Covers(u) && !p.IsFree() {
				lacks = append(lacks, string(u))
			}
		}
		if len(lacks) == 0 {
			return ""
		}
		missing = append(missing, strings.Join(lacks, " and "))
	}
	return strings.Join(missing, ", or ")
}

// Operations are those that a kind of models is called by.
func (k Kind) Operations() []upstream.Op {
	var ops []upstream.Op
	for _, s := range all.Specs() {
		if slices.Contains(s.Kinds, string(k)) {
			ops = append(ops, s.Op)
		}
	}
	return ops
}

// PriceUnits are the units that a price row needs at least, so that no operation of a
// kind is free by mistake.
func (k Kind) PriceUnits() []billing.Unit {
	var units []billing.Unit
	for _, s := range all.Specs() {
		if !slices.Contains(s.Kinds, string(k)) || len(s.Units) == 0 {
			continue
		}
		for _, u := range s.Units[0] {
			if !slices.Contains(units, u) {
				units = append(units, u)
			}
		}
	}
	return units
}

// builtin are the models of all endpoints' tables.
func builtin() map[string]*Model {
	models := make(map[string]*Model)
	for _, s := range all.Specs() {
		if s.Models == nil {
			continue
		}
		for id, f := range s.Models() {
			models[id] = &Model{ID: id, Kind: Kind(s.Kinds[0]), MaxOutput: f.MaxOutput, Batch: f.Batch, Dimensions: f.Dimensions, Voices: f.Voices}
		}
	}
	return models
}

// addModel adds an operator's facts about a model to the built-in ones.
func (c *catalog) addModel(m Model) error {
	if m.ID == "" {
		return errors.New("gateway: Options.Models: a model has no ID")
	}
	known := c.models[m.ID]
	if known == nil {
		known = new(Model)
	}
	if m.Kind == "" {
		m.Kind = known.Kind
	}
	if m.Kind != "" && !slices.Contains(Kinds(), m.Kind) {
		return fmt.Errorf("gateway: Options.Models: model %q has unknown kind %q", m.ID, m.Kind)
	}
	if m.MaxOutput < 0 || m.HoldTokens < 0 || m.Batch < 0 {
		return fmt.Errorf("gateway: Options.Models: model %q has a negative bound", m.ID)
	}
	if m.Reasoning != "" && !slices.Contains(Reasonings(), string(m.Reasoning)) {
		return fmt.Errorf("gateway: Options.Models: model %q has unknown reasoning %q", m.ID, m.Reasoning)
	}
	if m.Affinity != "" && !m.Affinity.known() {
		return fmt.Errorf("gateway: Options.Models: model %q has unknown affinity %q", m.ID, m.Affinity)
	}
	m.MaxOutput = cmp.Or(m.MaxOutput, known.MaxOutput)
	m.Batch = cmp.Or(m.Batch, known.Batch)
	if m.Dimensions == nil {
		m.Dimensions = known.Dimensions
	}
	if m.Voices == nil {
		m.Voices = known.Voices
	}
	c.models[m.ID] = &m
	return nil
}

// model finds a model that a channel serves and that, where it must be, has a price.
func (c *catalog) model(id string) (*Model, bool) {
	if !c.router.Serves(id) {
		return nil, false
	}
	return c.priced(id, c.prices.Price(id))
}

// priced is model of one that a channel is known to serve, and whose price is p.
func (c *catalog) priced(id string, p *billing.Price) (*Model, bool) {
	if c.requirePrice && p == nil {
		return nil, false
	}
	if m, ok := c.models[id]; ok {
		return m, true
	}
	m := &Model{ID: id}
	c.setDefaults(m)
	return m, true
}

// withdrawn reports whether the model does not exist any more.
func (m Model) withdrawn(now time.Time) bool {
	return !m.Withdrawn.IsZero() && !now.Before(m.Withdrawn)
}

// announce says when a model that will be withdrawn is to go (RFC 8594, RFC 9745).
func (m Model) announce(h http.Header) {
	if !m.Withdrawn.IsZero() {
		h.Set("Sunset", m.Withdrawn.UTC().Format(http.TimeFormat))
		h.Set("Deprecation", "@"+strconv.FormatInt(m.Withdrawn.Unix(), 10))
	}
}

// setDefaults sets every default of a model, and what its channels drop.
func (c *catalog) setDefaults(m *Model) {
	if m.Created.IsZero() {
		m.Created = c.started
	}
	m.DisplayName = cmp.Or(m.DisplayName, m.ID)
	m.OwnedBy = cmp.Or(m.OwnedBy, "tollhouse")
	m.HoldTokens = cmp.Or(m.HoldTokens, operation.DefaultHoldTokens)
	m.Affinity = cmp.Or(m.Affinity, c.affinity)
	if m.Reasoning == "" && (chatop.HidesReasoning(m.ID) || c.router.HasUpstream(m.ID, chatop.HidesReasoning)) {
		m.Reasoning = ReasoningHidden
	}
	m.facts = operation.Facts{
		MaxOutput: m.MaxOutput, HoldTokens: m.HoldTokens, Batch: m.Batch, Dimensions: m.Dimensions,
		Voices: m.Voices, Ratios: m.Ratios, Priorities: m.Priorities, HidesReasoning: m.Reasoning == ReasoningHidden,
		Dropped: operation.Dropped{MaxTokens: c.router.Drops(m.ID, "max_tokens"), MaxCompletionTokens: c.router.Drops(m.ID, "max_completion_tokens"), MaxOutputTokens: c.router.Drops(m.ID, "max_output_tokens")},
		Media:   c.media, AllowPrivate: c.allowPrivate,
	}
}

// Price is the operator's price row of a public model id at this moment; nil
// where there is none, and the model costs nothing.
func (g *Gateway) Price(model string) *billing.Price { return g.catalog.Load().prices.Price(model) }

// ListsAllModels reports whether [Gateway.Models] lists every model that can be called:
// no channel passes on ids that the configuration does not name.
func (g *Gateway) ListsAllModels() bool {
	return !slices.ContainsFunc(g.catalog.Load().router.Channels(), func(c router.ChannelInfo) bool {
		return slices.ContainsFunc(c.Models, func(id string) bool { return strings.HasSuffix(id, "*") })
	})
}

// Models are the models that the caller may use, sorted by id: those of the
// principal in ctx, or all without an Authenticator. A model that only a wildcard route
// serves is listed if Options.Models or Options.Prices has it; that the built-in tables
// know it is not enough, since its vendor may not have it.
func (g *Gateway) Models(ctx context.Context) ([]Model, error) {
	p, err := g.principal(ctx)
	if err != nil {
		return nil, err
	}
	c, now := g.catalog.Load(), g.options.Now()
	var models []Model
	for _, id := range c.listed {
		if m, ok := c.model(id); ok && !m.withdrawn(now) && p.MayUse(id) {
			models = append(models, *m)
		}
	}
	return models, nil
}

// Model is one model that the caller may use. It fails with
// fault.ModelNotFound, or fault.PermissionDenied if the key is not for it.
func (g *Gateway) Model(ctx context.Context, id string) (Model, error) {
	p, err := g.principal(ctx)
	if err != nil {
		return Model{}, err
	}
	m, ok := g.catalog.Load().model(id)
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

func notAllowed(model string) *fault.Error {
	return &fault.Error{
		Code: fault.PermissionDenied, Param: "model",
		Message: fmt.Sprintf("This API key may not use the model %q. GET /v1/models lists the models that it may use.", model),
	}
}
