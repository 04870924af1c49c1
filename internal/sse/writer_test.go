package sse

import (
	"io"
	"strings"
	"testing"
)

func TestEventsAreWrittenInOneForm(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"", "{}", "data: {}\n\n"},
		{"", "", "data: \n\n"},
		{"", " x", "data:  x\n\n"},
		{"ping", "{}", "event: ping\ndata: {}\n\n"},
		{"", "a\nb\r\nc\rd\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"", "a\r\r\n\nb", "data: a\ndata: \ndata: \ndata: b\n\n"},
		{"e\ndata: forged", "x", "event: e\ndata: x\n\n"},
		{"\rdata: forged", "x", "data: x\n\n"},
	} {
		if got := string(AppendEvent([]byte("before"), tt.name, []byte(tt.data))); got != "before"+tt.want {
			t.Errorf("%q, %q: got %q", tt.name, tt.data, got)
		}
	}
	if got := string(AppendData(nil, []byte("a\nb"))); got != "data: a\ndata: b\n\n" {
		t.Errorf("AppendData gives %q", got)
	}
}

func FuzzWhatIsWrittenIsReadAgain(f *testing.F) {
	f.Add("", "[DONE]")
	f.Add("message_start", `{"type":"message_start"}`)
	f.Add("e\rx", "a\r\n\r\nb\n")
	f.Add("", " ")
	f.Fuzz(func(t *testing.T, name, data string) {
		events, err := readAll(strings.NewReader(string(AppendEvent(nil, name, []byte(data)))), 0)
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n")
		name, _, _ = strings.Cut(lines.Replace(name), "\n")
		if isBlank([]byte(lines.Replace(data))) { // which a reader passes over
			if err != io.EOF || len(events) != 0 {
				t.Errorf("%q, %q came back as %q, %v", name, data, events, err)
			}
			return
		}
		if err != io.EOF || len(events) != 1 || events[0] != (got{name, lines.Replace(data)}) {
			t.Errorf("%q, %q came back as %q, %v", name, data, events, err)
		}
	})
}
