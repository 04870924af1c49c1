package rawjson

import (
	"bytes"
	"testing"
)

func TestEveryElementOfAnArrayIsVisitedInOrder(t *testing.T) {
	for raw, want := range map[string]struct {
		count int
		all   string // the elements, each with a bar behind it
	}{
		`[]`:                       {0, ""},
		` [ 1 , "a,]" ]`:           {2, `1|"a,]"|`},
		`[{"a":[1]},[2, 3], null]`: {3, `{"a":[1]}|[2, 3]|null|`},
		`[1,{"a":`:                 {1, "1|"},
		`[1 2]`:                    {1, "1|"},
		`{"a":1}`:                  {-1, ""},
		`"[1]"`:                    {-1, ""},
		`null`:                     {-1, ""},
		``:                         {-1, ""},
	} {
		var all bytes.Buffer
		next := 0
		count := Each([]byte(raw), func(i int, at Span) {
			if i != next {
				t.Errorf("%s: element %d is visited as number %d", raw, next, i)
			}
			next++
			all.WriteString(raw[at.Start:at.End] + "|")
		})
		if count != want.count || all.String() != want.all {
			t.Errorf("%s has %d elements, %s", raw, count, all.String())
		}
		all.Reset()
		for _, e := range Elements([]byte(raw)) {
			all.WriteString(string(e) + "|")
		}
		if all.String() != want.all {
			t.Errorf("%s is made of %s", raw, all.String())
		}
	}
}
