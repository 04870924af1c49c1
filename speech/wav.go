package speech

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// PCM is how samples lie in the bytes of a WAV file.
type PCM struct {
	Channels int
	Rate     int // samples per second
	Bits     int // of one sample
}

// unknown is the length of a WAV file that is not known when it begins.
const unknown = 0xFFFFFFFF

// Header is the head of a WAV file whose length is not known: whoever plays it
// reads to its end.
func (p PCM) Header() []byte {
	frame := p.Channels * p.Bits / 8
	h := make([]byte, 0, 44)
	h = append(h, "RIFF"...)
	h = binary.LittleEndian.AppendUint32(h, unknown)
	h = append(h, "WAVEfmt "...)
	h = binary.LittleEndian.AppendUint32(h, 16)
	h = binary.LittleEndian.AppendUint16(h, 1) // PCM
	h = binary.LittleEndian.AppendUint16(h, uint16(p.Channels))
	h = binary.LittleEndian.AppendUint32(h, uint32(p.Rate))
	h = binary.LittleEndian.AppendUint32(h, uint32(p.Rate*frame))
	h = binary.LittleEndian.AppendUint16(h, uint16(frame))
	h = binary.LittleEndian.AppendUint16(h, uint16(p.Bits))
	h = append(h, "data"...)
	return binary.LittleEndian.AppendUint32(h, unknown)
}

// Checked reads a WAV file as it is, of which start are the first bytes and r is
// all of it. A file that is shorter than it says ends in io.ErrUnexpectedEOF.
func Checked(start []byte, r io.Reader) io.Reader {
	if len(start) < 8 {
		return r
	}
	size := binary.LittleEndian.Uint32(start[4:])
	if size == 0 || size >= absurd {
		return r
	}
	return &atLeast{r, int64(size) + 8}
}

// absurd is a length that says that the length is not known, as 0 does.
const absurd = 0x7FFF0000

// atLeast reads a file that may be longer than it says, and not shorter.
type atLeast struct {
	r    io.Reader
	left int64
}

// Read reads on.
func (a *atLeast) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	a.left -= int64(n)
	if err == io.EOF && a.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Samples reads the head of a WAV file from r and returns how its samples lie
// and a reader of them alone. A file that is shorter than its head says ends in
// io.ErrUnexpectedEOF.
func Samples(r io.Reader) (PCM, io.Reader, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return PCM{}, nil, whole(err)
	}
	if string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return PCM{}, nil, errors.New("it is no WAV file")
	}
	var p PCM
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(r, chunk[:]); err != nil {
			return p, nil, whole(err)
		}
		size := binary.LittleEndian.Uint32(chunk[4:])
		if string(chunk[:4]) == "data" {
			return p, samples(r, size), p.check()
		}
		if err := p.chunk(r, string(chunk[:4]), int64(size)); err != nil {
			return p, nil, err
		}
	}
}

// chunk reads a part of the head.
func (p *PCM) chunk(r io.Reader, name string, size int64) error {
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

func (p PCM) check() error {
	if p.Channels < 1 || p.Channels > 2 || p.Rate < 1000 || p.Rate > 384_000 || p.Bits < 8 || p.Bits > 32 || p.Bits%8 != 0 {
		return fmt.Errorf("its samples are of an unknown form: %d channels of %d bits, %d a second", p.Channels, p.Bits, p.Rate)
	}
	return nil
}

// samples are the bytes of the data chunk. Who streams a file cannot know its
// length, and writes the largest one or none.
func samples(r io.Reader, size uint32) io.Reader {
	if size == 0 || size >= absurd {
		return r
	}
	return &exactly{r, int64(size)}
}

// exactly reads so many bytes, and fails if there are fewer.
type exactly struct {
	r    io.Reader
	left int64
}

// Read reads what is left. After the last byte it reads on to the end, so that
// whatever follows the samples does not stay in a connection.
func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		_, err := io.Copy(io.Discard, e.r)
		if err == nil {
			err = io.EOF
		}
		return 0, err
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == io.EOF && e.left > 0 {
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
