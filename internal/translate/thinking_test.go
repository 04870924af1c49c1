package translate

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/messages"
)

// throughTap translates a chat stream, passes it through a tap, and returns what
// the client gets.
func throughTap(t *testing.T, r *messages.Request, tap *messagesapi.Tap, chat io.Reader) (string, error) {
	t.Helper()
	events := sse.NewReader(fromChatStream(r, io.NopCloser(chat)), 0)
	defer events.Release()
	var out []byte
	for {
		e, err := events.Next()
		if err != nil {
			return string(out), err
		}
		if out, _, err = tap.Event(out, e.Name, e.Data); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThoughtsThatNobodyAskedForAreProgressButNotShown(t *testing.T) {
	r := asked(t).Request
	s := fromChatStream(r, io.NopCloser(iotest.OneByteReader(strings.NewReader(
		chunks(delta(`"reasoning_content":"one"`), delta(`"reasoning":"twos"`), delta(`"reasoning_content":"three","content":"a"`))))))
	buf, got := make([]byte, 64<<10), ""
	for range 3 {
		n, err := s.Read(buf) // one for each chunk, or it would wait for the next
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	if strings.Count(got, "event: gateway.hidden\n") != 3 || strings.Contains(got, "one") || strings.Contains(got, "two") || strings.Contains(got, "three") {
		t.Errorf("read %q", got)
	}
	if thought, err := streamed(thinker(), strings.NewReader(chunks(delta(`"reasoning_content":"one"`), finish("stop"), done))); err != nil || strings.Contains(thought, hiddenEvent) {
		t.Errorf("of a thought that is shown: %q, %v", thought, err)
	}
}

func TestAClientThatLeavesDuringAHiddenThoughtPaysForIt(t *testing.T) {
	const thought = "Ünseen \"words\" 思考\n"
	quarters := tokencount.StringQuarters(rawjson.Quote(nil, thought))
	gone := errors.New("gone")
	r := asked(t)
	tap := r.NewTap(messagesapi.TapOptions{})
	piece := delta(`"reasoning_content":` + string(rawjson.Quote(nil, thought)))
	got, err := throughTap(t, r.Request, tap, io.MultiReader(strings.NewReader(chunks(piece, piece)), iotest.ErrReader(gone)))
	if !errors.Is(err, gone) {
		t.Fatal(err)
	}
	want := tokencount.Tokens(2 * quarters)
	if u := tap.Usage(); u.Output != want || !u.Estimated || tap.Output() != want {
		t.Errorf("charged %+v, output %d; want %d", u, tap.Output(), want)
	}
	if strings.Count(got, "event: ") != 1 || !strings.Contains(got, "event: message_start\n") {
		t.Errorf("the client got %q", got)
	}
}

func TestAWholeStreamWithAHiddenThoughtIsChargedAsReported(t *testing.T) {
	r := asked(t)
	tap := r.NewTap(messagesapi.TapOptions{})
	got, err := throughTap(t, r.Request, tap, strings.NewReader(chunks(delta(`"reasoning_content":"`+strings.Repeat("hm ", 99)+`"`), delta(`"content":"a"`), finish("stop"), counts, done)))
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if u := tap.Usage(); u.Output != 3 || u.Estimated {
		t.Errorf("charged %+v", u)
	}
	if strings.Contains(got, hiddenEvent) || !strings.Contains(got, `"text":"a"`) {
		t.Errorf("the client got %q", got)
	}
}

func TestASignatureThatDoesNotFitItsThoughtIsNotSent(t *testing.T) {
	for _, tt := range []struct{ text, pieces string }{
		{"a", ""}, {"", "t1.0."}, {"a", "t2.0."}, {"ab", "t1.0."}, {"a", "t1.4.sig"}, {"a", "t1.3.sigx"}, {"a", "t-1.0."},
		{"a", "t1"}, {"a", "t1."}, {"a", "t1.."}, {"a", "t.0."}, {"a", "t99999999999999999999.0."}, {"", "r3.ab"}, {"", "x0."}, {"", "r"},
	} {
		if blocks, ok := thinkingBlocks(tt.text, tt.pieces); ok {
			t.Errorf("%q, %q: %+v", tt.text, tt.pieces, blocks)
		}
	}
}

func FuzzSignedThoughts(f *testing.F) {
	f.Add("héa", "t3.3.sigr4.datat1.0.")
	f.Add("", "t0.1.s")
	f.Add("a", "t5.0.")
	f.Fuzz(func(t *testing.T, text, pieces string) {
		blocks, ok := thinkingBlocks(text, pieces)
		if !ok {
			return
		}
		var again []byte
		joined := ""
		for _, b := range blocks {
			joined += b.Thinking
			p := &piece{kind: redacted, text: rawjson.Quote(nil, b.Data)}
			if b.Type == "thinking" {
				p = &piece{kind: signed, size: len(b.Thinking), text: rawjson.Quote(nil, *b.Signature)}
			}
			again = appendSigned(again, p)
		}
		restored, ok := thinkingBlocks(joined, string(again))
		if joined != text || !ok || !reflect.DeepEqual(restored, blocks) {
			t.Errorf("%q, %q: %v and then %v", text, pieces, blocks, restored)
		}
	})
}

func TestAnEmptyThoughtKeepsItsText(t *testing.T) {
	blocks, ok := thinkingBlocks("", "t0.1.s")
	raw, err := json.Marshal(blocks)
	if err != nil || !ok || !bytes.Contains(raw, []byte(`"thinking":""`)) {
		t.Errorf("%s, %v", raw, err)
	}
}
