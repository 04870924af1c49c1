package chat

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tollhouse-ai/gateway/fault"
)

// streamOf is a stream of the text, and how often it was closed.
func streamOf(r io.Reader) (*Stream, *int) {
	closed := new(int)
	return NewStream("req_1", stubSource{r, func() error { *closed++; return nil }}), closed
}

func TestAStreamEndsWithTheErrorThatEndedIt(t *testing.T) {
	cut := errors.New("cut")
	for _, row := range []struct {
		name string
		r    io.Reader
		code fault.Code
		text string
	}{
		{"an error event", strings.NewReader("data: {\"error\":{\"message\":\"Sold out.\",\"type\":\"api_error\",\"code\":\"BadGateway\",\"param\":null}}\n\n"), fault.BadGateway, "Sold out."},
		{"no chunk", strings.NewReader("data: [1]\n\n"), fault.BadGateway, "not of the chat completion form"},
		{"a broken source", iotest.ErrReader(fault.Wrap(fault.RequestTimeout, "Late.", cut)), fault.RequestTimeout, "Late."},
		{"another error", iotest.ErrReader(cut), fault.InternalError, "The gateway failed"},
	} {
		s, closed := streamOf(io.MultiReader(strings.NewReader("data: "+says("a")+"\n\n"), row.r))
		var texts []string
		var last error
		for c, err := range s.Chunks() {
			if err != nil {
				last = err
				continue
			}
			texts = append(texts, c.Choices[0].Delta.Content.String())
		}
		var f *fault.Error
		if !errors.As(last, &f) || f.Code != row.code || !strings.Contains(f.Message, row.text) || len(texts) != 1 || *closed == 0 {
			t.Errorf("%s: %v, %q, closed %d times", row.name, last, texts, *closed)
		}
	}
}

func TestBreakingOutOfTheLoopClosesTheStream(t *testing.T) {
	s, closed := streamOf(strings.NewReader(strings.Repeat("data: "+says("a")+"\n\n", 3)))
	for range s.Chunks() {
		break
	}
	if *closed != 1 {
		t.Errorf("closed %d times", *closed)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAChunkKeepsItsBytesBesideItsFields(t *testing.T) {
	sent := `{"id":"a","choices":[{"index":0,"delta":{"content":"a","x":1.0},"finish_reason":"stop","y":2.0}],"z":1e400}`
	s, _ := streamOf(strings.NewReader("data: " + sent + "\n\n" + Terminator))
	for c, err := range s.Chunks() {
		if err != nil || string(c.Raw) != sent {
			t.Fatalf("%s, %v", c.Raw, err)
		}
		choice := c.Choices[0]
		if string(c.Extra) != `{"z":1e400}` || string(choice.Extra) != `{"y":2.0}` || string(choice.Delta.Extra) != `{"x":1.0}` || choice.FinishReason != "stop" {
			t.Errorf("%+v", c)
		}
		again, err := marshal(choice)
		if want := `{"index":0,"delta":{"content":"a","x":1.0},"finish_reason":"stop","y":2.0}`; err != nil || string(again) != want {
			t.Errorf("%s, %v", again, err)
		}
	}
}
