package messages

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
)

func TestReadingABodyTakesASmallMultipleOfItsSize(t *testing.T) {
	const size = 4 << 20
	const head, user = `{"model":"m","max_tokens":9,"messages":[`, `{"role":"user","content":""}`
	for _, c := range []struct {
		name          string
		body          []byte
		param, reason string // of the refusal
	}{
		{"blocks", capabilitytest.Filled(size, head+`{"role":"user","content":[`, `{"type":"text","text":""}`, `]}]}`), "messages", "16384"},
		{"blocks in blocks", capabilitytest.Filled(size, head+`{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[`, `{"type":"text","text":""}`, `]}]}]}`), "messages", "16384"},
		{"tools", capabilitytest.Filled(size, head+user+`],"tools":[`, `{"name":"x"            }`, `]}`), "tools", "16384"},
		{"blocks of system", capabilitytest.Filled(size, head+user+`],"system":[`, `{"type":"text","text":""}`, `]}`), "system", "16384"},
		{"a schema of a tool", capabilitytest.Filled(size, head+user+`],"tools":[{"name":"x","input_schema":{"enum":[`, `{"a":"bcdefghi"}`, `]}}]}`), "tools[0].input_schema", "262144"},
		{"stop sequences", capabilitytest.Filled(size, head+user+`],"stop_sequences":[`, `"a"        `, `]}`), "stop_sequences", "16384"},
	} {
		t.Run(c.name, func(t *testing.T) {
			capabilitytest.RefusedInProportion(t, c.body, c.param, c.reason, func(body []byte) error {
				r, err := Parse(body)
				if err != nil {
					return err
				}
				return r.Validate()
			})
		})
	}
}

func TestWhatTheGatewayReadsIsSpelledExactlyAndSaidOnce(t *testing.T) {
	const head = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}],`
	message := func(members string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a",` + members + `}]}`
	}
	block := func(members string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"a",` + members + `}]}]}`
	}
	source := func(members string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA",` + members + `}}]}]}`
	}
	for member, body := range map[string]string{ // the member at fault, and the body
		`"System"`:        head + `"System":"a"}`,
		`"OUTPUT_CONFIG"`: head + `"OUTPUT_CONFIG":{}}`,
		`"Budget_Tokens"`: head + `"thinking":{"type":"disabled","Budget_Tokens":9}}`,
		`"Content"`:       message(`"Content":"b"`),
		`"content"`:       message(`"content":"b"`),
		`"role"`:          message(`"role":"user"`),
		`"Text"`:          block(`"Text":"b"`),
		`"text"`:          block(`"text":"b"`),
		`"DATA"`:          source(`"DATA":"BBBB"`),
		`"data"`:          source(`"data":"BBBB"`),
	} {
		offset := strings.LastIndex(body, member)
		if _, message := refusal(t, body); !strings.HasSuffix(message, fmt.Sprintf(" (byte %d).", offset)) {
			t.Errorf("%s: %q, want a refusal that names byte %d", body, message, offset)
		}
	}
	for _, body := range []string{
		head + `"tools":[{"name":"f","type":"custom","Type":"web_search_20250305"}]}`,
		head + `"tools":[{"name":"f","name":"g"}]}`,
		head + `"system":[{"type":"text","text":"a","Text":"b"}]}`,
	} {
		if _, message := refusal(t, body); !strings.Contains(message, " of it).") {
			t.Errorf("%s: %q", body, message)
		}
	}
	for _, f := range fields {
		variant := strings.ToUpper(f.Name[:1]) + f.Name[1:]
		if _, err := Parse([]byte(head + `"` + variant + `":null}`)); err == nil {
			t.Errorf("%q is taken", variant)
		}
	}
}

func TestEveryTextOfARequestIsEstimated(t *testing.T) {
	const tokens = 1000
	text := strings.Repeat("word", tokens)
	field := func(members string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],` + members + `}`
	}
	content := func(block string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[` + block + `]}]}`
	}
	for name, body := range map[string]string{
		"a schema of the format":       field(`"output_config":{"format":{"type":"json_schema","schema":{"type":"object","description":"` + text + `"}}}`),
		"tools":                        field(`"tools":[{"name":"f","description":"` + text + `"}]`),
		"system":                       field(`"system":[{"type":"text","text":"` + text + `"}]`),
		"an unknown member":            `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi","x":"` + text + `"}]}`,
		"a document of blocks":         content(`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"` + text + `"}]}}`),
		"a block of an unknown type":   content(`{"type":"search_result","title":"` + text + `"}`),
		"what stands beside a picture": content(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", 8000) + `","text":"` + text + `"}}`),
	} {
		r := valid(t, body)
		if got, bound := r.InputEstimate(chat.MediaBound{}), r.InputBound(chat.MediaBound{}); got < tokens || bound < got {
			t.Errorf("%s: %d tokens of at most %d, want at least %d", name, got, bound, tokens)
		}
	}
}

func TestAnEscapedPictureTakesNoTextAway(t *testing.T) {
	body := func(picture string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("word", 1000) +
			`"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + picture + `"}}]}]}`
	}
	var got [2]int64
	for i, picture := range []string{strings.Repeat("A", 4000), strings.Repeat(`\u0041`, 4000)} {
		r := parse(t, body(picture))
		got[i] = r.InputEstimate(chat.MediaBound{})
	}
	if got[0] != got[1] || got[0] < 3000 { // 1,000 of text and 2,000 of a picture
		t.Errorf("%d tokens, and %d as it is", got[1], got[0])
	}
}
