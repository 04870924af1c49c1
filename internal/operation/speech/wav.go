package speech

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"

	"github.com/tollhouse-ai/gateway/speech"
)

var formats = []string{speech.MP3, "opus", "aac", "flac", speech.WAV, "pcm"}

// ContentTypes of the formats, by which an answer says what it is.
var contentTypes = map[string]string{
	speech.MP3: "audio/mpeg", speech.WAV: "audio/wav", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "pcm": "audio/pcm",
}

// ContentType returns the media type of a format, or application/octet-stream if the format is
// unknown.
func ContentType(format string) string {
	if t := contentTypes[format]; t != "" {
		return t
	}
	return "application/octet-stream"
}

// FormatOf is the format of audio by its first bytes, else by the content
// type that it came with; empty if neither is audio.
func FormatOf(start []byte, contentType string) string {
	switch {
	case bytes.HasPrefix(start, []byte("RIFF")) && len(start) >= 12 && string(start[8:12]) == "WAVE":
		return speech.WAV
	case bytes.HasPrefix(start, []byte("ID3")):
		return speech.MP3
	case bytes.HasPrefix(start, []byte("OggS")):
		return "opus"
	case bytes.HasPrefix(start, []byte("fLaC")):
		return "flac"
	}
	return named(contentType)
}

// named is the format of a content type.
func named(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	name, audio := strings.CutPrefix(kind, "audio/")
	if !audio {
		return ""
	}
	return formatNames[strings.TrimPrefix(name, "x-")]
}

// formatNames are the formats by the names of media types "audio/…".
var formatNames = map[string]string{
	"mpeg": speech.MP3, "mp3": speech.MP3, "wav": speech.WAV, "wave": speech.WAV, "vnd.wave": speech.WAV,
	"ogg": "opus", "opus": "opus", "aac": "aac", "flac": "flac", "pcm": "pcm",
}

// unknown is the length of a WAV file that is not known when it begins.
const unknown = 0xFFFFFFFF

// WAVHeader is the head of a WAV file whose length is not known: a player
// reads to its end.
func WAVHeader(p speech.PCM) []byte {
	frame := p.Channels * p.Bits / 8
	le := binary.LittleEndian
	h := le.AppendUint32([]byte("RIFF"), unknown)
	h = le.AppendUint32(append(h, "WAVEfmt "...), 16)
	h = le.AppendUint16(le.AppendUint16(h, 1), uint16(p.Channels)) // of kind PCM
	h = le.AppendUint32(le.AppendUint32(h, uint32(p.Rate)), uint32(p.Rate*frame))
	h = le.AppendUint16(le.AppendUint16(h, uint16(frame)), uint16(p.Bits))
	return le.AppendUint32(append(h, "data"...), unknown)
}

// Checked returns a WAV file unchanged. start are its first bytes, and r is all of it. A file
// that is shorter than it says ends in io.ErrUnexpectedEOF.
func Checked(start []byte, r io.Reader) io.Reader {
	if len(start) < 8 {
		return r
	}
	return sized(r, binary.LittleEndian.Uint32(start[4:]), 8, false)
}

// Samples reads the head of a WAV file from r and returns the form of its samples
// and a reader of them alone. A file that is shorter than its head says ends in
// io.ErrUnexpectedEOF.
func Samples(r io.Reader) (speech.PCM, io.Reader, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return speech.PCM{}, nil, whole(err)
	}
	if string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return speech.PCM{}, nil, errors.New("it is no WAV file")
	}
	var p speech.PCM
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(r, chunk[:]); err != nil {
			return p, nil, whole(err)
		}
		size := binary.LittleEndian.Uint32(chunk[4:])
		if string(chunk[:4]) == "data" {
			return p, sized(r, size, 0, true), check(p)
		}
		if err := readChunk(&p, r, string(chunk[:4]), int64(size)); err != nil {
			return p, nil, err
		}
	}
}

// readChunk reads a part of the head.
func readChunk(p *speech.PCM, r io.Reader, name string, size int64) error {
	const most = 1 << 20 // of anything before the samples
	if size > most {
		return fmt.Errorf("a chunk %q of %d bytes stands before the samples", name, size)
	}
	data := make([]byte, size+size%2)
	if _, err := io.ReadFull(r, data); err != nil {
		return whole(err)
	}
	if name == "fmt " && size >= 16 {
		if kind := binary.LittleEndian.Uint16(data); kind != 1 && kind != 0xFFFE {
			return fmt.Errorf("its samples are of kind %d, not plain PCM", kind)
		}
		p.Channels = int(binary.LittleEndian.Uint16(data[2:]))
		p.Rate = int(binary.LittleEndian.Uint32(data[4:]))
		p.Bits = int(binary.LittleEndian.Uint16(data[14:]))
	}
	return nil
}

func check(p speech.PCM) error {
	if p.Channels < 1 || p.Channels > 2 || p.Rate < 1000 || p.Rate > 384_000 || p.Bits < 8 || p.Bits > 32 || p.Bits%8 != 0 {
		return fmt.Errorf("its samples are of an unknown form: %d channels of %d bits, %d a second", p.Channels, p.Bits, p.Rate)
	}
	return nil
}

// sized is a reader that fails if there are fewer bytes than size and those that
// stand before them. A program that streams a file cannot know its length, and
// writes the largest one or none: then r is read as it is.
func sized(r io.Reader, size uint32, before int64, exact bool) io.Reader {
	const absurd = 0x7FFF0000
	if size == 0 || size >= absurd {
		return r
	}
	return &sizedReader{r, before + int64(size), exact}
}

type sizedReader struct {
	r     io.Reader
	left  int64
	exact bool // what is more than the size is not given
}

// Read reads on. After the last byte of an exact size it reads to the end, so that
// whatever follows does not stay in a connection.
func (s *sizedReader) Read(p []byte) (int, error) {
	if s.exact {
		if s.left == 0 {
			_, err := io.Copy(io.Discard, s.r)
			if err == nil {
				err = io.EOF
			}
			return 0, err
		}
		p = p[:min(int64(len(p)), s.left)]
	}
	n, err := s.r.Read(p)
	s.left -= int64(n)
	if err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// whole makes the end of a file within its head an error.
func whole(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
