package tokencount

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Quarters estimates the tokens of JSON text in quarters of a token, so that short texts add
// up without rounding. An ASCII character is one quarter, so four of them are a token. A
// character of any other script is four quarters. [Tokens] turns quarters into tokens.
func Quarters(raw []byte) int64 {
	var n int64
	for i := 0; i < len(raw); i++ {
		for len(raw)-i > 8 && plain(binary.LittleEndian.Uint64(raw[i:])) {
			n += 8
			i += 8
		}
		switch c := raw[i]; {
		case c == '\\' && i+1 < len(raw) && raw[i+1] == 'u':
			n += escaped(raw[i+2 : min(i+6, len(raw))])
			i += 5
		case c == '\\':
			n++
			i++
		case c < 0x80:
			n++
		case c >= 0xC0: // the first byte of a character
			n += 4
		}
	}
	return n
}

// escaped is the quarters of the character that four hexadecimal digits spell: as
// many as it has when it stands as it is.
func escaped(digits []byte) int64 {
	const all = 4
	switch {
	case len(digits) < all:
	case digits[0] == '0' && digits[1] == '0' && digits[2] < '8': // ASCII
		return 1
	case digits[0]|0x20 == 'd' && digits[1]|0x20 >= 'c': // DC00 to DFFF, the second half of a character
		return 0
	}
	return 4
}

// plain reports whether eight bytes are ASCII without a backslash.
func plain(eight uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	x := eight ^ ones*'\\' // a byte of it is 0 where a backslash stands
	return (eight|(x-ones)&^x)&highs == 0
}

// StringQuarters is [Quarters] of a JSON string without its quotes; 0 of any
// other value.
func StringQuarters(raw []byte) int64 {
	if len(raw) < 2 || raw[0] != '"' {
		return 0
	}
	return Quarters(raw[1 : len(raw)-1])
}

// ObjectQuarters is [Quarters] of an object's members whose values are strings, arrays or
// objects, except those named in without.
func ObjectQuarters(o *rawjson.Object, without []string) (quarters int64) {
	for i := range o.Members {
		m := &o.Members[i]
		raw := m.Value.Of(o.Src)
		if c := raw[0]; (c == '"' || c == '[' || c == '{') && !slices.Contains(without, m.Name) {
			quarters += Quarters(raw)
		}
	}
	return quarters
}

// Tokens rounds quarters up.
func Tokens(quarters int64) int64 { return (quarters + 3) / 4 }

// Media counts the inputs of a request that are not text, and their size in its body, which
// says nothing of their tokens. The size is in bytes, and in the quarters that [Quarters]
// counts for these. The zero Media has none.
type Media struct {
	Images, Files             int64
	LinkedImages, LinkedFiles int64 // those of them that are not in the body: it only says where they are
	Largest                   int64 // tokens that the files in the body can be counted as, by their bytes
	TextFiles, Text           int64 // documents that are text, and the quarters of their tokens
	Bytes, Quarters           int64
}

// AddImage counts an image. raw is the JSON string of its content or, if linked, of its URL.
func (m *Media) AddImage(raw []byte, linked bool) {
	m.Images++
	if linked {
		m.LinkedImages++
	}
	m.without(raw)
}

// Document is the media type of a document whose content does not say it.
const Document = "application/pdf"

// AddFile counts a video, a sound or a document. raw is the JSON string of its content or, if
// linked, of its URL. kind is the media type of content that does not say it. It is [Document]
// where a document is expected; nothing else can be text.
func (m *Media) AddFile(raw []byte, linked bool, kind string) {
	m.Files++
	if linked {
		m.LinkedFiles++
	}
	if !linked || IsDataURL(raw) {
		m.inline(raw, kind)
	}
	m.without(raw)
}

// Merge counts what n has counted.
func (m *Media) Merge(n Media) {
	m.Images, m.Files = m.Images+n.Images, m.Files+n.Files
	m.LinkedImages, m.LinkedFiles = m.LinkedImages+n.LinkedImages, m.LinkedFiles+n.LinkedFiles
	m.Largest, m.TextFiles, m.Text = m.Largest+n.Largest, m.TextFiles+n.TextFiles, m.Text+n.Text
	m.Bytes, m.Quarters = m.Bytes+n.Bytes, m.Quarters+n.Quarters
}

// inline counts the content of a file by its kind and its bytes. A sound or a video has many
// bytes for each token, and a PDF may have few. Only a document whose bytes are text is
// estimated as text, whatever its client calls it. A vendor counts a short video of a few
// bytes by its seconds.
func (m *Media) inline(raw []byte, kind string) {
	const perToken = 16 // bytes of a sound or a film, at least
	document := kind == Document
	raw = raw[:max(len(raw)-len(`"`), 0)]
	content, encoded := raw[min(len(raw), len(`"`)):], true
	if at := bytes.IndexByte(raw, ','); at >= 0 && IsDataURL(raw) {
		const longest = 64 // of those that are told apart
		kind, content = strings.ToLower(string(raw[len(dataURL):min(at, len(dataURL)+longest)])), raw[at+1:]
		encoded = bytes.HasSuffix(bytes.ToLower(raw[max(0, at-len(";base64")):at]), []byte(";base64"))
	}
	size := int64(len(content))
	if encoded {
		size = size / 4 * 3
	}
	switch {
	case strings.HasPrefix(kind, "audio/") || strings.HasPrefix(kind, "video/"):
		m.Largest += size / perToken
	case !document || strings.HasPrefix(kind, Document) || !isText(content, encoded):
		m.Largest += size
	default:
		m.Largest += size
		m.TextFiles++
		m.Text += size
	}
}

// isText reports whether the content of a data URL begins as text does. A PDF does not:
// readers look for its header in the first 1,024 bytes.
func isText(content []byte, encoded bool) bool {
	const most = 4 << 10 // has as many and the header, whatever is escaped
	head := bytes.ReplaceAll(content[:min(len(content), most)], []byte(`\/`), []byte("/"))
	if encoded {
		n, err := base64.StdEncoding.Decode(head, head[:len(head)/4*4])
		if err != nil {
			return false
		}
		head = head[:n]
	} else {
		if at := bytes.LastIndexByte(head, '%'); at > len(head)-len("%00") {
			head = head[:max(at, 0)]
		}
		plain, err := url.PathUnescape(string(head))
		if err != nil || bytes.Contains(head, []byte(`\u`)) {
			return false
		}
		head = []byte(plain)
	}
	return !bytes.Contains(head, []byte("%PDF")) && strings.HasPrefix(http.DetectContentType(head), "text/")
}

const dataURL = `"data:`

// IsDataURL reports whether a JSON string is a URL that holds its content.
func IsDataURL(raw []byte) bool { return bytes.HasPrefix(raw, []byte(dataURL)) }

// IsImageURL reports whether a JSON string is a URL that holds an image.
func IsImageURL(raw []byte) bool {
	const image = dataURL + "image/"
	return len(raw) >= len(image) && strings.EqualFold(string(raw[:len(image)]), image)
}

// without notes a JSON string that stands among text and is not text.
func (m *Media) without(raw []byte) {
	m.Bytes += int64(len(raw))
	m.Quarters += Quarters(raw)
}
