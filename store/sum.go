package store

import (
	"math/big"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
)

// half is what amounts are divided by to be summed: the sums of both parts fit
// the integers of every database, whatever the amounts are.
const half = "4294967296"

// sums is a list of expressions that sum columns, for [sum.parts] to scan.
func sums(columns ...string) string {
	var all []string
	for _, c := range columns {
		all = append(all,
			"CAST(COALESCE(SUM("+c+" / "+half+"), 0) AS BIGINT)",
			"CAST(COALESCE(SUM("+c+" % "+half+"), 0) AS BIGINT)")
	}
	return strings.Join(all, ", ")
}

// sum is an exact sum of amounts or counts, of any size.
type sum struct {
	high, low int64 // of a column, in halves
	more      big.Int
}

func newSum[N ~int64](n N) *sum {
	s := &sum{}
	s.more.SetInt64(int64(n))
	return s
}

// parts are what the two expressions of a column are scanned into.
func (s *sum) parts() []any { return []any{&s.high, &s.low} }

func (s *sum) add(amount billing.Money) { s.more.Add(&s.more, big.NewInt(int64(amount))) }

func (s *sum) total() *big.Int {
	total := new(big.Int).Lsh(big.NewInt(s.high), 32)
	total.Add(total, big.NewInt(s.low))
	return total.Add(total, &s.more)
}

// fits reports whether the sum is an amount: billing.Unlimited is none.
func (s *sum) fits() bool {
	total := s.total()
	return total.IsInt64() && total.Int64() < int64(billing.Unlimited)
}

// capped is the sum, or the largest int64 where it does not fit.
func (s *sum) capped() int64 {
	total := s.total()
	if !total.IsInt64() {
		return int64(billing.Unlimited)
	}
	return total.Int64()
}
