package chat

// MediaBound is how many input tokens are reserved for media that the gateway
// does not look into (decisions.md, Chat).
type MediaBound struct {
	Image int64 // a picture; 0 means 2,000
	Video int64 // video, audio or a file; 0 means 50,000
}

func (b MediaBound) or() MediaBound {
	if b.Image == 0 {
		b.Image = 2_000
	}
	if b.Video == 0 {
		b.Video = 50_000
	}
	return b
}

// InputBound is an upper bound of the request's input tokens: a token is at
// least one byte of the body, and media count by the configured bound.
func (r *Request) InputBound(b MediaBound) int64 {
	m, b := r.parsed.media, b.or()
	return int64(len(r.parsed.object.Src)) - m.bytes + m.images*b.Image + m.videos*b.Video
}

// InputEstimate is the likely number of input tokens, for a charge where the
// upstream reported nothing.
func (r *Request) InputEstimate(b MediaBound) int64 {
	const perMessage = 4 // role and separators
	quarters := quarterTokens(r.Tools)
	for i := range r.Messages {
		m := &r.Messages[i]
		quarters += perMessage * 4
		quarters += quarterTokens(m.Content.raw)
		for _, c := range m.ToolCalls {
			quarters += int64(len(c.Function.Name) + len(c.Function.Arguments))
		}
	}
	m, b := r.parsed.media, b.or()
	return tokens(max(quarters-m.bytes, 0)) + m.images*b.Image + m.videos*b.Video
}

// quarterTokens estimates the tokens of JSON text in quarters: four ASCII
// characters make a token, and so does one character of any other script.
func quarterTokens(raw []byte) int64 {
	var n int64
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '\\' && i+1 < len(raw) && raw[i+1] == 'u':
			n += 4
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

// stringQuarters is quarterTokens of a JSON string without its quotes.
func stringQuarters(raw []byte) int64 {
	if len(raw) < 2 || raw[0] != '"' {
		return 0
	}
	return quarterTokens(raw[1 : len(raw)-1])
}

// tokens rounds quarters up.
func tokens(quarters int64) int64 { return (quarters + 3) / 4 }
