package router_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// dice are numbers at random that a seed repeats.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{rnd: rand.New(rand.NewPCG(seed, 1))} }

func (d *dice) below(n uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.Uint64N(n)
}

// times is a factor of which half are below 1, one in forty is above 2, and none
// is far from it: how vendors' latencies differ from call to call.
func (d *dice) times() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return math.Exp(0.35 * max(-2, min(2, d.rnd.NormFloat64())))
}

// site is a vendor under load: at some time after the start it fails or is slow.
type site struct {
	dice    *dice
	start   time.Time
	bad     func(at time.Duration) trouble
	mu      sync.Mutex
	asked   []time.Duration
	running int
	most    int
}

// trouble is how a site is.
type trouble struct {
	slower  float64 // its latency, in times of what is normal; 0 is 1
	failing int     // of a hundred calls
	dead    bool    // refuses the connection
	silent  bool    // never says a word
	cuts    int     // of a hundred answers, half through
}

const normal = 200 * time.Millisecond

func (s *site) enter() (time.Duration, trouble) {
	at := time.Since(s.start)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, at)
	s.running++
	s.most = max(s.most, s.running)
	if s.bad == nil {
		return at, trouble{}
	}
	return at, s.bad(at)
}

func (s *site) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

func (s *site) Do(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
	_, is := s.enter()
	defer s.leave()
	pause := time.Duration(float64(normal) * s.dice.times() * max(is.slower, 1))
	switch {
	case is.dead:
		return nil, unsent()
	case is.silent:
		pause = time.Hour
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, (&upstream.Failure{Sent: true, Err: ctx.Err()}).Fault()
	}
	if int(s.dice.below(100)) < is.failing {
		return nil, failed(500)
	}
	if int(s.dice.below(100)) < is.cuts {
		return halfAnAnswer(ctx, nil)
	}
	return says(strings.NewReader("ok")), nil
}

// share is the part of all sites' calls between two times that s had.
func (s *site) share(all []*site, from, to time.Duration) float64 {
	sum := 0
	for _, x := range all {
		sum += x.between(from, to)
	}
	return float64(s.between(from, to)) / float64(sum)
}

func (s *site) between(from, to time.Duration) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.asked {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// outcome is what a caller saw.
type outcome struct {
	at   time.Duration
	took time.Duration
	err  error
}

// outcomes are those of the calls that began within a time.
type outcomes []outcome

func (o outcomes) between(from, to time.Duration) (part outcomes) {
	for _, x := range o {
		if x.at >= from && x.at < to {
			part = append(part, x)
		}
	}
	return part
}

func (o outcomes) errors() (share float64) {
	for _, x := range o {
		if x.err != nil {
			share++
		}
	}
	return share / float64(len(o))
}

func (o outcomes) p99() time.Duration {
	took := make([]time.Duration, len(o))
	for i, x := range o {
		took[i] = x.took
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// load calls the router so many times a second, at random moments, for a time.
// A caller waits so long for an answer.
func load(t *testing.T, r *router.Router, d *dice, perSecond float64, length, patience time.Duration) outcomes {
	t.Helper()
	start := time.Now()
	var mu sync.Mutex
	var seen outcomes
	var calls sync.WaitGroup
	c := call(t, hello)
	for at := time.Duration(0); at < length; {
		d.mu.Lock()
		at += time.Duration(d.rnd.ExpFloat64() / perSecond * float64(time.Second))
		d.mu.Unlock()
		time.Sleep(time.Until(start.Add(at)))
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			began := time.Now()
			_, err := answer(ctx, r, c)
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, outcome{began.Sub(start), time.Since(began), err})
		})
	}
	calls.Wait()
	return seen
}

// sites are three alike, the first of which is in trouble.
func sites(d *dice, bad func(at time.Duration) trouble) []*site {
	all := make([]*site, 3)
	for i := range all {
		all[i] = &site{dice: d, start: time.Now()}
	}
	all[0].bad = bad
	return all
}

