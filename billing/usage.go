package billing

import "math"

// Usage is what one request consumed, in disjoint buckets: no unit is counted in two of
// them. So a cost is a plain sum of products (docs/reference/billing.md, Money). The zero
// Usage means that nothing was consumed.
type Usage struct {
	Input       int64 // input tokens that no cache served
	CachedInput int64 // input tokens read from the upstream's cache
	CacheWrite  int64 // input tokens written to the upstream's cache
	Output      int64 // output tokens, reasoning included
	Reasoning   int64 // how many of Output were reasoning; informational, never priced again
	ImageInput  int64 // image input tokens
	ImageOutput int64 // image output tokens
	Images      int64 // pictures
	Seconds     int64 // seconds of video
	Characters  int64 // Unicode code points of speech input
	SearchUnits int64 // of reranking: a query with up to 100 documents
	Requests    int64 // calls of an upstream that sells by the call, each part of a split request being one

	// Variant selects the price per second ("720p", "720p+audio").
	Variant string
	// Estimated says that the upstream reported nothing and the gateway
	// counted the bytes it saw.
	Estimated bool
	// Zero says that the upstream reported an explicit zero. It is honoured.
	Zero bool
	// Anomaly says that the upstream reported something impossible: a negative or
	// fractional count, which counts as not reported, or one that no model
	// reaches, which was clamped.
	Anomaly bool
}

// Unit names one bucket of a [Usage], as price lists and receipts spell it.
type Unit string

// The units of the configuration's price rows.
const (
	Input       Unit = "input"
	CachedInput Unit = "cached_input"
	CacheWrite  Unit = "cache_write"
	Output      Unit = "output"
	Reasoning   Unit = "reasoning"
	ImageInput  Unit = "image_input"
	ImageOutput Unit = "image_output"
	Image       Unit = "image"
	Second      Unit = "second"
	Character   Unit = "character"
	SearchUnit  Unit = "search_unit"
	Request     Unit = "request"
)

// Units are all units, in the order of [Usage.Units].
func Units() []Unit {
	var units []Unit
	for _, b := range new(Usage).buckets() {
		units = append(units, b.unit)
	}
	return units
}

// Units calls yield for each bucket that is not zero, in a fixed order.
// Reasoning is among them although it is part of Output.
func (u Usage) Units(yield func(Unit, int64) bool) {
	for _, b := range u.buckets() {
		if b.count != 0 && !yield(b.unit, b.count) {
			return
		}
	}
}

// bucket is a count of a unit.
type bucket struct {
	unit  Unit
	count int64
}

// buckets are all counts, in the order of [Usage.Units].
func (u *Usage) buckets() [12]bucket {
	return [...]bucket{
		{Input, u.Input}, {CachedInput, u.CachedInput}, {CacheWrite, u.CacheWrite},
		{Output, u.Output}, {Reasoning, u.Reasoning},
		{ImageInput, u.ImageInput}, {ImageOutput, u.ImageOutput},
		{Image, u.Images}, {Second, u.Seconds}, {Character, u.Characters},
		{SearchUnit, u.SearchUnits}, {Request, u.Requests},
	}
}

// IsZero reports whether nothing was consumed, whatever the flags say.
func (u Usage) IsZero() bool {
	return u.Input|u.CachedInput|u.CacheWrite|u.Output|u.Reasoning|
		u.ImageInput|u.ImageOutput|u.Images|u.Seconds|u.Characters|u.SearchUnits|u.Requests == 0
}

// Add returns the sum of both usages; a count that would not fit stops at the
// largest int64. Estimated and Anomaly are those of either, Zero is only that
// of both; u's Variant wins unless it is empty.
func (u Usage) Add(v Usage) Usage {
	u.Input = sum(u.Input, v.Input)
	u.CachedInput = sum(u.CachedInput, v.CachedInput)
	u.CacheWrite = sum(u.CacheWrite, v.CacheWrite)
	u.Output = sum(u.Output, v.Output)
	u.Reasoning = sum(u.Reasoning, v.Reasoning)
	u.ImageInput = sum(u.ImageInput, v.ImageInput)
	u.ImageOutput = sum(u.ImageOutput, v.ImageOutput)
	u.Images = sum(u.Images, v.Images)
	u.Seconds = sum(u.Seconds, v.Seconds)
	u.Characters = sum(u.Characters, v.Characters)
	u.SearchUnits = sum(u.SearchUnits, v.SearchUnits)
	u.Requests = sum(u.Requests, v.Requests)
	u.Estimated = u.Estimated || v.Estimated
	u.Zero = u.Zero && v.Zero
	u.Anomaly = u.Anomaly || v.Anomaly
	if u.Variant == "" {
		u.Variant = v.Variant
	}
	return u
}

// Tokens is the number of tokens that count against a tokens-per-minute limit.
func (u Usage) Tokens() int64 {
	return sum(u.Input, u.CachedInput, u.CacheWrite, u.Output, u.ImageInput, u.ImageOutput)
}

// sum adds counts and stops at the largest int64: an absurd report of an
// upstream must not wrap a total around.
func sum(counts ...int64) int64 {
	var total int64
	for _, n := range counts {
		if n > 0 && total > math.MaxInt64-n {
			return math.MaxInt64
		}
		total += n
	}
	return total
}
