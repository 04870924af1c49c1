// Package discovery keeps lists of the models that vendors have. It asks for them in the
// background, and remembers the last good list while a vendor does not answer.
//
// A program gives [Lists] the channels to ask for, runs [Lists.Run], and builds a router
// of [Source.Public] of what [Lists.Of] has whenever Changed is called. No request waits
// for a list.
package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tollhouse-ai/gateway/internal/retryqueue"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

const (
	// defaultEvery is the time between two requests for a list, where the source does not say.
	defaultEvery = 10 * time.Minute
	// MinEvery is the least that a [Source] may have.
	MinEvery = time.Second
	// askTimeout bounds one request for a list, all of its pages together.
	askTimeout = 30 * time.Second
	// firstRetry is the wait after a failure; it doubles with each further one, up to
	// the usual time between requests.
	firstRetry = 2 * time.Second
	// misses is how many lists in a row have to lack a model before it is gone.
	misses = 2
	// maxGone bounds how many models that are gone are remembered of each channel.
	maxGone = 1000
	// maxLogged is how many ids a line of the log has.
	maxLogged = 20
)

// Source is a channel whose models its vendor lists.
type Source struct {
	Channel  string            // its name, unique among all sources
	Upstream upstream.Upstream // what is asked: an [upstream.Lister], or what unwraps to one
	// Vendor tells vendors apart, for instance by their addresses: a source that has
	// another one than before begins without a list.
	Vendor string
	Every  time.Duration // between two lists; 10 minutes if zero, at least MinEvery
	Filter
}

// Filter says which models of a list a channel serves, and how they are called. The zero
// Filter serves all but fine-tuned ones under the vendor's ids.
type Filter struct {
	// Only and Not are patterns of the vendor's ids; "*" stands for any text. An id is served if
	// a pattern of Only fits, or Only is empty, and no pattern of Not does. An id that begins
	// with "ft:" is a fine-tuned model of the operator's own account, made of data that not
	// every client may see. Only a pattern of Only that begins with "ft:" fits it.
	Only, Not []string
	// Prefix begins the public ids.
	Prefix string
}

// Public is the public id of a model of the vendor's; false if the filter leaves it out.
func (f *Filter) Public(id string) (public string, ok bool) {
	fits := func(pattern string) bool { return matches(pattern, id) }
	own := strings.HasPrefix(id, fineTuned)
	named := func(pattern string) bool { return fits(pattern) && (!own || strings.HasPrefix(pattern, fineTuned)) }
	ok = (len(f.Only) == 0 && !own || slices.ContainsFunc(f.Only, named)) && !slices.ContainsFunc(f.Not, fits)
	return f.Prefix + id, ok
}

// fineTuned begins the ids of fine-tuned models: ft:MODEL:ORGANIZATION:NAME:ID.
const fineTuned = "ft:"

// matches reports whether a text is the pattern, in which "*" stands for any text, also
// one with slashes. It takes the product of both lengths at most.
func matches(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	for wild && ok {
		if first, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(text, first)
		}
		_, text, ok = strings.Cut(text, first) // the earliest leaves the most to the rest
	}
	return ok && text == ""
}

// List is what is known of a channel's models at one moment. It is immutable.
type List struct {
	Models  []Model   // the models to serve, sorted by id
	Gone    []Gone    // the last that went, the latest first; at most 1,000
	Invalid int       // entries of the last good list that were left out (upstream.ModelList)
	Listed  time.Time // of the last good list; zero if there was none
	Tried   time.Time // of the last request; zero if there was none
	Err     error     // of the last request; nil if it was successful
}

// Model is a model of a list.
type Model struct {
	upstream.ListedModel
	Missing int // how many of the last good lists, in a row, lack it
}

// Gone is a model that went from its vendor's list.
type Gone struct {
	ID    string
	Since time.Time
}

// Options are those of [Lists]; the zero value is the default.
type Options struct {
	// Changed is called after the models of some channel changed, by several goroutines at
	// once if need be. It is not called after a request that changed none. ctx ends with Run,
	// or when the channel is watched no more.
	Changed func(ctx context.Context)
	// Logger gets a line when a list fails for the first time, when it works again, and when
	// models come. It gets an audit line when models go. nil discards them.
	Logger *slog.Logger
	// Now dates lists; time.Now if nil.
	Now func() time.Time
	// Rand returns a number from 0 to n-1. It makes waits up to a quarter shorter, so that many
	// processes do not ask at once. nil means exact waits.
	Rand func(n int64) int64
}

