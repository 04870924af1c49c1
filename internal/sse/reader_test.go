package sse

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
)

// got is an event that outlives its Reader.
type got struct{ Name, Data string }

func readAll(src io.Reader, limit int) ([]got, error) {
	r := NewReader(src, limit)
	defer r.Release()
	var all []got
	for {
		e, err := r.Next()
		if err != nil {
			return all, err
		}
		all = append(all, got{e.Name, string(e.Data)})
	}
}

// dialects are streams as vendors and proxies write them.
var dialects = []struct {
	name, stream string
	want         []got
}{
	{"nothing", "", nil},
	{"line feeds", "data: {\"a\":1}\n\ndata: [DONE]\n\n", []got{{"", `{"a":1}`}, {"", "[DONE]"}}},
	{"carriage returns and line feeds", "data: a\r\n\r\ndata: b\r\n\r\n", []got{{"", "a"}, {"", "b"}}},
	{"carriage returns", "data: a\r\rdata: b\r\r", []got{{"", "a"}, {"", "b"}}},
	{"mixed line ends", "data: a\r\n\rdata: b\r\n\ndata: c\n\r\ndata: d\r\n\r\n", []got{{"", "a"}, {"", "b"}, {"", "c"}, {"", "d"}}},
	{"a byte order mark", "\xef\xbb\xbfdata: a\n\n", []got{{"", "a"}}},
	{"a byte order mark later on", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []got{{"", "a"}}},
	{"a byte order mark on a blank line", "\xef\xbb\xbf\ndata: a\n\n", []got{{"", "a"}}},
	{"no space after the colon", "data:a\n\ndata:  b\n\n", []got{{"", "a"}, {"", " b"}}},
	{"several data lines", "data: a\ndata:\ndata\ndata: b\n\n", []got{{"", "a\n\n\nb"}}},
	{"empty data first", "data:\n\ndata: x\n\n", []got{{"", "x"}}},
	{"empty data between", "data: x\n\ndata: \n\ndata\n\ndata: y\n\n", []got{{"", "x"}, {"", "y"}}},
	{"empty data with a name, whose next event has none", "event: ping\ndata:\n\ndata: x\n\n", []got{{"", "x"}}},
	{"empty data with the name of all", "event: a\ndata: x\n\nevent: a\ndata: \n\nevent: a\ndata: y\n\n", []got{{"a", "x"}, {"a", "y"}}},
	{"a document", "{\"a\":1,\n\"b\":2}\n", []got{{"", "{\"a\":1,\n\"b\":2}\n"}}},
	{"a document behind white space and a byte order mark", "\xef\xbb\xbf \r\n\t{\"a\":1}", []got{{"", `{"a":1}`}}},
	{"a list", "\n[1]", []got{{"", "[1]"}}},
	{"a document with events in it", "{\n\ndata: x\n\n}", []got{{"", "{\n\ndata: x\n\n}"}}},
	{"brackets later on", ": hi\n{\"a\":1}\ndata: x\n\n<\n[\n\n", []got{{"", "x"}}},
	{"several empty data lines", "data:\ndata:\n\ndata: x\n\n", []got{{"", "x"}}},
	{"data of white space", "data: x\n\ndata:  \n\ndata: \t \n\ndata: y\n\n", []got{{"", "x"}, {"", "y"}}},
	{"empty data last", "data: [DONE]\n\ndata:\n\n", []got{{"", "[DONE]"}}},
	{"names", "event: ping\ndata: {}\n\ndata: x\nevent: late\n\ndata: y\n\n", []got{{"ping", "{}"}, {"late", "x"}, {"", "y"}}},
	{"the last name counts", "event: a\nevent:b\ndata: x\n\n", []got{{"b", "x"}}},
	{"a name without data", "event: ping\n\ndata: x\n\n", []got{{"", "x"}}},
	{"comments and other fields", ": hi\n\n:\nid: 7\nretry: 10\n\nid: 8\ndata: x\n: y\nnonsense\nfoo: bar\n\n", []got{{"", "x"}}},
	{"names that only look like data", "Data: a\n data: b\ndatas: c\ndata : d\n\n", nil},
	{"many blank lines", "\n\n\n\r\r\ndata: x\n\n\n\n\ndata: y\n\n", []got{{"", "x"}, {"", "y"}}},
	{"a colon in the data", "data: a: b\n\n", []got{{"", "a: b"}}},
	{"no blank line at the end", "data: x\n\ndata: [DONE]\n", []got{{"", "x"}, {"", "[DONE]"}}},
	{"no line end at the end", "data: x\n\nevent: e\ndata:{\"a\":1}", []got{{"", "x"}, {"e", `{"a":1}`}}},
	{"nothing but the end mark", "\xef\xbb\xbfdata: [DONE]", []got{{"", "[DONE]"}}},
	{"cut data", "data: x\n\ndata: {\"a\":1", []got{{"", "x"}}},
	{"cut end mark", "data: x\n\ndata: [DON", []got{{"", "x"}}},
	{"cut between data lines", "data: x\n\ndata: y\n", []got{{"", "x"}}},
}

