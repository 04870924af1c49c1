package billing_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
)

func TestAnAmountIsAPlainDecimal(t *testing.T) {
	for _, c := range []struct {
		text string
		want billing.Money
	}{
		{"0", 0},
		{"-0", 0},
		{"25", 25 * billing.One},
		{"0.035", 35_000_000},
		{"-1.5", -1_500_000_000},
		{"007.10", 7_100_000_000},
		{"0.000000001", 1},
		{"0.0000000010", 1},
		{"9223372036.854775807", math.MaxInt64},
		{"-9223372036.854775808", math.MinInt64},
	} {
		if got, err := billing.ParseMoney(c.text); err != nil || got != c.want {
			t.Errorf("ParseMoney(%q) = %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

func TestWhatIsNoPlainDecimalIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "-", ".", "-.", ".5", "1.", "-.5", "+1", " 1", "1 ", "--1", "-+1", "1-", "1.-5", "1e1", "1E1", "1e400",
		"0x10", "1_000", "1,5", "1.2.3", "NaN", "Inf", "١", "0.0000000001", "0.1234567891", "0.000000000x",
		"9223372036.854775808", "-9223372036.854775809", "10000000000", strings.Repeat("9", 400),
	} {
		if got, err := billing.ParseMoney(text); !errors.Is(err, billing.ErrAmount) || got != 0 {
			t.Errorf("ParseMoney(%q) = %d, %v; want ErrAmount", text, got, err)
		}
	}
}

func TestAnAmountIsWrittenWithAtLeastTwoDigitsAndNoneTooMany(t *testing.T) {
	for amount, want := range map[billing.Money]string{
		0:                       "0.00",
		25 * billing.One:        "25.00",
		35_100:                  "0.0000351",
		-1:                      "-0.000000001",
		-1_500_000_000:          "-1.50",
		math.MaxInt64:           "9223372036.854775807",
		math.MinInt64:           "-9223372036.854775808",
		1_230_000_000:           "1.23",
		100*billing.One + 1_000: "100.000001",
	} {
		if got := amount.String(); got != want {
			t.Errorf("Money(%d) = %q, want %q", int64(amount), got, want)
		}
	}
}

func TestEveryAmountSurvivesTextAndJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := billing.Money(rapid.Int64().Draw(t, "nano"))
		if got, err := billing.ParseMoney(m.String()); err != nil || got != m {
			t.Fatalf("%d became %q, then %d, %v", int64(m), m, got, err)
		}
		text, err := json.Marshal(m)
		if err != nil || string(text) != `"`+m.String()+`"` {
			t.Fatalf("JSON of %s is %s, %v", m, text, err)
		}
		var back billing.Money
		if err := json.Unmarshal(text, &back); err != nil || back != m {
			t.Fatalf("%s read back is %d, %v", text, back, err)
		}
	})
}

func TestARefusedTextLeavesTheAmountAlone(t *testing.T) {
	m := billing.One
	if err := m.UnmarshalText([]byte("one")); err == nil || m != billing.One {
		t.Errorf("got %s, %v", m, err)
	}
}

var decimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// exactNano is the amount that a text stands for by the rules of ParseMoney,
// found with big rationals.
func exactNano(text string) (int64, bool) {
	if !decimal.MatchString(text) {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, false
	}
	r.Mul(r, big.NewRat(int64(billing.One), 1))
	return r.Num().Int64(), r.IsInt() && r.Num().IsInt64()
}

func FuzzMoney(f *testing.F) {
	for _, text := range []string{"0.60", "-1.5", "25", ".5", "1.", "+1", "9223372036.854775807"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, valid := exactNano(text)
		got, err := billing.ParseMoney(text)
		if valid != (err == nil) || (valid && int64(got) != want) {
			t.Fatalf("ParseMoney(%q) = %d, %v; want %d, %v", text, got, err, want, valid)
		}
		if again, err := billing.ParseMoney(got.String()); err != nil || again != got {
			t.Fatalf("%d was written as %q and read as %d, %v", got, got, again, err)
		}
	})
}
