package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Kind says which endpoint a model serves.
type Kind string

// The kinds of models (server.md, models).
const (
	KindChat       Kind = "chat"     // chat completions and messages, whichever its upstream speaks
	KindMessages   Kind = "messages" // the same: one is translated into the other
	KindEmbeddings Kind = "embeddings"
	KindImage      Kind = "image"      // generation and, where its upstream edits, edits
	KindImageEdit  Kind = "image_edit" // edits only
	KindVideo      Kind = "video"
	KindSpeech     Kind = "speech"
)

// kinds is every kind and the operations that it is called by.
var kinds = map[Kind][]upstream.Op{
	KindChat:       {upstream.ChatCompletion, upstream.Messages, upstream.CountTokens},
	KindMessages:   {upstream.ChatCompletion, upstream.Messages, upstream.CountTokens},
	KindEmbeddings: {upstream.Embeddings},
	KindImage:      {upstream.GenerateImage, upstream.EditImage},
	KindImageEdit:  {upstream.EditImage},
	KindVideo:      {upstream.SubmitVideo},
	KindSpeech:     {upstream.Speech},
}

// Kinds are all kinds, in the order of the API's documentation.
func Kinds() []Kind {
	return []Kind{KindChat, KindMessages, KindEmbeddings, KindImage, KindImageEdit, KindVideo, KindSpeech}
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
	Created     time.Time // zero means unknown
	MaxOutput   int64     // most output tokens of one candidate; 0 means unknown: 16,384 if the caller sets no bound
	HoldTokens  int64     // output tokens held where the caller sets no bound; 0 means 4,096
	Batch       int       // most texts (for speech: characters) of one upstream call; 0 means that of its family
	Dimensions  []int64   // the dimensions that embeddings can have; nil means those of its family
	Voices      []string  // the preset voices of speech, the first being the default; nil means those of its family
	Ratios      []string  // the values of `ratio` that a video may have; nil means all
	Priorities  []string  // the values of `priority` that a video may have; nil means all
	Withdrawn   time.Time // from this day on the model does not exist; zero means never
}

// The defaults of a model's facts. DefaultMaxOutput is what every current chat
// model can produce: a larger cap sent unasked could be refused upstream.
const (
	DefaultMaxOutput  = 16_384
	DefaultHoldTokens = 4_096
)

// routes is an immutable snapshot of what a reload replaces.
type routes struct {
	router       *upstream.Router
	prices       *billing.PriceList
	models       map[string]*Model // that channels, the operator and the tables name, every default set; not to be changed
	requirePrice bool
}

func newRoutes(o *Options) (*routes, error) {
	if o.Upstream == nil {
		return nil, errors.New("gateway: Options.Upstream is nil; give an upstream or a router of channels")
	}
	router, ok := o.Upstream.(*upstream.Router)
	if !ok {
		router = upstream.Sole(o.Upstream)
	}
	r := &routes{router: router.Wrap(messages.Bridge(o.Now)), prices: o.Prices, models: builtin(), requirePrice: o.RequirePrice}
	for _, m := range o.Models {
		if err := r.add(m); err != nil {
			return nil, err
		}
	}
	for _, id := range r.router.Models() {
		if r.models[id] == nil {
			r.models[id] = &Model{ID: id}
		}
	}
	for _, m := range r.models {
		*m = m.filled()
	}
	return r, nil
}

// serves reports whether a call of op can be answered. Tokens are counted of
// whatever can be answered: here, where no upstream counts them.
func (r *routes) serves(op upstream.Op, model string) bool {
	return r.router.Supports(op, model) || op == upstream.CountTokens && r.router.Supports(upstream.Messages, model)
}

// builtin concatenates the rooms' tables.
func builtin() map[string]*Model {
	models := make(map[string]*Model)
	for _, f := range chat.Families() {
		for _, m := range f.Models {
			models[m.ID] = &Model{ID: m.ID, Kind: KindChat, MaxOutput: m.MaxOutput}
		}
	}
	for _, f := range images.Families() {
		for _, m := range f.Models {
			models[m.ID] = &Model{ID: m.ID, Kind: KindImage}
		}
	}
	for _, f := range embeddings.Families() {
		for _, id := range f.Models {
			models[id] = &Model{ID: id, Kind: KindEmbeddings, Batch: f.Batch, Dimensions: f.Dimensions}
		}
	}
	for _, f := range video.Families() {
		for _, id := range f.Models {
			models[id] = &Model{ID: id, Kind: KindVideo}
		}
	}
	for _, f := range speech.Families() {
		for _, id := range f.Models {
			models[id] = &Model{ID: id, Kind: KindSpeech, Batch: f.Limit, Voices: f.Voices}
		}
	}
	return models
}

// add lays an operator's facts over the built-in ones.
func (r *routes) add(m Model) error {
	if m.ID == "" {
		return errors.New("gateway: Options.Models: a model has no ID")
	}
	known := r.models[m.ID]
	if known == nil {
		known = new(Model)
	}
	if m.Kind == "" {
		m.Kind = known.Kind
	}
	if _, ok := kinds[m.Kind]; !ok && m.Kind != "" {
		return fmt.Errorf("gateway: Options.Models: model %q has unknown kind %q", m.ID, m.Kind)
	}
	if m.MaxOutput < 0 || m.HoldTokens < 0 || m.Batch < 0 {
		return fmt.Errorf("gateway: Options.Models: model %q has a negative bound", m.ID)
	}
	m.MaxOutput = cmp.Or(m.MaxOutput, known.MaxOutput)
	m.Batch = cmp.Or(m.Batch, known.Batch)
	if m.Dimensions == nil {
		m.Dimensions = known.Dimensions
	}
	if m.Voices == nil {
		m.Voices = known.Voices
	}
	r.models[m.ID] = &m
	return nil
}

// model finds a routed model that, where it must be, has a price.
func (r *routes) model(id string) (*Model, bool) {
	if id == "" || !r.router.Routes(id) || r.requirePrice && r.prices.Price(id) == nil {
		return nil, false
	}
	if m, ok := r.models[id]; ok {
		return m, true
	}
	return new(Model{ID: id}.filled()), true
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

// filled has every default set.
func (m Model) filled() Model {
	if m.DisplayName == "" {
		m.DisplayName = m.ID
	}
	if m.OwnedBy == "" {
		m.OwnedBy = "tollhouse"
	}
	if m.HoldTokens == 0 {
		m.HoldTokens = DefaultHoldTokens
	}
	return m
}

// most is the largest output of one candidate, for a caller who set a bound of
// own (0 for none). An unknown cap does not lower the caller's bound.
func (m Model) most(own int64) int64 {
	switch {
	case own == 0 && m.MaxOutput == 0:
		return DefaultMaxOutput
	case own == 0:
		return m.MaxOutput
	case m.MaxOutput == 0:
		return own
	}
	return min(own, m.MaxOutput)
}

// list is every nameable model, sorted by id. Models that only a wildcard route
// serves are listed if the operator gave facts about them.
func (r *routes) list(p *auth.Principal, now time.Time) []Model {
	var models []Model
	for _, id := range slices.Sorted(maps.Keys(r.models)) {
		if m, ok := r.model(id); ok && !m.withdrawn(now) && p.MayUse(id) {
			models = append(models, *m)
		}
	}
	return models
}
