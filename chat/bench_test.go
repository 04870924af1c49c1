package chat

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkParse reads a small request, and a long conversation with tools.
func BenchmarkParse(b *testing.B) {
	var long strings.Builder
	long.WriteString(`{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}],"messages":[{"role":"system","content":"You are helpful."}`)
	for i := range 40 {
		fmt.Fprintf(&long, `,{"role":"user","content":[{"type":"text","text":"%s"}]}`, strings.Repeat("The quick brown fox. ", 50))
		fmt.Fprintf(&long, `,{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"}}]}`, i)
	}
	long.WriteString(`]}`)
	for _, c := range []struct{ name, body string }{
		{"small", `{"model":"gpt-5","temperature":0.7,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"Say hi."}],"max_tokens":1024,"user":"customer-17"}`},
		{"conversation", long.String()},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := []byte(c.body)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
