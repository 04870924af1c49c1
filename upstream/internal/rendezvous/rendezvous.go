// Package rendezvous chooses by highest random weight. Each session has an order of all
// choices and takes the first usable one. Adding or removing a choice moves only that choice's
// share of the sessions. All processes choose alike, in whatever order they name the choices.
package rendezvous

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"math"
)

// Point is what can be chosen, by a hash that is the same in every process.
type Point uint64

// PointOf is the point of a name.
func PointOf(name string) Point {
	sum := sha256.Sum256([]byte(name))
	return Point(binary.BigEndian.Uint64(sum[:]))
}

// Rank is a number for the session and the point, in which no bit depends on another. The
// usable point with the highest one is chosen.
func (p Point) Rank(session *[16]byte) uint64 {
	first, second := binary.LittleEndian.Uint64(session[:8]), binary.LittleEndian.Uint64(session[8:])
	return mix(mix(first^uint64(p)) ^ second)
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014): each bit of x changes half of the result's.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Score is a rank by which points are chosen as often as their weights say: -w/ln(u),
// with u uniform between 0 and 1. It is positive.
func (p Point) Score(session *[16]byte, weight int) float64 {
	u := (float64(p.Rank(session)>>12) + 0.5) / (1 << 52) // neither 0 nor 1
	return -float64(weight) / math.Log(u)
}

// Order yields the indices of n points, that of the highest rank first; of points that have
// the same rank, the first one only.
func Order[R cmp.Ordered](n int, rank func(i int) R) iter.Seq[int] {
	return func(yield func(int) bool) {
		var last R
		for yielded := false; ; yielded = true {
			next, highest := -1, last
			for i := range n {
				if r := rank(i); (!yielded || r < last) && (next < 0 || r > highest) {
					next, highest = i, r
				}
			}
			if next < 0 || !yield(next) {
				return
			}
			last = highest
		}
	}
}
