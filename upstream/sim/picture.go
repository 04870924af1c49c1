package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
)

// picture is a PNG file of a size with a pattern made of the hash of a text: the
// same text has the same bytes.
func picture(text string, width, height int) []byte {
	const cells = 8 // along each side, mirrored at the middle
	hash := sha256.Sum256([]byte(text))
	ink := color.RGBA{hash[0] / 2, hash[1] / 2, hash[2] / 2, 0xff}
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.White, ink})
	for y := range height {
		row := m.Pix[y*m.Stride:]
		for x := range width {
			column := x * cells / width
			column = min(column, cells-1-column)
			if bit := y*cells/height*cells + column; hash[4+bit/8]>>(bit%8)&1 == 1 {
				row[x] = 1
			}
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, m); err != nil {
		return nil // a buffer takes everything
	}
	return signed(file.Bytes())
}

// signed puts a text chunk behind the header of a PNG file, which says that the
// picture is none.
func signed(file []byte) []byte {
	const header = 8 + 25 // the signature and the chunk IHDR
	body := []byte("tEXtComment\x00Simulated by tollhouse: no model made this picture.")
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(body)-4))
	chunk = append(chunk, body...)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(body))
	return append(append(append([]byte{}, file[:header]...), chunk...), file[header:]...)
}
