package billing_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
)

// everyBucket has another count in each bucket, so that a forgotten one shows.
func everyBucket(t *testing.T) billing.Usage {
	t.Helper()
	var u billing.Usage
	v := reflect.ValueOf(&u).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Int64 {
			v.Field(i).SetInt(int64(i) + 1)
		}
	}
	return u
}

func TestEveryBucketIsAUnitOnce(t *testing.T) {
	got := map[billing.Unit]int64{}
	for unit, count := range everyBucket(t).Units {
		if _, twice := got[unit]; twice {
			t.Errorf("%s is yielded twice", unit)
		}
		got[unit] = count
	}
	want := map[billing.Unit]int64{
		billing.Input: 1, billing.CachedInput: 2, billing.CacheWrite: 3, billing.Output: 4, billing.Reasoning: 5,
		billing.ImageInput: 6, billing.ImageOutput: 7, billing.Image: 8, billing.Second: 9, billing.Character: 10,
		billing.SearchUnit: 11, billing.Request: 12,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUsagesAddBucketByBucket(t *testing.T) {
	u := everyBucket(t)
	want := map[billing.Unit]int64{}
	for unit, count := range u.Units {
		want[unit] = 2 * count
	}
	got := map[billing.Unit]int64{}
	for unit, count := range u.Add(u).Units {
		got[unit] = count
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheFlagsOfASum(t *testing.T) {
	marked := billing.Usage{Estimated: true, Zero: true, Anomaly: true, Variant: "720p"}
	want := billing.Usage{Estimated: true, Anomaly: true, Variant: "720p"}
	if diff := cmp.Diff(want, billing.Usage{}.Add(marked)); diff != "" {
		t.Error(diff)
	}
	if got := marked.Add(billing.Usage{Zero: true, Variant: "1080p"}); got != marked {
		t.Errorf("got %+v", got)
	}
}

func TestAnAbsurdCountDoesNotWrapASum(t *testing.T) {
	absurd := billing.Usage{Input: math.MaxInt64, Output: math.MaxInt64}
	if got := absurd.Add(absurd); got != absurd {
		t.Errorf("sum is %+v", got)
	}
	if got := absurd.Tokens(); got != math.MaxInt64 {
		t.Errorf("tokens are %d", got)
	}
}

func TestTokensAreWhatALimitCounts(t *testing.T) {
	if got := everyBucket(t).Tokens(); got != 1+2+3+4+6+7 {
		t.Errorf("got %d", got)
	}
}

func TestUsageIsZeroWhateverItsFlagsSay(t *testing.T) {
	if !(billing.Usage{Zero: true, Estimated: true, Variant: "720p"}).IsZero() {
		t.Error("flags count as usage")
	}
	var u billing.Usage
	v := reflect.ValueOf(&u).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() != reflect.Int64 {
			continue
		}
		v.Field(i).SetInt(1)
		if u.IsZero() {
			t.Errorf("%s counts as nothing", v.Type().Field(i).Name)
		}
		v.Field(i).SetInt(0)
	}
}
