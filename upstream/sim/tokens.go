package sim

import (
	"unicode"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/chat"
)

// A simulated token is one piece of text, together with the white space before it: at most 16
// letters and digits, or one other character. White space at the end is a piece too. Han, kana
// and hangul count one by one.
const longestPiece = 16

// Media count by a fixed number of tokens, whatever they show.
const (
	imageTokens = 256   // an image
	mediaTokens = 1_024 // video, audio or a file
)

// pieces cuts text into tokens; joined they are the text again.
func pieces(text string) []string {
	var all []string
	for len(text) > 0 {
		n := firstPiece(text)
		all = append(all, text[:n])
		text = text[n:]
	}
	return all
}

// tokens is the number of pieces.
func tokens(text string) (n int64) {
	for len(text) > 0 {
		n++
		text = text[firstPiece(text):]
	}
	return n
}

// firstPiece is the length in bytes of the first piece of a non-empty text.
func firstPiece(text string) int {
	at, letters := 0, 0
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		switch {
		case letters == 0 && unicode.IsSpace(r):
		case letters < longestPiece && joins(r):
			letters++
		case letters == 0:
			return at + size
		default:
			return at
		}
		at += size
	}
	return at
}

// joins reports whether a rune makes a piece together with its neighbours.
func joins(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) &&
		!unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

// promptTokens counts a request's input: its messages and its tools. The messages before the
// last are a prefix that was sent before. As vendors do, the simulator reports a prefix above
// 256 tokens as read from a cache.
func promptTokens(r *chat.Request) (all, cached int64) {
	const shortest = 256
	all = tokens(string(r.Tools))
	var prefix int64
	for i := range r.Messages {
		n := messageTokens(&r.Messages[i])
		all += n
		if i < len(r.Messages)-1 {
			prefix += n
		}
	}
	if prefix > shortest {
		cached = prefix
	}
	return all, cached
}

func messageTokens(m *chat.Message) int64 {
	images, others := media(m)
	n := tokens(m.Content.String()) + tokens(m.ReasoningContent) + images*imageTokens + others*mediaTokens
	for _, c := range m.ToolCalls {
		n += 1 + tokens(c.Function.Arguments)
	}
	return n
}

// media counts a message's blocks that are not text.
func media(m *chat.Message) (images, others int64) {
	parts, err := m.Content.Parts()
	if err != nil {
		return 0, 0
	}
	for _, p := range parts {
		switch p.Type {
		case "text":
		case "image_url":
			images++
		default:
			others++
		}
	}
	return images, others
}
