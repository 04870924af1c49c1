package chat_test

import (
	stdjson "encoding/json"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/chat"
)

func TestMembersWithoutAFieldGoBothWaysInBothPackagesOfJSON(t *testing.T) {
	marshal := map[string]func(any) ([]byte, error){
		"encoding/json":      stdjson.Marshal,
		"go-json-experiment": func(v any) ([]byte, error) { return json.Marshal(v) },
	}
	unmarshal := map[string]func([]byte, any) error{
		"encoding/json":      stdjson.Unmarshal,
		"go-json-experiment": func(data []byte, v any) error { return json.Unmarshal(data, v) },
	}
	for _, c := range []struct {
		name string
		into func() any
		text string
	}{
		{"a message", func() any { return new(chat.Message) },
			`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}","x":1},"extra_content":{"s":"t"}}],"refusal":null,"annotations":[{"a":1}]}`},
		{"a message without others", func() any { return new(chat.Message) }, `{"role":"user","content":"Hi."}`},
		{"messages", func() any { return new([]chat.Message) }, `[{"role":"user","content":"Hi.","cache":true}]`},
		{"a request", func() any { return new(chat.Request) },
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","y":2}],"x":1}],"stream_options":{"include_usage":true,"z":3},"seed":7,"metadata":{"a":"b"}}`},
	} {
		for reader, read := range unmarshal {
			for writer, write := range marshal {
				v := c.into()
				if err := read([]byte(c.text), v); err != nil {
					t.Errorf("%s: %s: %v", c.name, reader, err)
					continue
				}
				got, err := write(v)
				if diff := cmp.Diff(c.text, string(got)); diff != "" || err != nil {
					t.Errorf("%s: read by %s, written by %s (%v): %s", c.name, reader, writer, err, diff)
				}
			}
		}
	}
	got, err := stdjson.Marshal(map[string]chat.Message{"m": {Role: "user", Content: chat.Text("Hi."), Extra: []byte(`{"x":1}`)}})
	if want := `{"m":{"role":"user","content":"Hi.","x":1}}`; string(got) != want || err != nil {
		t.Errorf("a value in a map: %s, %v, want %s", got, err, want)
	}
}
