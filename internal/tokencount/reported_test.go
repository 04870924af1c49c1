package tokencount

import (
	"math/big"
	"strings"
	"testing"
)

const (
	in = iota
	out
	thought
)

var members = []Member{
	{Name: "in", Field: in}, {Name: "out", Field: out},
	{Name: "details", Inner: []Member{{Name: "thought", Field: thought}}},
}

func TestACountIsReadHoweverItIsSpelled(t *testing.T) {
	for raw, want := range map[string]struct {
		n           int64
		ok, anomaly bool
	}{
		``: {}, `null`: {}, `0`: {0, true, false}, `7`: {7, true, false},
		`1073741824`: {MaxCount, true, false}, `1073741825`: {MaxCount, true, true}, `9223372036854775807`: {MaxCount, true, true},
		`1200.0`: {1200, true, false}, `3e2`: {300, true, false}, `1.2E+3`: {1200, true, false}, `12000e-1`: {1200, true, false}, `0.0`: {0, true, false}, `0e9`: {0, true, false},
		`"1200"`: {1200, true, false}, `" 1200 "`: {1200, true, false}, `"1.2e3"`: {1200, true, false},
		`37.25`: {38, true, false}, `37.000001`: {38, true, false}, `0.5`: {1, true, false}, `5e-9`: {1, true, false}, `1e-99999999999999999999`: {1, true, false},
		`16777217.0`: {16777217, true, false}, `1073741823.1`: {MaxCount, true, false}, `1073741824.1`: {MaxCount, true, true},
		`9223372036854775808`: {MaxCount, true, true}, `1e400`: {MaxCount, true, true}, `1e99999999999999999999`: {MaxCount, true, true}, `0e99999999999999999999`: {0, true, false},
		`-1`: {0, false, true}, `-1.0`: {0, false, true}, `"-7"`: {0, false, true}, `{}`: {0, false, true}, `[7]`: {0, false, true}, `true`: {0, false, true},
		`""`: {0, false, true}, `"many"`: {0, false, true}, `"1,200"`: {0, false, true}, `"0x10"`: {0, false, true}, `"1."`: {0, false, true}, `"1e"`: {0, false, true}, `"1e+"`: {0, false, true},
		`"NaN"`: {0, false, true}, `".5"`: {0, false, true}, `"7 tokens"`: {0, false, true},
	} {
		if n, ok, anomaly := Count([]byte(raw)); n != want.n || ok != want.ok || anomaly != want.anomaly {
			t.Errorf("%s: %d, %t, anomaly %t", raw, n, ok, anomaly)
		}
	}
}

func TestEachFieldKeepsItsLargestCount(t *testing.T) {
	var p Report
	if told := p.Read([]byte(`{"in":9,"details":{"thought":2},"x":{"in":99}}`), members); told != [Fields]bool{in: true, thought: true} {
		t.Errorf("it counts %v", told)
	}
	if told := p.Read([]byte(`{"in":4,"out":0,"details":null}`), members); told != [Fields]bool{in: true, out: true} {
		t.Errorf("it counts %v", told)
	}
	if want := (Report{Has: [Fields]bool{true, true, true}, N: [Fields]int64{9, 0, 2}}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}

func TestWhatIsNoReportIsAnAnomalyAndCountsNothing(t *testing.T) {
	for raw, anomaly := range map[string]bool{
		``: false, `null`: false, `{}`: false, `{"details":7}`: false, `{"details":[]}`: false,
		`7`: true, `[]`: true, `{"in"`: true, `{"in":-1}`: true, `{"details":{"thought":"two"}}`: true,
	} {
		var p Report
		if told := p.Read([]byte(raw), members); told != [Fields]bool{} || p != (Report{Anomaly: anomaly}) {
			t.Errorf("%s: %v, %+v", raw, told, p)
		}
	}
}

// FuzzCount has the count be that of exact rational arithmetic.
func FuzzCount(f *testing.F) {
	for _, text := range []string{"1200.0", "3e2", "37.25", "0.000e5", "1073741824", "12.5e-1", "99999999999.9E-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok, anomaly := Count([]byte(text))
		number, isNumber := new(big.Rat).SetString(text)
		if strings.Trim(text, "0123456789.eE+-") != "" || len(text) > 12 || !isNumber || !ok {
			return // what is no number is for the table
		}
		up, rest := new(big.Int).DivMod(number.Num(), number.Denom(), new(big.Int))
		if rest.Sign() > 0 {
			up.Add(up, big.NewInt(1))
		}
		if want := big.NewInt(MaxCount); up.Cmp(want) > 0 != anomaly || !anomaly && up.Int64() != n {
			t.Errorf("%s: %d, anomaly %t, want %s", text, n, anomaly, up)
		}
	})
}
