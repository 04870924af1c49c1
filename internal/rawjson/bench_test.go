package rawjson

import (
	"fmt"
	"strings"
	"testing"
)

// chatBody is a chat request of at least size bytes: many messages of 1 to 2 KiB.
func chatBody(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"gpt-5","temperature":0.7,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"You are helpful."}`)
	for i := 0; b.Len() < size-100; i++ {
		text := strings.Repeat("The quick brown fox jumps over the lazy dog; naïve café.\\n", 18+i%16)
		fmt.Fprintf(&b, `,{"role":"user","content":"%s"}`, text)
	}
	b.WriteString(`],"max_tokens":1024,"user":"customer-17"}`)
	return []byte(b.String())
}

const chunk = `{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1-2025-04-14","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null}`

func BenchmarkIndexOfABodyOf64KiB(b *testing.B) {
	body := chatBody(64 << 10)
	rules := &Rules{Unique: true, Billed: []string{"model", "n", "max_tokens", "max_completion_tokens", "stream", "duration", "resolution", "aspect_ratio", "frames", "draft", "generate_audio", "size", "quality", "input", "parameters"}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Index(body, rules, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSkipOfALongString is one string of 64 KiB: of plain English, of lines as
// programs have them, and of Chinese.
func BenchmarkSkipOfALongString(b *testing.B) {
	for name, text := range map[string]string{
		"English": "The road was wet and the wheels were loud. ",
		"prose":   `The road was wet and the wheels were loud. \"What do I pay?\" asked the driver, who had come a long way.\n\nNobody answered him at once. `,
		"program": `\tif err != nil {\n\t\treturn fmt.Errorf(\"read: %w\", err)\n\t}\n`,
		"Chinese": "道路潮湿，车轮声很响。",
	} {
		b.Run(name, func(b *testing.B) {
			src := []byte(`"` + strings.Repeat(text, 64<<10/len(text)) + `"`)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				r := NewReader(src)
				if _, err := r.Skip(); err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
}

func BenchmarkIndexOfAChunk(b *testing.B) {
	src := []byte(chunk)
	var o Object
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if err := IndexInto(&o, src, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSkipOfAResponse is a response that has begun, with and without bounds of what it
// may hold.
func BenchmarkSkipOfAResponse(b *testing.B) {
	src := []byte(`{"id":"resp_1","object":"response","created_at":1700000000,"status":"in_progress","error":null,"incomplete_details":null,"instructions":null,` +
		`"max_output_tokens":200,"model":"vendor-model","output":[],"parallel_tool_calls":true,"previous_response_id":null,"store":false,` +
		`"temperature":0.5,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled","usage":null,"user":null,"metadata":{}}`)
	for name, bounds := range map[string]Bounds{"at once": {}, "token by token": {Tokens: 1 << 30}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				r := NewReader(src)
				r.bounds = bounds
				if _, err := r.Skip(); err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
}
