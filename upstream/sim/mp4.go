package sim

import (
	"encoding/binary"
	"slices"
)

// ticks are those of a second.
const ticks = 1000

// mp4 is a file of pictures, each of so many ticks, that says that it is
// simulated (ISO/IEC 14496-12 and -15).
func mp4(samples [][]byte, each uint32) []byte {
	head := box("ftyp", []byte("isom"), big32(0x200), []byte("isomavc1mp41"))
	media := box("mdat", samples...)
	return slices.Concat(head, media, movie(samples, each, uint32(len(head)+8)))
}

// movie describes the samples, which begin at an offset.
func movie(samples [][]byte, each, offset uint32) []byte {
	length := each * uint32(len(samples))
	return box("moov",
		box("mvhd", big32(0, 0, 0, ticks, length, 0x10000), big16(0x100, 0), big32(0, 0), matrix(), make([]byte, 24), big32(2)),
		box("trak",
			box("tkhd", big32(3, 0, 0, 1, 0, length, 0, 0), big16(0, 0, 0, 0), matrix(), big32(filmWidth<<16, filmHeight<<16)),
			box("mdia",
				box("mdhd", big32(0, 0, 0, ticks, length), big16(0x55c4, 0)), // language "und"
				box("hdlr", big32(0, 0), []byte("vide"), make([]byte, 12), []byte("tollhouse\x00")),
				box("minf",
					box("vmhd", big32(1, 0, 0)),
					box("dinf", box("dref", big32(0, 1), box("url ", big32(1)))),
					table(samples, each, offset),
				),
			),
		),
		box("udta", box("\xa9cmt", noted("Simulated by tollhouse: no model made this video."))),
	)
}

// table says where the samples are and how they are coded.
func table(samples [][]byte, each, offset uint32) []byte {
	count := uint32(len(samples))
	sizes := make([]uint32, len(samples))
	for i, s := range samples {
		sizes[i] = uint32(len(s))
	}
	return box("stbl",
		box("stsd", big32(0, 1), box("avc1",
			big32(0), big16(0, 1), make([]byte, 16), big16(filmWidth, filmHeight), big32(72<<16, 72<<16, 0), big16(1),
			make([]byte, 32), big16(0x18, 0xffff), box("avcC", decoder()),
		)),
		box("stts", big32(0, 1, count, each)),
		box("stss", big32(0, 1, 1)),
		box("stsc", big32(0, 1, 1, count, 1)),
		box("stsz", big32(0, 0, count), big32(sizes...)),
		box("stco", big32(0, 1, offset)),
	)
}

// decoder is the record of what a decoder must know.
func decoder() []byte {
	set, pictures := sequence()[4:], parameters()[4:]
	return slices.Concat(
		[]byte{1}, set[1:4], []byte{0xff, 0xe1}, big16(uint16(len(set))), set, []byte{1}, big16(uint16(len(pictures))), pictures,
	)
}

// matrix turns nothing.
func matrix() []byte { return big32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000) }

// noted is a text of no language.
func noted(text string) []byte { return append(big16(uint16(len(text)), 0x55c4), text...) }

// box is a piece of the file with its length and kind.
func box(kind string, parts ...[]byte) []byte {
	content := slices.Concat(parts...)
	return slices.Concat(big32(uint32(8+len(content))), []byte(kind), content)
}

func big32(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func big16(values ...uint16) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b
}
