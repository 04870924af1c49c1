package chat

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

var offset = regexp.MustCompile(` at byte (\d+)\.$`)

func TestABodyThatIsNotOneStrictObjectIsRefusedWithItsOffset(t *testing.T) {
	const start = `{"model":"m","messages":[]`
	for body, at := range map[string]int{
		``:                                     0,
		` `:                                    1,
		`[]`:                                   0,
		`"text"`:                               0,
		`null`:                                 0,
		"\xef\xbb\xbf{}":                       0,
		`{`:                                    1,
		`{"model":`:                            9,
		`{"model" "m"}`:                        9,
		`{'model':"m"}`:                        1,
		`{"model":"m",}`:                       12,
		`{"n":01}`:                             6,
		`{"n":+1}`:                             5,
		`{"n":NaN}`:                            5,
		`{"a":"\x"}`:                           6,
		"{\"a\":\"\x01\"}":                     6,
		start + `} {}`:                         28,
		start + `}x`:                           27,
		start + `,"model":"n"}`:                27,
		start + `,"mod\u0065l":"n"}`:           27,
		start + `,"x":1,"x":1}`:                33,
		start + `,"Model":"n"}`:                27,
		start + `,"Max_Tokens":1}`:             27,
		start + `,"MAX_COMPLETION_TOKENS":1}`:  27,
		start + `,"Stream":true}`:              27,
		start + `,"ſtream":true}`:              27,
		start + `,"N":3}`:                      27,
		start + `,"parameters":{"a":1,"a":2}}`: 47,
		start + `,"parameters":{"Size":1}}`:    41,
		start + `,"parameters":{"Audio":1}}`:   41,
		start + ",\"user\":\"\xff\"}":          35,
		start + `,"user":"\ud800"}`:            35,
		start + `,"user":"\udc00\ud800"}`:      35,
		start + ",\"\xc3\":1}":                 28,
	} {
		_, err := Parse([]byte(body))
		f := fault.From(err)
		if f == nil || f.Code != fault.InvalidRequest || f.HTTPStatus() != 400 {
			t.Errorf("%q: %v", body, err)
			continue
		}
		m := offset.FindStringSubmatch(f.Message)
		if m == nil {
			t.Errorf("%q: no offset in %q", body, f.Message)
			continue
		}
		if got, _ := strconv.Atoi(m[1]); got != at {
			t.Errorf("%q: byte %d, want %d (%s)", body, got, at, f.Message)
		}
	}
}

func TestDeeperObjectsPassAsSent(t *testing.T) {
	for _, members := range []string{
		`"tools":[{"type":"function","function":{"name":"f","parameters":{"a":1,"a":2,"Type":3}}}]`,
		`"metadata":{"a":1,"a":2,"Model":3}`,
		`"parameters":{"deep":{"a":1,"a":2,"Size":3}}`,
		`"parameters":[{"a":1,"a":2}]`,
		`"Topic":9,"X-USER":1`,
		`"user":"\ud83d\ude00"`,
	} {
		if param, message := problem(t, ask("m", members)); message != "" {
			t.Errorf("%s: refused for %q: %s", members, param, message)
		}
	}
	twice := `{"model":"m","messages":[{"role":"user","content":"a","x":1,"x":2,"Model":"n"}]}`
	if _, message := problem(t, twice); message != "" {
		t.Error(message)
	}
}

func TestABodyIsAtMost64LevelsDeep(t *testing.T) {
	for depth, ok := range map[int]bool{64: true, 65: false, 100_000: false} {
		inner := depth - 1 // the body itself is a level
		for _, pair := range []string{"[]", "{}"} {
			open, end := strings.Repeat("[", inner), strings.Repeat("]", inner)
			if pair == "{}" {
				open, end = strings.Repeat(`{"a":`, inner-1)+"{", strings.Repeat("}", inner)
			}
			_, message := problem(t, ask("m", `"deep":`+open+end))
			if (message == "") != ok {
				t.Errorf("%d levels of %s: %q", depth, pair, message)
			}
			if !ok && !strings.Contains(message, "64 levels") {
				t.Errorf("%d levels: %q", depth, message)
			}
		}
	}
}

func TestMessagesCountForTheDepthToo(t *testing.T) {
	for inner, ok := range map[int]bool{61: true, 62: false} { // body, messages, message
		deep := strings.Repeat("[", inner) + strings.Repeat("]", inner)
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"a","deep":%s}]}`, deep)
		if _, message := problem(t, body); (message == "") != ok {
			t.Errorf("%d levels: %q", inner, message)
		}
	}
}
