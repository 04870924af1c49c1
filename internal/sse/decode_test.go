package sse

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tollhouse-ai/gateway/fault"
)

// source counts how often it was closed.
type source struct {
	io.Reader
	closed int
}

func (s *source) Close() error {
	s.closed++
	return nil
}

var errUnread = errors.New("unread")

// word is the data of an event, but for two words.
func word(e Event) (*string, error) {
	text := string(e.Data)
	switch text {
	case "skip":
		return nil, nil
	case "bad":
		return nil, errUnread
	}
	return &text, nil
}

func TestEventsAreDecodedUntilTheEndOrTheFirstError(t *testing.T) {
	cut := errors.New("cut")
	for name, row := range map[string]struct {
		rest io.Reader
		want string
		err  error
	}{
		"to the end":      {strings.NewReader("data: c\n\n"), "a b c", nil},
		"to a bad event":  {strings.NewReader("data: bad\n\ndata: d\n\n"), "a b", errUnread},
		"to a bad source": {iotest.ErrReader(cut), "a b", cut},
	} {
		s := &source{Reader: io.MultiReader(strings.NewReader("data: a\n\ndata: skip\n\ndata: b\n\n"), row.rest)}
		var got []string
		var last error
		for w, err := range Decode(s, word) {
			if last = err; err == nil {
				got = append(got, *w)
			}
		}
		if text := strings.Join(got, " "); text != row.want || !errors.Is(last, row.err) || s.closed != 1 {
			t.Errorf("%s: %s, %v, closed %d times", name, text, last, s.closed)
		}
		if row.err == cut && fault.From(last) != last {
			t.Errorf("%s: %v is no fault", name, last)
		}
	}
}

func TestBreakingOutOfTheLoopClosesTheSource(t *testing.T) {
	s := &source{Reader: strings.NewReader("data: a\n\ndata: b\n\n")}
	for range Decode(s, word) {
		break
	}
	if s.closed != 1 {
		t.Errorf("closed %d times", s.closed)
	}
}
