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
type sum struct{ high, low int64 } // of a column, in halves

// parts are what the two expressions of a column are scanned into.
func (s *sum) parts() []any { return []any{&s.high, &s.low} }

func (s *sum) total() *big.Int {
	total := new(big.Int).Lsh(big.NewInt(s.high), 32)
	return total.Add(total, big.NewInt(s.low))
}

// capped is the sum, or the largest int64 where it does not fit.
func (s *sum) capped() int64 {
	total := s.total()
	if !total.IsInt64() {
		return int64(billing.Unlimited)
	}
	return total.Int64()
}
