package sim

import (
	"crypto/sha256"
	"time"
)

// A simulated video is of so many macroblocks of 16 by 16 pixels, of which the
// last row shows only its upper half, and of so many pictures at most.
const (
	filmColumns = 8
	filmRows    = 5
	filmWidth   = filmColumns * 16
	filmHeight  = filmRows*16 - filmHidden
	filmHidden  = 8
	mostFrames  = 24
)

// film is an MP4 file with a pattern made of the hash of a text, whose cells
// change colour one after the other: H.264 without any compression but for
// cells that stay as they are, which every player takes. The same text and
// length has the same bytes.
func film(text string, length time.Duration) []byte {
	length = max(length, time.Second)
	frames := int(min(2*length/time.Second, mostFrames))
	hash := sha256.Sum256([]byte(text))
	samples := make([][]byte, frames)
	samples[0] = firstFrame(hash)
	for i := 1; i < frames; i++ {
		samples[i] = nextFrame(hash, i)
	}
	return mp4(samples, uint32(length.Milliseconds())/uint32(frames))
}

// colour is luma and two chromas.
type colour [3]byte

// cell is the colour of a macroblock, mirrored at the middle; turned gives it
// the other of the two colours.
func cell(hash [32]byte, at int, turned bool) colour {
	row, column := at/filmColumns, at%filmColumns
	column = min(column, filmColumns-1-column)
	bit := row*filmColumns/2 + column
	if (hash[4+bit/8]>>(bit%8)&1 == 1) != turned {
		return colour{40 + hash[0]/4, 64 + hash[1]/2, 64 + hash[2]/2}
	}
	return colour{235, 128, 128}
}

// The types of NAL units: how much they are needed, and what they hold
// (ITU-T H.264, table 7-1).
const (
	nalNext       = 0x41
	nalFirst      = 0x65
	nalSequence   = 0x67
	nalParameters = 0x68
)

// sequence is the parameter set of the whole video (H.264, 7.3.2.1): baseline
// profile at level 3, pictures in the order in which they come.
func sequence() []byte {
	var w bitWriter
	w.bits(8, 66)
	w.bits(8, 0xc0) // it keeps to the constrained baseline
	w.bits(8, 30)
	w.golomb(0, 0, 2, 1) // its id, 4 bits of frame number, order by number, 1 reference
	w.bits(1, 0)
	w.golomb(filmColumns-1, filmRows-1)
	w.bits(3, 0b111) // whole frames; cropped
	w.golomb(0, 0, 0, filmHidden/2)
	w.bits(1, 0)
	return nal(nalSequence, w.end())
}

// parameters is the parameter set of the pictures (7.3.2.2): the filter that
// would blur the edges of cells can be turned off.
func parameters() []byte {
	var w bitWriter
	w.golomb(0, 0)
	w.bits(2, 0)
	w.golomb(0, 0, 0)
	w.bits(3, 0)
	w.golomb(0, 0, 0)
	w.bits(3, 0b100)
	return nal(nalParameters, w.end())
}

// firstFrame is a picture of its own (7.3.3), every macroblock of which is plain
// samples.
func firstFrame(hash [32]byte) []byte {
	var w bitWriter
	w.golomb(0, 7, 0) // all of it, intra
	w.bits(4, 0)
	w.golomb(0)
	w.bits(2, 0)
	w.golomb(0, 1)
	for at := range filmColumns * filmRows {
		const plain = 25
		w.golomb(plain)
		w.block(cell(hash, at, false))
	}
	return nal(nalFirst, w.end())
}

// nextFrame is the picture before it but for one cell.
func nextFrame(hash [32]byte, number int) []byte {
	const plain = 30
	at := number - 1
	var w bitWriter
	w.golomb(0, 5, 0) // all of it, predicted
	w.bits(4, uint32(number%16))
	w.bits(3, 0)
	w.golomb(0, 1)
	w.golomb(uint32(at), plain) // so many stay
	w.block(cell(hash, at, true))
	w.golomb(uint32(filmColumns*filmRows - 1 - at))
	return nal(nalNext, w.end())
}

// nal is a unit behind its length, in which no start code occurs.
func nal(header byte, payload []byte) []byte {
	unit := []byte{0, 0, 0, 0, header}
	zeros := 0
	for _, b := range payload {
		if zeros == 2 && b <= 3 {
			unit, zeros = append(unit, 3), 0
		}
		if b == 0 {
			zeros++
		} else {
			zeros = 0
		}
		unit = append(unit, b)
	}
	copy(unit, big32(uint32(len(unit)-4)))
	return unit
}

// bitWriter writes bits, the highest of each byte first.
type bitWriter struct {
	data []byte
	free int // bits of the last byte
}

func (w *bitWriter) bits(n int, value uint32) {
	for i := n - 1; i >= 0; i-- {
		if w.free == 0 {
			w.data, w.free = append(w.data, 0), 8
		}
		w.free--
		w.data[len(w.data)-1] |= byte(value>>i&1) << w.free
	}
}

// golomb writes numbers in the code of H.264, 9.1.
func (w *bitWriter) golomb(values ...uint32) {
	for _, v := range values {
		n := 0
		for (v+1)>>n > 1 {
			n++
		}
		w.bits(n, 0)
		w.bits(n+1, v+1)
	}
}

// block writes the samples of a macroblock of one colour.
func (w *bitWriter) block(c colour) {
	w.free = 0 // they begin with a byte
	for range 16 * 16 {
		w.data = append(w.data, c[0])
	}
	for _, chroma := range c[1:] {
		for range 8 * 8 {
			w.data = append(w.data, chroma)
		}
	}
}

// end is what was written, with the bit that ends it.
func (w *bitWriter) end() []byte {
	w.bits(1, 1)
	return w.data
}
