package speech

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/speech"
)

// Part is as much of a request as one upstream call takes.
type Part struct {
	*Request
	Characters int64 // of the caller's input: those of all parts are those of the whole
}

// Parts cut the request as an upstream gets it. It names one of the voices, and its typed view
// the format, which an upstream cannot know from its own id of the model. Each part has at
// most limit characters; a request that fits is the only part. A limit of 0 means the
// family's. Only audio whose segments can be joined is cut.
func (r *Request) Parts(voices []string, limit int) []Part {
	whole := *r
	whole.ResponseFormat = r.Format()
	whole.Voice, _ = r.selectVoice(voices)
	if whole.Voice != r.Voice {
		whole.body = r.body.Set("voice", rawjson.Quote(nil, whole.Voice))
	}
	if limit == 0 {
		limit = r.family.Limit
	}
	if limit == 0 || r.Characters() <= int64(limit) || !joinable(r.Format()) {
		return []Part{{&whole, r.Characters()}}
	}
	var parts []Part
	for _, p := range splitText(r.Input, limit) {
		part := whole
		part.Input, part.body = p.text, whole.body.Set("input", rawjson.Quote(nil, p.text))
		parts = append(parts, Part{&part, p.characters})
	}
	return parts
}

// joinable reports whether two files of a format make one by following each
// other, WAV by its samples.
func joinable(format string) bool {
	return format == speech.WAV || format == speech.MP3 || format == "pcm" || format == "aac"
}

// segment is some of a text. White space at its ends is counted, and not spoken.
type segment struct {
	text       string
	characters int64
}

// splitText cuts a text after the ends of sentences, otherwise at white space, otherwise where
// it must.
func splitText(text string, limit int) []segment {
	var segments []segment
	silent := int64(0) // white space in front of the first segment
	for text != "" {
		n := segmentLength(text, limit)
		p := segment{strings.TrimSpace(text[:n]), int64(utf8.RuneCountInString(text[:n]))}
		text = text[n:]
		switch {
		case p.text != "":
			p.characters += silent
			silent = 0
			segments = append(segments, p)
		case len(segments) > 0:
			segments[len(segments)-1].characters += p.characters
		default:
			silent += p.characters
		}
	}
	return segments
}

// segmentLength is how many bytes of the text the next segment has.
func segmentLength(text string, limit int) int {
	sentence, space, hard := 0, 0, 0
	count := 0
	ended := false // a sentence has, if white space follows
	before := rune(0)
	for i, r := range text {
		if !combines(r) && before != joiner {
			hard = i
		}
		blank := unicode.IsSpace(r)
		if count == limit && blank {
			space = i
			if ended {
				sentence = i
			}
		}
		if count == limit {
			return chooseBoundary(sentence, space, hard, i)
		}
		next := i + utf8.RuneLen(r)
		if blank {
			space = next
		}
		if blank && (ended || r == '\n') || strings.ContainsRune("。！？；", r) {
			sentence = next
		}
		if !blank && !strings.ContainsRune(`"'”’)]»」』`, r) { // closing quotes and brackets may follow the full stop
			ended = strings.ContainsRune(".!?…", r)
		}
		before = r
		count++
	}
	return len(text)
}

// chooseBoundary prefers the end of a sentence in the second half of what fits, which is end
// bytes. Then come white space, and a place that splits no character.
func chooseBoundary(sentence, space, hard, end int) int {
	switch {
	case sentence > end/2:
		return sentence
	case space > 0:
		return space
	case sentence > 0:
		return sentence
	case hard > 0:
		return hard
	}
	return end
}

// joiner makes one sign of those beside it.
const joiner = '\u200d'

// combines reports whether a rune belongs to the one before it.
func combines(r rune) bool {
	return unicode.Is(unicode.M, r) || r == joiner
}
