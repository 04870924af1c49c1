package discovery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
)

// vendor is an upstream whose list is what a test says.
type vendor struct {
	upstream.Upstream // none: it is asked for its list only

	mu    sync.Mutex
	list  []string
	err   error
	hangs bool // until its caller leaves
	asked []time.Time
}

func (v *vendor) says(list ...string) { v.mu.Lock(); v.list, v.err = list, nil; v.mu.Unlock() }

func (v *vendor) fails(err error) { v.mu.Lock(); v.err = err; v.mu.Unlock() }

func (v *vendor) times() int { v.mu.Lock(); defer v.mu.Unlock(); return len(v.asked) }

func (v *vendor) ListModels(ctx context.Context) (*upstream.ModelList, error) {
	v.mu.Lock()
	v.asked = append(v.asked, time.Now())
	ids, err := v.list, v.err
	v.mu.Unlock()
	if v.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	list := new(upstream.ModelList)
	for _, id := range ids {
		list.Models = append(list.Models, upstream.ListedModel{ID: id})
	}
	return list, nil
}

// lines is a log, without times.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) flush() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// models are a list's ids; one that the last list lacks ends in "?".
func models(l discovery.List) string {
	var ids []string
	for _, m := range l.Models {
		id := m.ID
		if m.Missing > 0 {
			id += "?"
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

// run watches the sources and asks for their lists, until stop or the end of the bubble in
// which it is called.
func run(t *testing.T, o discovery.Options, sources ...discovery.Source) (l *discovery.Lists, stop func()) {
	l = discovery.New(o)
	l.Watch(sources)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = l.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return l, stop
}

func TestAListIsKeptUntilABetterOneComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log, changes := &vendor{}, new(lines), atomic.Int32{}
		s := discovery.Source{Channel: "groq", Upstream: v, Vendor: "here", Every: time.Minute, Filter: discovery.Filter{Not: []string{"*-preview"}, Prefix: "groq/"}}
		v.fails(errors.New("connection refused"))
		l, _ := run(t, discovery.Options{Changed: func(context.Context) { changes.Add(1) }, Logger: log.logger()}, s)
		down := errors.New("html, with\nlines \x1b[31m")
		for _, step := range []struct {
			name    string
			does    func()
			waits   time.Duration
			want    string
			changes int32  // in all
			asked   int    // in all
			log     string // what it has; empty for no line at all
			err     string
			gone    int
		}{
			{"the first failure", nil, time.Second, "", 0, 1, "there is no earlier one; `tollhouse doctor` says more\" channel=groq error=\"connection refused\"", "connection refused", 0},
			{"it is tried again after 2, 4, 8 … s, and one line is enough", nil, 12 * time.Second, "", 0, 3, "", "connection refused", 0},
			{"the list comes", func() { v.says("b", "a", "c-preview") }, time.Minute / 4, "a b c-preview", 1, 4, "models were discovered\" channel=groq models=2", "", 0},
			{"the same again changes nothing", nil, 2 * time.Minute, "a b c-preview", 1, 6, "", "", 0},
			{"a failure keeps it", func() { v.fails(down) }, time.Minute, "a b c-preview", 1, 0, "the last one stays in force; `tollhouse doctor` says more\" channel=groq error=\"html, with lines [31m\"", "html, with lines [31m", 0},
			{"it is there again", func() { v.says("a", "c-preview") }, time.Minute, "a b? c-preview", 1, 0, "there again", "", 0},
			{"a failure between is no list", func() { v.fails(down) }, time.Minute, "a b? c-preview", 1, 0, "the last one", "html, with lines [31m", 0},
			{"two lists in a row lack one", func() { v.says("a", "d") }, time.Minute, "a c-preview? d", 2, 0, `msg=audit action=models.gone outcome=done by=discovery target=groq models=1 ids=[groq/b]`, "", 1},
			{"what is left out by the filter goes without a line", nil, time.Minute, "a d", 3, 0, "", "", 2},
			{"one that comes back is not gone", func() { v.says("a", "b", "d") }, time.Minute, "a b d", 4, 0, "ids=[groq/b]", "", 1},
		} {
			if step.does != nil {
				step.does()
			}
			time.Sleep(step.waits)
			synctest.Wait()
			got, text := l.Of(s), log.flush()
			if models(got) != step.want || changes.Load() != step.changes || got.Reason() != step.err || len(got.Gone) != step.gone {
				t.Errorf("%s: %q after %d changes, error %q, %d gone; want %q, %d, %q, %d", step.name, models(got), changes.Load(), got.Reason(), len(got.Gone), step.want, step.changes, step.err, step.gone)
			}
			if step.asked != 0 && v.times() != step.asked {
				t.Errorf("%s: the vendor was asked %d times, want %d", step.name, v.times(), step.asked)
			}
			if !strings.Contains(text, step.log) || step.log == "" && text != "" {
				t.Errorf("%s: logged %q, want %q", step.name, text, step.log)
			}
		}
	})
}

