package operation

import (
	"cmp"
)

// Facts are what the catalogue knows of a model, for the rules and bounds of its requests.
// They are read-only.
type Facts struct {
	MaxOutput  int64    // most output tokens of one candidate; 0 means unknown
	HoldTokens int64    // output tokens that are held for a stream without a bound
	Batch      int      // most texts (characters, documents) of one upstream call; 0 means that of its family
	Dimensions []int64  // that embeddings can have; nil means those of its family
	Voices     []string // of speech, the first being the default; nil means those of its family
	Ratios     []string // that a video may have; nil means all
	Priorities []string // the same

	HidesReasoning bool    // answers do not show the reasoning
	Dropped        Dropped // bounds that some channel leaves out
	Media          Media
	// AllowPrivate allows webhooks with http, any port and private addresses.
	AllowPrivate bool
}

// Dropped are the bounds of the output that some channel of a model leaves out.
type Dropped struct{ MaxTokens, MaxCompletionTokens, MaxOutputTokens bool }

// Media is how many input tokens are reserved for media that the gateway does not look into.
type Media struct {
	Image int64 // an image; 0 means 2,000
	Video int64 // video, audio or a file; 0 means 50,000
}

// The defaults of a model's facts. defaultMaxOutput is what every current chat model can
// produce. A vendor could refuse a larger cap that the caller did not send. unaskedOutput is
// more than any vendor makes of one candidate without a bound. It is held for a whole answer
// of a model whose cap is unknown.
const (
	DefaultHoldTokens = 4_096
	defaultMaxOutput  = 16_384
	unaskedOutput     = 131_072
)

// UnboundedOutput is the most that a vendor makes of one candidate without a bound.
func (m *Facts) UnboundedOutput() int64 { return cmp.Or(m.MaxOutput, unaskedOutput) }

// OutputBound is the largest output of one candidate, for a caller who set a bound of own
// (0 for none). An unknown cap does not lower the caller's bound.
func (m *Facts) OutputBound(own int64) int64 {
	switch {
	case own == 0 && m.MaxOutput == 0:
		return defaultMaxOutput
	case own == 0:
		return m.MaxOutput
	case m.MaxOutput == 0:
		return own
	}
	return min(own, m.MaxOutput)
}

// plausibleOutput is the largest output of one candidate that is believed.
func (m *Facts) plausibleOutput() int64 {
	if m.MaxOutput == 0 {
		return MaxContext
	}
	return 2*m.MaxOutput + CountSlack
}