// Lists keeps the lists of channels. It is safe for concurrent use.
type Lists struct {
	o Options

	mu      sync.Mutex
	watched map[string]*watched // by channel
	running context.Context     // of Run; nil while it does not run
	workers sync.WaitGroup      // of Run
}

// watched is a channel's list and what asks for it.
type watched struct {
	source Source
	list   List
	stop   context.CancelFunc // of the goroutine that asks; nil while Run does not run
	tried  chan struct{}      // closed after the first request, or when it is not watched any more
	once   sync.Once          // closes it
}

// New returns Lists without channels.
func New(o Options) *Lists {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func(context.Context) {}
	}
	return &Lists{o: o, watched: make(map[string]*watched)}
}

// Watch replaces the channels. A channel that was there before keeps its list, unless its
// vendor changed. It is asked at once if its upstream changed.
func (l *Lists) Watch(sources []Source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.watched
	l.watched = make(map[string]*watched, len(sources))
	for _, s := range sources {
		s.Every = max(cmp.Or(s.Every, defaultEvery), MinEvery)
		w := before[s.Channel]
		switch {
		case w == nil || w.source.Vendor != s.Vendor:
			w = &watched{source: s, tried: make(chan struct{})}
		case isSame(w.source.Upstream, s.Upstream) && w.source.Every == s.Every:
			w.source = s // another filter at most
			l.watched[s.Channel] = w
			delete(before, s.Channel)
			continue
		default:
			w = &watched{source: s, list: w.list, tried: make(chan struct{})}
		}
		l.watched[s.Channel] = w
		l.start(w)
	}
	for _, w := range before {
		w.end()
	}
}

// isSame reports whether two upstreams are one. Functions cannot be compared.
func isSame(a, b upstream.Upstream) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// start asks for a list from now on, if Run runs. l.mu is held.
func (l *Lists) start(w *watched) {
	if l.running == nil {
		return
	}
	ctx, stop := context.WithCancel(l.running)
	w.stop = stop
	source := w.source // a copy: Watch may replace its filter
	l.workers.Go(func() { l.follow(ctx, w, source) })
}

// end stops what asks for a list.
func (w *watched) end() {
	if w.stop != nil {
		w.stop()
	}
	w.once.Do(func() { close(w.tried) })
}

// Run asks for the lists until ctx ends, and returns nil when no request for one is under
// way any more. The context goes to the upstreams. Only one Run may be active at a time.
func (l *Lists) Run(ctx context.Context) error {
	l.mu.Lock()
	l.running = ctx
	for _, w := range l.watched {
		l.start(w)
	}
	l.mu.Unlock()
	<-ctx.Done()
	l.mu.Lock()
	l.running = nil
	l.mu.Unlock()
	l.workers.Wait()
	return nil
}

// Await waits until each watched channel has been asked once, or until ctx ends. A program
// calls it at its start to say what it serves. Run must run at the same time.
func (l *Lists) Await(ctx context.Context) {
	l.mu.Lock()
	var waits []<-chan struct{}
	for _, w := range l.watched {
		waits = append(waits, w.tried)
	}
	l.mu.Unlock()
	for _, tried := range waits {
		select {
		case <-tried:
		case <-ctx.Done():
			return
		}
	}
}

// Of is the list of a source. It is empty if the source is not watched, or if its vendor
// differs from that of the list.
func (l *Lists) Of(s Source) List {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watched[s.Channel]; w != nil && w.source.Vendor == s.Vendor {
		return w.list
	}
	return List{}
}

// follow asks for one list again and again until ctx ends.
func (l *Lists) follow(ctx context.Context, w *watched, s Source) {
	defer w.once.Do(func() { close(w.tried) })
	usual := retryqueue.Backoff{First: s.Every, Most: s.Every, Rand: l.o.Rand}
	retry := retryqueue.Backoff{First: min(firstRetry, s.Every), Most: s.Every, Rand: l.o.Rand}
	for {
		found, err := ask(ctx, s.Upstream)
		if ctx.Err() != nil {
			return
		}
		came, changed := l.record(w, found, err)
		if changed {
			l.o.Changed(ctx)
		}
		l.logChange(came) // once it is served
		w.once.Do(func() { close(w.tried) })
		wait := &usual
		if err != nil {
			wait = &retry
		} else {
			retry.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Next()):
		}
	}
}

