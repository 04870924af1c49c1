package rendezvous_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream/internal/rendezvous"
)

// sessions are as many as shares are measured over.
const sessions = 100_000

// session is the nth of the sessions: much the same bytes each time, so that the
// shares are even by the mixing alone.
func session(n int) *[16]byte {
	var s [16]byte
	binary.LittleEndian.PutUint64(s[:8], uint64(n))
	return &s
}

// choice is the point with the highest score.
func choice(s *[16]byte, points []rendezvous.Point, weights []int) (best int) {
	for i := range points {
		if points[i].Score(s, weights[i]) > points[best].Score(s, weights[best]) {
			best = i
		}
	}
	return best
}

func points(n int) (all []rendezvous.Point) {
	for i := range n {
		all = append(all, rendezvous.PointOf(fmt.Sprintf("channel-%d", i)))
	}
	return all
}

func TestSharesFollowTheWeights(t *testing.T) {
	for _, weights := range [][]int{{1, 1}, {3, 1}, {1, 2, 3, 4}, {90, 10}, {1_000_000, 1_000_000}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}} {
		t.Run(fmt.Sprint(weights), func(t *testing.T) {
			all, got, sum := points(len(weights)), make([]int, len(weights)), 0
			for n := range sessions {
				got[choice(session(n), all, weights)]++
			}
			for _, w := range weights {
				sum += w
			}
			for i, w := range weights {
				if share, want := float64(got[i])/sessions, float64(w)/float64(sum); math.Abs(share-want) > 0.02 {
					t.Errorf("%d: got a share of %.4f, want %.4f", i, share, want)
				}
			}
		})
	}
}

func TestWhatIsTakenOutMovesItsOwnSessionsOnly(t *testing.T) {
	for _, n := range []int{2, 4, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			all, weights, moved := points(n), make([]int, n), 0
			for i := range weights {
				weights[i] = 1
			}
			for i := range sessions {
				s := session(i)
				before, after := choice(s, all, weights), choice(s, all[:n-1], weights)
				switch {
				case before == after:
				case before != n-1:
					t.Fatalf("session %d moved from %d, which is still there, to %d", i, before, after)
				default:
					moved++
				}
			}
			if share, want := float64(moved)/sessions, 1/float64(n); math.Abs(share-want) > 0.02 {
				t.Errorf("%.4f of the sessions moved, want %.4f", share, want)
			}
		})
	}
}

// What is chosen must not change with a release: all prompt caches would be lost.
func TestTheOrderIsTheSameForGood(t *testing.T) {
	p := rendezvous.PointOf("channel")
	if got, want := uint64(p), uint64(0x69e36568cd8b4659); got != want {
		t.Errorf("the point is %#x, want %#x", got, want)
	}
	if got, want := p.Rank(session(7)), uint64(0x1cd6477286d8e310); got != want {
		t.Errorf("the rank is %#x, want %#x", got, want)
	}
}

func TestAScoreIsFinite(t *testing.T) {
	for n := range sessions {
		if s := rendezvous.Point(n).Score(session(0), 1_000_000); !(s > 0) || math.IsInf(s, 0) {
			t.Fatalf("point %d: the score is %v", n, s)
		}
	}
}

func TestTheOrderIsThatOfTheRanksWithoutTies(t *testing.T) {
	for _, row := range []struct{ ranks, want []int }{
		{nil, nil},
		{[]int{0}, []int{0}},
		{[]int{math.MinInt, 3, math.MaxInt, 0}, []int{2, 1, 3, 0}},
		{[]int{2, 3, 2, 3, 1}, []int{1, 0, 4}},
	} {
		got := slices.Collect(rendezvous.Order(len(row.ranks), func(i int) int { return row.ranks[i] }))
		if !slices.Equal(got, row.want) {
			t.Errorf("%v: got %v, want %v", row.ranks, got, row.want)
		}
	}
}