func TestEveryDialectGivesItsEventsHoweverTheBytesArrive(t *testing.T) {
	arrivals := map[string]func(io.Reader) io.Reader{
		"at once":              func(r io.Reader) io.Reader { return r },
		"byte by byte":         iotest.OneByteReader,
		"in halves":            iotest.HalfReader,
		"with the end at once": iotest.DataErrReader,
	}
	for _, d := range dialects {
		for how, wrap := range arrivals {
			t.Run(d.name+" "+how, func(t *testing.T) {
				events, err := readAll(wrap(strings.NewReader(d.stream)), 0)
				if err != io.EOF {
					t.Errorf("the stream ends with %v, want io.EOF", err)
				}
				if diff := cmp.Diff(d.want, events); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestAPushedStreamGivesTheEventsOfOneThatIsRead(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				if diff := cmp.Diff(d.want, pushAll([]byte(d.stream), size)); diff != "" {
					t.Errorf("%d bytes at a time (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func TestAPushedEventIsHeldToTheLimit(t *testing.T) {
	const limit = 1000
	r := NewReader(nil, limit)
	defer r.Release()
	for range 10 * limit {
		r.Push([]byte("data: 123456789"))
		if r.Buffered() {
			t.Fatal("an event without an end")
		}
	}
	if _, err := r.Next(); !errors.Is(err, ErrTooLarge) || len(r.pooled.buf) > 4*limit {
		t.Errorf("the stream ends with %v, the buffer has %d bytes", err, len(r.pooled.buf))
	}
}

func TestAReaderSaysWhetherTheLastEventWasCut(t *testing.T) {
	for stream, want := range map[string]bool{
		"": false, "data: x\n\n": false, "data: [DONE]": false, "data: {\"a\":1}\n": false, "data: x\n\n: comment": false,
		"data: {\"a\":": true, "data: x": true, "data: x\n\ndata: [DON": true,
	} {
		r := NewReader(strings.NewReader(stream), 0)
		for err := error(nil); err == nil; {
			_, err = r.Next()
		}
		if r.Cut() != want {
			t.Errorf("%q: cut is %t", stream, r.Cut())
		}
		r.Release()
	}
}

func TestACutStreamNeverGivesAnEventThatItDidNotHave(t *testing.T) {
	stream := []byte("\xef\xbb\xbf: hi\r\n\r\ndata: {\"id\":\"a\",\"n\":12}\r\n\r\n" +
		"event: delta\ndata: {\"text\":\n\ndata: 12\n\ndata: {\ndata: \"x\":1\ndata: }\n\ndata: [DONE]\n\n")
	for _, sep := range []string{"\n", "\r", "\r\n"} {
		whole := bytes.ReplaceAll(bytes.ReplaceAll(stream, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte(sep))
		want, _ := readAll(bytes.NewReader(whole), 0)
		for at := range whole {
			events, err := readAll(iotest.OneByteReader(bytes.NewReader(whole[:at])), 0)
			if err != io.EOF || len(events) > len(want) {
				t.Fatalf("cut at %d: %d events, then %v", at, len(events), err)
			}
			if !slices.Equal(events, want[:len(events)]) {
				t.Fatalf("cut at %d: got %q, want %q", at, events, want[:len(events)])
			}
		}
	}
}

func TestAnEventMayBeAsLargeAsTheLimitAndNoLarger(t *testing.T) {
	for _, limit := range []int{1, 5000, 64 << 10, DefaultLimit} {
		for _, lineEnd := range []string{"\n", "\r", "\r\n"} {
			for over := -1; over <= 1; over++ {
				data := strings.Repeat("x", limit+over)
				stream := "data: first\n\nevent: e" + lineEnd + "data: " + data + lineEnd + lineEnd + "data: [DONE]\n\n"
				if limit < 5 {
					stream = stream[len("data: first\n\n"):]
				}
				events, err := readAll(strings.NewReader(stream), limit)
				switch {
				case over > 0 && !errors.Is(err, ErrTooLarge):
					t.Errorf("limit %d: %d bytes end with %v", limit, len(data), err)
				case over > 0 && limit > 5 && !slices.Equal(events, []got{{"", "first"}}):
					t.Errorf("limit %d: %d events before the one that is too large", limit, len(events))
				case over <= 0 && limit > 5 && (err != io.EOF || len(events) != 3 || events[1] != got{"e", data}):
					t.Errorf("limit %d: %d bytes give %d events, then %v", limit, len(data), len(events), err)
				}
			}
		}
	}
}

func TestTheLimitHoldsForWhatIsNotData(t *testing.T) {
	const limit = 20_000
	lines := strings.Repeat("data: 123456789\n", limit/10)
	for name, tt := range map[string]struct {
		stream string
		want   error
	}{
		"joined lines within it":   {lines + "\n", io.EOF},
		"joined lines over it":     {lines + "data\ndata\n\n", ErrTooLarge},
		"a comment without an end": {":" + strings.Repeat("x", limit+fieldSlack), ErrTooLarge},
		"a name over it":           {"event: " + strings.Repeat("x", limit+fieldSlack) + "\n", ErrTooLarge},
		"comments between data":    {"data: x\n" + strings.Repeat(": xxxx\n", limit) + "\n", io.EOF},
		"empty data lines":         {strings.Repeat("data\n", limit) + "\n", io.EOF},
	} {
		for how, src := range map[string]io.Reader{
			"at once": strings.NewReader(tt.stream), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.stream)),
		} {
			r := NewReader(src, limit)
			var err error
			for err == nil {
				_, err = r.Next()
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("%s, %s: ends with %v, want %v", name, how, err, tt.want)
			}
			if size := len(r.pooled.buf); size > 4*limit {
				t.Errorf("%s, %s: the buffer grew to %d bytes under a limit of %d", name, how, size, limit)
			}
		}
	}
}

// script answers each Read with one of its steps, and fails the test when it
// is read further.
type script struct {
	t     *testing.T
	steps []string
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.steps) == 0 {
		s.t.Fatal("the reader read on although a whole event was there")
	}
	n := copy(p, s.steps[0])
	s.steps = s.steps[1:]
	return n, nil
}

func TestAnEventIsGivenOutBeforeAnythingElseIsRead(t *testing.T) {
	for _, steps := range [][]string{
		{"data: x\n\n"},
		{"data: x\r\n\r\n"},
		{"data: x\r\n\r"}, // the line feed may never come
		{"data: x\r\r"},
		{"data: x", "\n", "\n"},
	} {
		r := NewReader(&script{t, steps}, 0)
		if e, err := r.Next(); err != nil || string(e.Data) != "x" {
			t.Errorf("%q gives %q, %v", steps, e.Data, err)
		}
	}
}

func TestALineFeedThatComesLateBelongsToItsCarriageReturn(t *testing.T) {
	r := NewReader(&script{t, []string{"data: x\r", "\ndata: y\r\n\r", "\n", "data: z\r\n\r"}}, 0)
	for _, want := range []string{"x\ny", "z"} {
		if e, err := r.Next(); err != nil || string(e.Data) != want {
			t.Errorf("got %q, %v, want %q", e.Data, err, want)
		}
	}
}

func TestBufferedTellsWhetherNextWouldRead(t *testing.T) {
	r := NewReader(&script{t, []string{"data: a\n\ndata: b\ndata: c\n\n: no event\n\ndata: d\n", "\n"}}, 0)
	if r.Buffered() {
		t.Error("something is buffered before the first read")
	}
	for i, want := range []struct {
		data     string
		buffered bool
	}{{"a", true}, {"b\nc", false}, {"d", false}} {
		e, err := r.Next()
		if buffered := r.Buffered(); buffered != want.buffered || r.Buffered() != buffered {
			t.Errorf("after event %d: Buffered is %t", i, buffered)
		}
		if err != nil || string(e.Data) != want.data {
			t.Errorf("event %d is %q, %v, want %q even after Buffered", i, e.Data, err, want.data)
		}
	}
}

func TestAFailureOfTheSourceComesAfterWhatWasComplete(t *testing.T) {
	boom := errors.New("boom")
	for name, src := range map[string]io.Reader{
		"after the bytes":     io.MultiReader(strings.NewReader("data: a\n\ndata: b\n\ndata: [DONE]\n"), iotest.ErrReader(boom)),
		"together with bytes": iotest.DataErrReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n\ndata: {}"), iotest.ErrReader(boom))),
	} {
		events, err := readAll(src, 0)
		if !errors.Is(err, boom) || !slices.Equal(events, []got{{"", "a"}, {"", "b"}}) {
			t.Errorf("%s: %v, then %v", name, events, err)
		}
	}
}

func TestErrorsAreFinal(t *testing.T) {
	r := NewReader(strings.NewReader("data: [DONE]"), 0)
	r.Next()
	for range 3 {
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	}
	r = NewReader(strings.NewReader("data: 123456\n\ndata: 1\n\n"), 5)
	for range 3 {
		if _, err := r.Next(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("after an event over the limit: %v", err)
		}
	}
}

func TestASourceThatGivesNothingIsGivenUp(t *testing.T) {
	r := NewReader(idle{}, 0)
	if _, err := r.Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestAReleasedReaderGivesNothing(t *testing.T) {
	r := NewReader(strings.NewReader("data: a\n\ndata: b\n\n"), 0)
	r.Next()
	r.Release()
	r.Release()
	if e, err := r.Next(); err == nil || r.Buffered() {
		t.Errorf("a released reader gave %q", e.Data)
	}
}

func TestABufferThatGrewLargeIsNotKept(t *testing.T) {
	for range 100 {
		if m := getBuffer(); len(m.buf) > maxPooledSize {
			t.Fatalf("a buffer of %d bytes came back", len(m.buf))
		}
		readAll(strings.NewReader("data: "+strings.Repeat("x", 2*maxPooledSize)+"\n\n"), 0)
	}
}

func TestTheNamesKeptAreBounded(t *testing.T) {
	m := &pooledBuffer{names: make(map[string]string)}
	for i := range 10 * maxNames {
		m.name(bytes.Repeat([]byte("n"), i))
	}
	if len(m.names) > maxNames {
		t.Errorf("%d names are kept", len(m.names))
	}
	for name := range m.names {
		if len(name) > maxNameLength {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
}

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

// budget notes what is reserved, and gives most bytes at the most.
type budget struct{ now, peak, kept, most int64 }

var errNoMemory = errors.New("no memory")

func (b *budget) Reserve(n int64) error {
	if n > b.most {
		return errNoMemory
	}
	b.now, b.peak = n, max(b.peak, n)
	return nil
}

func (b *budget) Keep() { b.kept = b.now }

func TestALargeEventTakesMemoryUntilItIsRead(t *testing.T) {
	const size = 3 << 20
	stream := "data: a\n\ndata: " + strings.Repeat("x", size) + "\n\ndata: b\n\n"
	memory := budget{most: 16 << 20}
	r := NewReader(io.MultiReader(strings.NewReader(stream), strings.NewReader("data: c\n\n")), 4<<20)
	defer r.Release()
	r.SetBudget(&memory)
	for _, want := range []int{1, size, 1, 1} {
		if e, err := r.Next(); err != nil || len(e.Data) != want {
			t.Fatalf("%d bytes, %v, want %d", len(e.Data), err, want)
		}
	}
	if memory.peak < 2*size || memory.kept != memory.peak || memory.now != 0 || len(r.pooled.buf) > unbudgeted {
		t.Errorf("%+v, and a buffer of %d bytes", memory, len(r.pooled.buf))
	}
}

func TestALargeEventWithoutMemoryEndsTheStream(t *testing.T) {
	memory := budget{most: 5 << 20}
	r := NewReader(strings.NewReader("data: a\n\ndata: "+strings.Repeat("x", 3<<20)+"\n\n"), 4<<20)
	r.SetBudget(&memory)
	if e, err := r.Next(); err != nil || string(e.Data) != "a" {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, errNoMemory) {
		t.Error(err)
	}
	if r.Release(); memory.now != 0 {
		t.Errorf("%+v is reserved after the end", memory)
	}
}
