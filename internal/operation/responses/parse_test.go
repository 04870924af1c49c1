package responses

import (
	"testing"

	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
)

func TestReadingABodyTakesASmallMultipleOfItsSize(t *testing.T) {
	const size = 4 << 20
	const head = `{"model":"m","input":[`
	for _, c := range []struct {
		name          string
		body          []byte
		param, reason string // of the refusal
	}{
		{"items", capabilitytest.Filled(size, head, `{"role":"user","content":"x"}`, `]}`), "input", "16384"},
		{"references", capabilitytest.Filled(size, head, `{"id":"x"            }`, `]}`), "input", "16384"},
		{"thoughts", capabilitytest.Filled(size, head, `{"type":"reasoning"   }`, `]}`), "input", "16384"},
		{"parts", capabilitytest.Filled(size, head+`{"role":"user","content":[`, `{"type":"input_text","text":""}`, `]}]}`), "input", "16384"},
		{"parts of an output", capabilitytest.Filled(size, head+`{"type":"function_call_output","call_id":"c","output":[`, `{"type":"input_text","text":""}`, `]}]}`), "input", "16384"},
		{"tools", capabilitytest.Filled(size, `{"model":"m","input":"x","tools":[`, `{"type":"web_search"  }`, `]}`), "tools", "16384"},
		{"tools of an item", capabilitytest.Filled(size, head+`{"type":"additional_tools","tools":[`, `{"type":"web_search"  }`, `]}]}`), "input[0].tools", "16384"},
		{"tools of a namespace", capabilitytest.Filled(size, `{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[`, `{"type":"web_search"  }`, `]}]}`), "tools[0].tools", "16384"},
		{"a schema of a tool", capabilitytest.Filled(size, `{"model":"m","input":"x","tools":[{"type":"function","name":"x","parameters":{"enum":[`, `{"a":"bcdefghi"}`, `]}}]}`), "tools[0].parameters", "262144"},
		{"what is included", capabilitytest.Filled(size, `{"model":"m","input":"x","include":[`, `"a"        `, `]}`), "include", "64"},
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
