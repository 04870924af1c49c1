package embeddings

import "github.com/tollhouse-ai/gateway/internal/rawjson"

// Split cuts a request into parts of at most batch inputs each, in order; nil
// if it need not be cut. A batch of 0 is the family's. The parts share the
// request's memory, and are written when they are sent.
func (r *Request) Split(batch int) []*Request {
	if batch == 0 {
		batch = family(r.Model).Batch
	}
	items := r.parsed.items
	if len(items) <= batch {
		return nil
	}
	var parts []*Request
	for len(items) > 0 {
		n := min(batch, len(items))
		parts, items = append(parts, r.part(items[:n])), items[n:]
	}
	return parts
}

// part is the same request for some of its inputs.
func (r *Request) part(items []rawjson.Span) *Request {
	src := r.Source()
	input := []byte{'['}
	for i, item := range items {
		if i > 0 {
			input = append(input, ',')
		}
		input = append(input, item.Of(src)...)
	}
	input = append(input, ']')
	part := *r
	part.Input = input
	part.parsed.items = items
	part.parsed.bound = part.weigh()
	part.parsed.body = r.parsed.body.Set("input", input)
	return &part
}