func TestAVendorThatDoesNotAnswerIsLeftInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{hangs: true}
		s := discovery.Source{Channel: "c", Upstream: v}
		l, stop := run(t, discovery.Options{}, s)
		began := time.Now()
		l.Await(t.Context())
		if took, list := time.Since(began), l.Of(s); took != 30*time.Second || !errors.Is(list.Err, context.DeadlineExceeded) || list.Tried.IsZero() {
			t.Errorf("after %s the list is %+v", took, list)
		}
		time.Sleep(3 * time.Second) // it is asked again
		stop()
		if n := v.times(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestAReloadKeepsTheListsOfTheSameVendors(t *testing.T) {
	same := &vendor{list: []string{"a"}}
	for _, row := range []struct {
		name  string
		after discovery.Source
		kept  bool
		again bool // the vendor is asked at once
	}{
		{"nothing is another", discovery.Source{Channel: "c", Upstream: same, Vendor: "v"}, true, false},
		{"another filter", discovery.Source{Channel: "c", Upstream: same, Vendor: "v", Filter: discovery.Filter{Prefix: "p/"}}, true, false},
		{"other keys", discovery.Source{Channel: "c", Upstream: &vendor{hangs: true}, Vendor: "v"}, true, true},
		{"another vendor", discovery.Source{Channel: "c", Upstream: &vendor{hangs: true}, Vendor: "w"}, false, true},
		{"another name", discovery.Source{Channel: "d", Upstream: &vendor{hangs: true}, Vendor: "v"}, false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := run(t, discovery.Options{}, discovery.Source{Channel: "c", Upstream: same, Vendor: "v"})
				l.Await(t.Context())
				before, asked := same.times(), row.after.Upstream.(*vendor)
				l.Watch([]discovery.Source{row.after})
				synctest.Wait()
				if got := models(l.Of(row.after)) == "a"; got != row.kept {
					t.Errorf("the list is kept: %t, want %t", got, row.kept)
				}
				if asked == same && same.times() != before || asked != same && row.again != (asked.times() == 1) {
					t.Error("the vendor is asked at once, or is not")
				}
				if row.after.Channel != "c" && models(l.Of(discovery.Source{Channel: "c", Vendor: "v"})) != "" {
					t.Error("the channel that was taken out has a list")
				}
			})
		})
	}
}

func TestManyProcessesDoNotAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{list: []string{"a"}}
		_, stop := run(t, discovery.Options{Rand: func(n int64) int64 { return n - 1 }}, discovery.Source{Channel: "c", Upstream: v})
		time.Sleep(time.Hour)
		stop()
		if wait := v.asked[1].Sub(v.asked[0]).Round(time.Second); wait != 7*time.Minute+30*time.Second {
			t.Errorf("the second request came %s after the first", wait)
		}
	})
}

func TestAnUpstreamWithoutAListSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstream.Func(nil)
		s := discovery.Source{Channel: "c", Upstream: up}
		l, _ := run(t, discovery.Options{}, s)
		l.Watch([]discovery.Source{s}) // functions cannot be compared
		l.Await(t.Context())
		if list := l.Of(s); !errors.Is(list.Err, upstream.ErrNoList) {
			t.Errorf("got %+v", list)
		}
	})
}

func TestAFilterIsByPatternsOfTheVendorsIDs(t *testing.T) {
	for _, row := range []struct {
		filter discovery.Filter
		id     string
		want   string // empty if it is left out
	}{
		{discovery.Filter{}, "a/b:c", "a/b:c"},
		{discovery.Filter{Prefix: "groq/"}, "openai/gpt", "groq/openai/gpt"},
		{discovery.Filter{Only: []string{"llama-*"}}, "llama-3", "llama-3"},
		{discovery.Filter{Only: []string{"llama-*"}}, "my-llama-3", ""},
		{discovery.Filter{Only: []string{"llama-*", "qwen"}}, "qwen", "qwen"},
		{discovery.Filter{Only: []string{"*"}, Not: []string{"*-preview"}}, "x-preview", ""},
		{discovery.Filter{Not: []string{"*-preview"}}, "x-preview-2", "x-preview-2"},
		{discovery.Filter{Only: []string{"*/*"}}, "org/sub/m", "org/sub/m"},
		{discovery.Filter{Only: []string{"a*b*c"}}, "abbc", "abbc"},
		{discovery.Filter{Only: []string{"a*b*c"}}, "acb", ""},
		{discovery.Filter{Only: []string{"ab*ba"}}, "aba", ""},
		{discovery.Filter{Only: []string{"exact"}}, "exactly", ""},
		{discovery.Filter{}, "ft:gpt-4.1:acme:support:B1", ""},
		{discovery.Filter{Only: []string{"*"}}, "ft:gpt-4.1:acme:support:B1", ""},
		{discovery.Filter{Only: []string{"f*"}}, "ft:gpt-4.1:acme:support:B1", ""},
		{discovery.Filter{Only: []string{"*", "ft:gpt-4.1:acme:*"}}, "ft:gpt-4.1:acme:support:B1", "ft:gpt-4.1:acme:support:B1"},
		{discovery.Filter{Only: []string{"*", "ft:gpt-4.1:acme:*"}}, "ft:gpt-4.1:other:x:B2", ""},
		{discovery.Filter{Only: []string{"ft:*"}, Not: []string{"*:acme:*"}}, "ft:gpt-4.1:acme:support:B1", ""},
		{discovery.Filter{Only: []string{"ft:*"}}, "gpt-4.1", ""},
		{discovery.Filter{}, "soft:ft", "soft:ft"},
		{discovery.Filter{Only: []string{strings.Repeat("*a", 50) + "b"}}, strings.Repeat("a", 200), ""},
	} {
		got, ok := row.filter.Public(row.id)
		if !ok {
			got = ""
		}
		if got != row.want {
			t.Errorf("%+v makes %q of %q, want %q", row.filter, got, row.id, row.want)
		}
	}
}

// What a hostile vendor lists one moment and not the next is remembered, and logged, in
// bounds.
func TestManyModelsThatGoAreRememberedInBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log := &vendor{}, new(lines)
		s := discovery.Source{Channel: "c", Upstream: v, Every: time.Second}
		l, _ := run(t, discovery.Options{Logger: log.logger()}, s)
		for round := range 3 {
			var ids []string
			for i := range 10_000 {
				ids = append(ids, fmt.Sprintf("%d-%d", round, i))
			}
			v.says(ids...)
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if list := l.Of(s); len(list.Gone) != 1000 || len(list.Models) > 20_000 {
			t.Errorf("%d models, %d gone", len(list.Models), len(list.Gone))
		}
		longest := slices.MaxFunc(strings.Split(log.flush(), "\n"), func(a, b string) int { return len(a) - len(b) })
		if len(longest) > 1000 {
			t.Errorf("a line of %d bytes", len(longest))
		}
	})
}