// ask requests one list.
func ask(ctx context.Context, up upstream.Upstream) (*upstream.ModelList, error) {
	lister, ok := upstream.As[upstream.Lister](up)
	if !ok {
		return nil, upstream.ErrNoList
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return lister.ListModels(ctx)
}

// change is which models of a source came and went with a list.
type change struct {
	source     Source
	come, gone []string
	first      bool // the source's first list
}

// record notes the outcome of a request, and reports whether the models have changed. A late
// outcome for a channel that is no longer watched, or watched anew, is dropped.
func (l *Lists) record(w *watched, found *upstream.ModelList, err error) (c change, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched[w.source.Channel] != w {
		return c, false
	}
	now, before, next := l.o.Now(), w.list, w.list
	next.Tried, next.Err = now, err
	if err != nil {
		if w.list = next; before.Err == nil {
			then := "there is no earlier one"
			if !next.Listed.IsZero() {
				then = "the last one stays in force"
			}
			l.o.Logger.Warn("requesting the vendor's list of models failed; "+then+"; `tollhouse doctor` says more", "channel", w.source.Channel, "error", next.Reason())
		}
		return c, false
	}
	next.Listed, next.Invalid = now, found.Invalid
	c.source, c.first = w.source, before.Listed.IsZero()
	next.Models, c.come, c.gone = merge(before.Models, found.Models)
	next.Gone = withGone(before.Gone, c.gone, next.Models, now)
	w.list = next
	if before.Err != nil && !before.Listed.IsZero() {
		l.o.Logger.Info("the vendor's list of models is there again", "channel", w.source.Channel)
	}
	return c, len(c.come) > 0 || len(c.gone) > 0 || !slices.EqualFunc(before.Models, next.Models, func(a, b Model) bool { return a.ListedModel == b.ListedModel })
}

// maxReason bounds the text of an error, in bytes.
const maxReason = 300

// Reason says in one line why the last request failed; empty if it did not. It holds no
// key.
func (l *List) Reason() string {
	if l.Err == nil {
		return ""
	}
	cause := l.Err
	if f := (*upstream.Failure)(nil); errors.As(l.Err, &f) { // without what a caller would read
		cause = f
	}
	printing := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, cause.Error())
	return safetext.Truncate(strings.Join(strings.Fields(printing), " "), maxReason)
}

// merge returns the next list, with the ids that come and those that go. A model goes when
// several lists in a row lack it.
func merge(before []Model, found []upstream.ListedModel) (next []Model, come, gone []string) {
	known := make(map[string]bool, len(before))
	listed := make(map[string]bool, len(found))
	for _, m := range before {
		known[m.ID] = true
	}
	for _, m := range found {
		listed[m.ID] = true
		next = append(next, Model{ListedModel: m})
		if !known[m.ID] {
			come = append(come, m.ID)
		}
	}
	for _, m := range before {
		if listed[m.ID] {
			continue
		}
		if m.Missing++; m.Missing < misses {
			next = append(next, m)
		} else {
			gone = append(gone, m.ID)
		}
	}
	slices.SortFunc(next, func(a, b Model) int { return cmp.Compare(a.ID, b.ID) })
	return next, come, gone
}

// withGone returns the models that are gone: the earlier ones, unless they are back, and those
// that go now.
func withGone(before []Gone, gone []string, models []Model, now time.Time) []Gone {
	var all []Gone
	for _, id := range gone {
		all = append(all, Gone{id, now})
	}
	for _, g := range before {
		if _, back := slices.BinarySearchFunc(models, g.ID, func(m Model, id string) int { return cmp.Compare(m.ID, id) }); !back {
			all = append(all, g)
		}
	}
	return all[:min(len(all), maxGone)]
}

// logChange logs which of a channel's public ids come and go. What goes is a line of the
// audit log, since its callers get errors from then on.
func (l *Lists) logChange(c change) {
	s := &c.source
	come, gone := s.publicIDs(c.come), s.publicIDs(c.gone)
	if len(come) > 0 {
		line := []any{"channel", s.Channel, "models", len(come)}
		if !c.first {
			line = append(line, "ids", come[:min(len(come), maxLogged)])
		}
		l.o.Logger.Info("models were discovered", line...)
	}
	if len(gone) > 0 {
		l.o.Logger.Info("audit", "action", "models.gone", "outcome", "done", "by", "discovery", "target", s.Channel, "models", len(gone), "ids", gone[:min(len(gone), maxLogged)])
	}
}

// publicIDs returns the public ids of the ids that the filter serves.
func (f *Filter) publicIDs(ids []string) (served []string) {
	for _, id := range ids {
		if public, ok := f.Public(id); ok {
			served = append(served, public)
		}
	}
	return served
}
