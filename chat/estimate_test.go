package chat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/roomtest"
)

func TestTheInputBoundIsABodysBytesAndItsMedia(t *testing.T) {
	const link = `"https://example.com/a"`
	picture := `{"type":"image_url","image_url":{"url":` + link + `}}`
	for _, row := range []struct {
		blocks string
		b      MediaBound
		hidden int // bytes that are not text
		more   int64
	}{
		{`{"type":"text","text":"hi"}`, MediaBound{}, 0, 0},
		{picture, MediaBound{}, len(link), 2_000},
		{picture + "," + picture, MediaBound{Image: 7}, 2 * len(link), 14},
		{`{"type":"video_url","video_url":{"url":` + link + `}}`, MediaBound{Image: 7}, len(link), 50_000},
		{`{"type":"file","file":{"file_data":"AAAA"}}`, MediaBound{Video: 9}, len(`{"file_data":"AAAA"}`), 9},
		{`{"type":"input_audio","input_audio":{}},` + picture, MediaBound{Video: 9, Image: 1}, 2 + len(link), 10},
	} {
		body := `{"model":"m","messages":[{"role":"user","content":[` + row.blocks + `]}]}`
		r, err := Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		roomtest.Bounded(t, row.blocks, r, row.b, int64(len(body)-row.hidden)+row.more, row.more)
	}
}

func TestAnEstimateCountsWhatThePromptHolds(t *testing.T) {
	estimate := func(message, members string) int64 {
		t.Helper()
		r, err := Parse([]byte(fmt.Sprintf(`{"model":"m","messages":[%s]%s}`, message, members)))
		if err != nil {
			t.Fatal(err)
		}
		return r.InputEstimate(MediaBound{})
	}
	short := estimate(`{"role":"user","content":"hi"}`, "")
	for name, more := range map[string]int64{
		"longer text":    estimate(`{"role":"user","content":"`+strings.Repeat("word", 10)+`"}`, ""),
		"other scripts":  estimate(`{"role":"user","content":"語語"}`, ""),
		"a message more": estimate(`{"role":"user","content":"hi"},{"role":"user","content":"hi"}`, ""),
		"a tool call":    estimate(`{"role":"assistant","content":"hi","tool_calls":[{"function":{"name":"lookup","arguments":"{}"}}]}`, ""),
		"tools":          estimate(`{"role":"user","content":"hi"}`, `,"tools":[{"type":"function","function":{"name":"f"}}]`),
	} {
		if more <= short {
			t.Errorf("%s: %d tokens, without it %d", name, more, short)
		}
	}
	if a, b := estimate(`{"role":"user","content":"語"}`, ""), estimate(`{"role":"user","content":"\u8a9e"}`, ""); a != b {
		t.Errorf("an escaped character counts %d, a plain one %d", b, a)
	}
}

func TestADataURLIsNotCountedAsText(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}]}]}`
	r, err := Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if bound, estimate := r.InputBound(MediaBound{}), r.InputEstimate(MediaBound{}); bound > 2_200 || estimate > 2_100 {
		t.Errorf("bound %d, estimate %d", bound, estimate)
	}
}
