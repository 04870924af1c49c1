package speech

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/speech"
)

func TestSamplesAreReadOfEveryWAV(t *testing.T) {
	form := speech.PCM{Channels: 1, Rate: 24_000, Bits: 16}
	head := WAVHeader(form)
	sized := func(size uint32) []byte { return binary.LittleEndian.AppendUint32(bytes.Clone(head[:40]), size) }
	for name, row := range map[string]struct {
		file []byte
		want string
		err  error
	}{
		"of unknown length":     {append(bytes.Clone(head), "abcd"...), "abcd", nil},
		"of length 0":           {append(sized(0), "abcd"...), "abcd", nil},
		"of its length":         {append(sized(4), "abcd"...), "abcd", nil},
		"with a trailing chunk": {append(sized(4), "abcdLIST"...), "abcd", nil},
		"with a leading chunk":  {append(append(append(bytes.Clone(head[:36]), "LIST\x03\x00\x00\x00xyz\x00"...), head[36:]...), "abcd"...), "abcd", nil},
		"cut":                   {append(sized(9), "abcd"...), "abcd", io.ErrUnexpectedEOF},
	} {
		got, r, err := Samples(bytes.NewReader(row.file))
		if err != nil || got != form {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		if data, err := io.ReadAll(r); string(data) != row.want || !errors.Is(err, row.err) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, bad := range []string{"", "RIFF", string(head[:30]), "RIFF\x00\x00\x00\x00AVI fmt ", strings.Replace(string(head), "\x01\x00\x01\x00", "\x07\x00\x01\x00", 1)} {
		if _, _, err := Samples(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestAFileIsNotShorterThanItSays(t *testing.T) {
	sized := func(size uint32, content string) []byte {
		return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), size), content...)
	}
	for name, row := range map[string]struct {
		file []byte
		err  error
	}{
		"as long":        {sized(4, "WAVE"), nil},
		"longer":         {sized(4, "WAVEabcd"), nil},
		"shorter":        {sized(8, "WAVE"), io.ErrUnexpectedEOF},
		"of length 0":    {sized(0, "WAVE"), nil},
		"of any length":  {sized(unknown, "WAVE"), nil},
		"cut at its end": {[]byte("RIFF"), nil},
	} {
		data, err := io.ReadAll(Checked(row.file, bytes.NewReader(row.file)))
		if !errors.Is(err, row.err) || !bytes.Equal(data, row.file) {
			t.Errorf("%s: got %q, %v, want %q, %v", name, data, err, row.file, row.err)
		}
	}
}

func TestFormatsAreToldByContentThenByType(t *testing.T) {
	for _, row := range []struct{ start, kind, want string }{
		{"RIFF....WAVEfmt ", "application/octet-stream", speech.WAV},
		{"ID3\x04", "audio/wav", speech.MP3},
		{"OggS", "", "opus"}, {"fLaC", "", "flac"},
		{"\xff\xfb\x90", "audio/mpeg", speech.MP3}, {"\xff\xfb\x90", "audio/mp3", speech.MP3},
		{"xxxx", "audio/x-wav", speech.WAV}, {"xxxx", "audio/vnd.wave; codecs=1", speech.WAV},
		{"{}", "application/json", ""}, {"xx", "", ""},
	} {
		if got := FormatOf([]byte(row.start), row.kind); got != row.want {
			t.Errorf("%q of %q is %q, want %q", row.start, row.kind, got, row.want)
		}
	}
}
func TestTheRefusalOfAnMP3SaysWhatToAskFor(t *testing.T) {
	f := fault.From(CannotEncode(nil))
	const want = `This model gives WAV, and this server cannot make an MP3 of it: ask for "response_format": "wav".`
	if f.Message != want || f.Param != "response_format" || f.HTTPStatus() != 400 {
		t.Errorf("%+v", f)
	}
}
