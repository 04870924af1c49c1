package faultlab

import "time"

// Try is what a vendor does when it is asked.
type Try struct {
	Connect time.Duration `json:"connect"`
	Wait    time.Duration `json:"wait"` // until it answers
	Trouble Trouble       `json:"trouble,omitempty"`
	Status  int           `json:"status,omitempty"`
	Again   time.Duration `json:"retry_after,omitempty"`
	// Place is where in the answer the trouble is, in thousandths.
	Place int `json:"place,omitempty"`
	// Byte is where the answer ends early, exactly; 0 means Place.
	Byte   int    `json:"byte,omitempty"`
	Answer Answer `json:"answer"`
}

// Trouble is what goes wrong with a try.
type Trouble string

// The troubles, by when they show. Rows are those of the design's catalogue of
// faults.
const (
	Fine Trouble = ""

	// Before there is an answer.
	Unreachable Trouble = "unreachable" // no connection
	Refuses     Trouble = "refuses"     // 429, 503 or 529: nothing was done
	Fails       Trouble = "fails"       // 500, 502 or 504
	Rejects     Trouble = "rejects"     // 400 or 422: the caller's fault
	Disowns     Trouble = "disowns"     // 401: the operator's key is refused
	Panics      Trouble = "panics"      // the driver does
	Nothing     Trouble = "nothing"     // neither an answer nor an error
	Vague       Trouble = "vague"       // an error that says nothing
	Pretends    Trouble = "pretends"    // it says that the client has left
	Silent      Trouble = "silent"      // nothing comes, ever

	// A 200 that is none.
	Empty     Trouble = "empty"
	Garbage   Trouble = "garbage"    // compressed bytes that say they are none
	ErrorBody Trouble = "error body" // an error, as a document or as the first event
	WrongType Trouble = "wrong type" // a page for a stream

	// Within the answer.
	Ends    Trouble = "ends"    // the transfer ends early, as if that were all
	Breaks  Trouble = "breaks"  // the connection breaks
	Bursts  Trouble = "bursts"  // the reader panics
	Stalls  Trouble = "stalls"  // nothing comes any more
	Errs    Trouble = "errs"    // an error event
	Babbles Trouble = "babbles" // an event that is no JSON
	Huge    Trouble = "huge"    // an event above every limit
	Lingers Trouble = "lingers" // complete, but the transfer does not end
	Surplus Trouble = "surplus" // more pictures than were asked for
)

// Answer is what a vendor says if nothing goes wrong.
type Answer struct {
	Words    []string  `json:"words,omitempty"`
	Thoughts int       `json:"thoughts,omitempty"` // how many of the words come first as thoughts
	Sizes    []int     `json:"sizes,omitempty"`    // of pieces of audio
	Report   Reporting `json:"report,omitempty"`
	Input    int64     `json:"input,omitempty"`  // tokens, as reported
	Cached   int64     `json:"cached,omitempty"` // of them; of an edit, those of its picture
	Output   int64     `json:"output,omitempty"`

	Line  string        `json:"line,omitempty"`  // how lines end: "" (LF), "crlf" or "cr"
	Mark  bool          `json:"mark,omitempty"`  // a byte order mark stands first
	Notes bool          `json:"notes,omitempty"` // comments between events
	Grain int           `json:"grain,omitempty"` // bytes of a piece at most; 0 for an event at a time
	Gap   time.Duration `json:"gap,omitempty"`   // between pieces
}

// Reporting is how an upstream reports what was used.
type Reporting string

// How usage is reported.
const (
	Once       Reporting = ""
	Never      Reporting = "never"
	Twice      Reporting = "twice"
	Rising     Reporting = "rising" // with every event, cumulative
	First      Reporting = "first"  // with the first word, and never again
	Nested     Reporting = "nested" // within a choice
	Zero       Reporting = "zero"
	Negative   Reporting = "negative"
	Fractional Reporting = "fractional"
	Absurd     Reporting = "absurd"
)