func over(t *testing.T, d *dice, all []*site, edit func(i int, c *router.Channel)) *router.Router {
	t.Helper()
	channels := make([]router.Channel, len(all))
	for i, s := range all {
		channels[i] = every(fmt.Sprint(i), s, 0)
		if edit != nil {
			edit(i, &channels[i])
		}
	}
	return newRouter(t, router.Options{Rand: d.below}, channels...)
}

// TestOneFailingChannelOfThreeHarmsFewCalls is the third thing that must hold of a bad day.
// Some seconds after the trouble began, errors are under 0.1 %, and the p99 is under twice the
// normal one. All is as before when it is over.
func TestOneFailingChannelOfThreeHarmsFewCalls(t *testing.T) {
	const s = time.Second
	rates := []float64{20, 150}
	if !longtest.Enabled() { // the test below has 200 a second
		rates = rates[:1]
	}
	for name, is := range map[string]trouble{
		"dead":          {dead: true},
		"erring":        {failing: 50},
		"always erring": {failing: 100},
		"slow":          {slower: 10},
		"silent":        {silent: true},
	} {
		for _, perSecond := range rates {
			t.Run(fmt.Sprint(name, "/", perSecond), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDice(7)
					all := sites(d, func(at time.Duration) trouble {
						if at > 20*s && at < 80*s {
							return is
						}
						return trouble{}
					})
					seen := load(t, over(t, d, all, nil), d, perSecond, 200*s, 40*s)
					usual := seen.between(0, 20*s).p99()
					bad := seen.between(25*s, 80*s)
					if share := bad.errors(); share > 0.001 {
						t.Errorf("%.2f %% of the calls failed", 100*share)
					}
					if p99 := bad.p99(); p99 >= 2*usual {
						t.Errorf("the p99 is %s, was %s", p99, usual)
					}
					if share := all[0].share(all, 130*s, 200*s); share < 0.27 || share > 0.4 {
						t.Errorf("when all is well again, its share is %.3f", share)
					}
				})
			})
		}
	}
}

func TestEqualChannelsShareByWeightUnderLoad(t *testing.T) {
	for _, perSecond := range []float64{2, 20, 200} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 12000
				d := newDice(11)
				all := sites(d, nil)
				weights := []int{1, 3, 6}
				r := over(t, d, all, func(i int, c *router.Channel) { c.Weight = weights[i] })
				length := time.Duration(calls / perSecond * float64(time.Second))
				load(t, r, d, perSecond, length, time.Hour)
				for i, s := range all {
					if got, want := s.share(all, 0, length), float64(weights[i])/10; math.Abs(got-want) > 0.02 {
						t.Errorf("weight %d got %.3f of the calls", weights[i], got)
					}
				}
			})
		})
	}
}

func TestAChannelThatCutsAnswersGetsFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		d := newDice(3)
		all := sites(d, func(at time.Duration) trouble {
			return trouble{cuts: map[bool]int{true: 60}[at > 20*s && at < 120*s]}
		})
		seen := load(t, over(t, d, all, nil), d, 100, 200*s, time.Minute)
		if share := seen.between(60*s, 120*s).errors(); share > 0.001 {
			t.Errorf("%.2f %% of the calls failed", 100*share)
		}
		if share := all[0].share(all, 180*s, 200*s); share < 0.27 || share > 0.4 {
			t.Errorf("when all is well again, its share is %.3f", share)
		}
	})
}

func TestAVendorThatFailsEverywhereIsAskedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		d := newDice(5)
		all := sites(d, nil)
		for _, x := range all {
			x.bad = func(at time.Duration) trouble {
				return trouble{failing: map[bool]int{true: 100}[at > 20*s && at < 60*s]}
			}
		}
		seen := load(t, over(t, d, all, nil), d, 50, 120*s, time.Minute)
		if n := len(all[0].asked) - all[0].between(0, 60*s); n == 0 {
			t.Error("nobody noticed the end of it")
		}
		if share := seen.between(62*s, 120*s).errors(); share > 0 {
			t.Errorf("when it was over, %.2f %% of the calls failed", 100*share)
		}
	})
}
