package tokencount

import "testing"

const (
	in = iota
	out
	thought
)

var members = []Member{
	{Name: "in", Field: in}, {Name: "out", Field: out},
	{Name: "details", Inner: []Member{{Name: "thought", Field: thought}}},
}

func TestACountIsAnIntegerThatSomethingCanHave(t *testing.T) {
	for raw, want := range map[string]struct {
		n           int64
		ok, anomaly bool
	}{
		``: {}, `null`: {}, `0`: {0, true, false}, `7`: {7, true, false},
		`1073741824`: {MaxCount, true, false}, `1073741825`: {MaxCount, true, true}, `9223372036854775807`: {MaxCount, true, true},
		`-1`: {0, false, true}, `1.0`: {0, false, true}, `"7"`: {0, false, true}, `{}`: {0, false, true}, `9223372036854775808`: {0, false, true},
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
		`7`: true, `[]`: true, `{"in"`: true, `{"in":-1}`: true, `{"details":{"thought":"2"}}`: true,
	} {
		var p Report
		if told := p.Read([]byte(raw), members); told != [Fields]bool{} || p != (Report{Anomaly: anomaly}) {
			t.Errorf("%s: %v, %+v", raw, told, p)
		}
	}
}
