package messagesapi

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

func TestAVendorsOwnHiddenEventIsWorthAtMostItsBytes(t *testing.T) {
	for data, quarters := range map[string]int64{
		`{"type":"gateway.hidden","hidden":1000000}`:                                0,
		`{"type":"gateway.hidden","hidden":"1000000"}`:                              7,
		`{"type":"gateway.hidden"}`:                                                 0,
		`{"type":"content_block_delta","delta":{"type":"text_delta","text":"abc"}}`: 0,
		`{"type":"message_stop"}`:                                                   0,
		`{"type":"message_delta","usage":{"output_tokens":1000000}}`:                0,
	} {
		tap := tapped(t)
		pass(t, tap, starts)
		out, done, err := tap.Event(nil, hiddenEvent, []byte(data))
		if len(out) > 0 || done || err != nil || tap.Output() != tokencount.Tokens(quarters) {
			t.Errorf("%s: %q, %t, %v, output %d", data, out, done, err, tap.Output())
		}
	}
	tap := tapped(t)
	if got := pass(t, tap, starts, wire{"ping", `{"type":"ping","hidden":"....."}`}, wire{"ping", `{"type":"ping","hidden":5}`}); tap.Output() != 0 || strings.Count(got, `"hidden"`) != 2 {
		t.Errorf("a ping was believed: output %d, %q", tap.Output(), got)
	}
	if got := pass(t, tap, wire{"", `{"type":"gateway.hidden","hidden":"...."}`}); got != "" || tap.Output() != 1 {
		t.Errorf("without an event line: %q, output %d", got, tap.Output())
	}
}

func TestALongHiddenThoughtFitsIntoEvents(t *testing.T) {
	const most = 100 << 10 // bytes of one event
	thought := strings.Repeat("思", 200<<10)
	tap := tapped(t)
	events := sse.NewReader(strings.NewReader(string(AppendHidden(nil, rawjson.Quote(nil, thought)))), most)
	defer events.Release()
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pass(t, tap, wire{e.Name, string(e.Data)})
	}
	if got := tap.Output(); got != 200<<10 {
		t.Error(fmt.Sprint(got, " tokens"))
	}
}

func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}
