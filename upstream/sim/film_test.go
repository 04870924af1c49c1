package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
	"time"
)

// boxes are the pieces of a file, or of a box that holds nothing but boxes.
func boxes(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	for len(data) > 0 {
		if len(data) < 8 || binary.BigEndian.Uint32(data) < 8 || int(binary.BigEndian.Uint32(data)) > len(data) {
			t.Fatalf("a box of wrong length: %x", data[:min(len(data), 8)])
		}
		n := binary.BigEndian.Uint32(data)
		found[string(data[4:8])] = data[8:n]
		data = data[n:]
	}
	return found
}

// inner is the content of a box inside others.
func inner(t *testing.T, data []byte, path ...string) []byte {
	t.Helper()
	for _, kind := range path {
		var ok bool
		if data, ok = boxes(t, data)[kind]; !ok {
			t.Fatalf("there is no %s", kind)
		}
	}
	return data
}

func number(data []byte, at int) int { return int(binary.BigEndian.Uint32(data[at:])) }

func TestAFilmIsAFileOfAsManySeconds(t *testing.T) {
	for _, row := range []struct {
		length        time.Duration
		seconds, most int // ms, of the file
		frames        int
	}{
		{0, 1000, 1000, 2}, {time.Second, 1000, 1000, 2}, {5 * time.Second, 5000, 5000, 10}, {13 * time.Second, 12_976, 13_000, 24}, {time.Hour, 3_600_000, 3_600_000, 24},
	} {
		file := film("a", row.length)
		stbl := inner(t, file, "moov", "trak", "mdia", "minf", "stbl")
		sizes, times, offset := inner(t, stbl, "stsz"), inner(t, stbl, "stts"), number(inner(t, stbl, "stco"), 8)
		n := number(sizes, 8)
		if length := n * number(times, 12); n != row.frames || number(times, 8) != n || length < row.seconds || length > row.most || number(inner(t, file, "moov", "mvhd"), 16) != length {
			t.Errorf("%s: %d pictures", row.length, n)
		}
		for i := range n {
			size := number(sizes, 12+4*i)
			sample := file[offset : offset+size]
			if kind := sample[4]; number(sample, 0) != size-4 || (kind == nalFirst) != (i == 0) || (kind == nalNext) != (i > 0) {
				t.Errorf("%s: picture %d is %x, %d bytes", row.length, i, sample[:5], size)
			}
			offset += size
		}
		if media := inner(t, file, "mdat"); !bytes.HasSuffix(file[:offset], media[len(media)-16:]) {
			t.Errorf("%s: the pictures do not end where their box does", row.length)
		}
	}
}

func TestAFilmSaysThatItIsSimulated(t *testing.T) {
	if note := inner(t, film("a", 0), "moov", "udta", "\xa9cmt"); string(note[4:]) != "Simulated by tollhouse: no model made this video." || int(note[1]) != len(note)-4 {
		t.Errorf("%q", note)
	}
}

// TestAFilmIsTheOneThatWasSeenToPlay: FFmpeg's decoder shows these bytes as ten
// pictures of 128 by 72 pixels, without a complaint, each of which has one cell
// of another colour than the one before.
func TestAFilmIsTheOneThatWasSeenToPlay(t *testing.T) {
	sum := sha256.Sum256(film("a paper boat", 5*time.Second))
	if got := hex.EncodeToString(sum[:]); got != "060302a66cb1cb45f8da285b2ec97c7ae1f438aebeb0084647658684733b17da" {
		t.Errorf("the file is now %s: play it before this test says so too", got)
	}
}

func TestNoStartCodeOccursInAUnit(t *testing.T) {
	for payload, want := range map[string]string{
		"\x00\x00\x01":         "\x00\x00\x03\x01",
		"\x00\x00\x00\x00\x03": "\x00\x00\x03\x00\x00\x03\x03",
		"\x00\x00\x04":         "\x00\x00\x04",
		"\x00\x01\x00\x02":     "\x00\x01\x00\x02",
	} {
		unit := nal(nalNext, []byte(payload))
		if string(unit[5:]) != want || number(unit, 0) != len(unit)-4 || unit[4] != nalNext {
			t.Errorf("%x became %x", payload, unit)
		}
	}
}

func TestNumbersHaveTheCodeOfTheStandard(t *testing.T) {
	var w bitWriter
	w.golomb(0, 1, 2, 3, 25) // 1 010 011 00100 000011010
	if got := w.end(); !bytes.Equal(got, []byte{0b10100110, 0b01000000, 0b11010100}) {
		t.Errorf("%08b", got)
	}
}
