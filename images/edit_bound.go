package images

// The input tokens of one image: the most that a vendor's tables have (a large
// one in high fidelity), and what the vendor counts for the first tile and for
// each further one of 512 by 512 pixels in the usual fidelity.
const (
	mostShown = 8_192
	baseShown = 65
	tileShown = 129
)

// Count is the number of pictures that the request asks for.
func (e *Edit) Count() int64 { return e.request.Count() }

// InputBound is the most tokens that the prompt can be, images apart: no token
// is shorter than a byte.
func (e *Edit) InputBound() int64 {
	if e.Known() {
		return e.request.InputBound()
	}
	var all int64
	for i := range e.form.Parts {
		if p := &e.form.Parts[i]; !isFile(p) && p.Filename == "" {
			all += p.Size
		}
	}
	return min(all, mostInput) + around
}

// ImageInputBound is the most tokens that the images can be.
func (e *Edit) ImageInputBound() int64 {
	if !e.request.CountsTokens() {
		return 0
	}
	return mostShown * e.shown()
}

// OutputBound is [Request.OutputBound] of an edit.
func (e *Edit) OutputBound(perImage int64) int64 { return e.request.OutputBound(perImage) }

// Estimate is about how many tokens the prompt is, and the images.
func (e *Edit) Estimate() (prompt, images int64) { return e.request.Estimate(), e.request.parsed.shown }

// shown is the number of images that the model sees.
func (e *Edit) shown() int64 {
	n := int64(len(e.Images))
	if e.Mask != nil {
		n++
	}
	return n
}

// estimate is about how many tokens the images are.
func (e *Edit) estimate() (tokens int64) {
	if !e.request.CountsTokens() {
		return 0
	}
	for i := range e.Images {
		tokens += e.Images[i].tokens()
	}
	if e.Mask != nil {
		tokens += e.Mask.tokens()
	}
	return tokens
}

// tokens is about how many an image is: its shorter side is scaled to one tile.
func (f *File) tokens() int64 {
	short, long := min(f.Width, f.Height), max(f.Width, f.Height)
	if short == 0 {
		return 0
	}
	return min(baseShown+tileShown*((long+short-1)/short), mostShown)
}
