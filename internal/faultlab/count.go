package faultlab

import "github.com/tollhouse-ai/gateway/billing"

// inputTokens is what a conversation's input is taken for: four tokens around
// its one message, and the message with its quotes.
func (c *Case) inputTokens() int64 { return tokens(4*4 + 2 + quarters(c.Prompt)) }

// talkTally is what a conversation used. Reports are cumulative: each count
// stands for all before it, and the largest counts. What was said after the last
// report is estimated, as is each side of which there is no report.
func (c *Case) talkTally(marks []mark) tally {
	var text, since, floor int64
	var input, cached, output count
	for _, m := range marks {
		text += m.quarters
		since += m.quarters
		if m.report == nil {
			continue
		}
		input.hear(m.report.input)
		cached.hear(m.report.cached)
		output.hear(m.report.output)
		floor = max(floor, m.report.floor)
		if m.report.output.known {
			since = 0
		}
	}
	out := output.n
	if !output.known {
		out = max(tokens(text), floor)
	} else if since > 0 {
		out = max(out, tokens(text))
	}
	in := input.n
	if c.Kind.chats() { // where the cached tokens are among those of the input
		in -= cached.n
	}
	if !input.known {
		in = max(c.inputTokens()-cached.n, 0)
	}
	if out > 2*mostOutput+slack { // than the model can say: the hold that the request asked for, or the text
		out = max(or64(c.MaxTokens, heldTokens), tokens(text))
	}
	if in+cached.n > window { // of every model
		bound := int64(len(c.Body()))
		cached.n = min(cached.n, bound)
		in = min(in, bound-cached.n)
	}
	return tally{billing.Input: in, billing.CachedInput: cached.n, billing.Output: out}
}

// window is more than every model takes, and slack how much more than it can say a
// vendor may count.
const window, slack = 1 << 21, 1024

// chats reports whether the vendor speaks in completions.
func (k Kind) chats() bool { return traits[k].dialect == Chat.op() }

func or64(n, otherwise int64) int64 {
	if n > 0 {
		return n
	}
	return otherwise
}

// hear takes in another count of the same thing.
func (c *count) hear(other count) {
	if other.known {
		c.known, c.n = true, max(c.n, other.n)
	}
}

// What the tables of the image vendors say, in tokens: of a picture in low
// quality, of a partial one, of the lab's picture as it is estimated and at the
// most, and of what may stand around a prompt.
const (
	pictureTokens = 408
	partialTokens = 100
	shownTokens   = 65 + 129
	shownMost     = 8_192
	aroundPrompt  = 64
)

// pictureTally is what pictures used.
func (c *Case) pictureTally(marks []mark) tally {
	partials := int64(0)
	for _, m := range marks {
		if m.partial {
			partials++
		}
		if m.what == completes {
			return c.finishedPictures(m.report)
		}
	}
	used := c.inputOnly()
	if partials > 0 { // by the share of the pictures that came
		all := pictureTokens + c.Partials*partialTokens
		used[billing.ImageOutput] = max(all*partials/(max(c.Partials, partials)+1), 1)
	}
	return used
}

func (c *Case) finishedPictures(r *report) tally {
	if r == nil {
		r = &report{}
	}
	made := max(r.pictures.n, 1)
	most := c.Pictures * (pictureTokens + c.Partials*partialTokens)
	used := tally{billing.Image: min(made, c.Pictures)}
	if c.Kind == Print { // which is paid for by the piece
		return used
	}
	shownBound := int64(0)
	if c.Kind == Edit {
		shownBound = shownMost
	}
	if !r.output.known {
		used[billing.Input], used[billing.ImageOutput] = int64(len(c.Prompt))/4+1, most
		if c.Kind == Edit {
			used[billing.ImageInput] = shownTokens
		}
		return used
	}
	used[billing.Input], used[billing.ImageInput], used[billing.ImageOutput] = r.input.n-r.cached.n, r.cached.n, r.output.n
	if r.output.odd || made > c.Pictures {
		used[billing.Input] = min(used[billing.Input], int64(len(c.Prompt))+aroundPrompt)
		used[billing.ImageInput] = min(used[billing.ImageInput], shownBound)
		used[billing.ImageOutput] = min(used[billing.ImageOutput], most)
	}
	return used
}

// vectorTokens is what one part of a request for embeddings used.
func (c *Case) vectorTokens(part int, r *report) int64 {
	if r == nil || !r.input.known {
		return c.vectorEstimate(part)
	}
	return r.input.n
}

// vectorEstimate is what the texts with their quotes are taken for, and one token
// for each.
func (c *Case) vectorEstimate(part int) int64 {
	n, texts := int64(0), c.textsOf(part)
	for i := range texts {
		n += quarters(c.textAt(part*textsAtOnce+i)) + 2
	}
	return n/4 + int64(texts)
}

// plausibleVectors clamps what no such texts can be to the hold.
func (c *Case) plausibleVectors(n int64) int64 {
	const aroundText, slack = 4, 1024
	bound := int64(0)
	for i := range c.Texts {
		bound += int64(len(c.textAt(i))) + 2 + aroundText
	}
	if n > 2*bound+slack {
		return bound
	}
	return n
}
