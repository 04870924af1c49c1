package ledger

import (
	"reflect"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
)

func TestNoBucketIsBelowZero(t *testing.T) {
	if negative(&billing.Usage{Input: 1}) {
		t.Error("a token is negative")
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[billing.Usage]()) {
		if field.Type.Kind() != reflect.Int64 {
			continue
		}
		var u billing.Usage
		reflect.ValueOf(&u).Elem().FieldByIndex(field.Index).SetInt(-5)
		if !negative(&u) {
			t.Errorf("%s of -5 is not negative", field.Name)
		}
		var receipt billing.Receipt
		if _, err := (Payer{}).Settle(&receipt, nil, u, &billing.Outcome{}, receipt.SettledAt); err == nil {
			t.Errorf("%s of -5 was settled", field.Name)
		}
	}
}
