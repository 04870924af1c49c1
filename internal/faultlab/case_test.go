package faultlab

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// Kind is what a request asks for and in which dialect its vendor answers.
type Kind string

// The kinds. By names the dialect of a vendor that speaks another one.
const (
	Chat           Kind = "chat"
	ChatByMessages Kind = "chat by messages"
	Messages       Kind = "messages"
	MessagesByChat Kind = "messages by chat"
	Responses      Kind = "responses"
	ResponseByChat Kind = "responses by chat"
	Embeddings     Kind = "embeddings"
	Rank           Kind = "rank"  // paid for by search units
	Judge          Kind = "judge" // paid for by requests
	Image          Kind = "image" // paid for by tokens
	Print          Kind = "print" // an image that is paid for by the unit
	Edit           Kind = "edit"
	Speech         Kind = "speech"
	Beta           Kind = "beta video"  // paid for by the second
	Gamma          Kind = "gamma video" // paid for by reported tokens
)

// trait is what the lab knows of a kind.
type trait struct {
	op      upstream.Op
	model   string
	dialect upstream.Op // what the vendor speaks
	share   int         // of all requests
	streams int         // of a hundred
}

// traits is every kind. The models of which the gateway has tables are named
// after them, the others mean nothing to it.
var traits = map[Kind]trait{
	Chat:           {upstream.ChatCompletion, "talk-1", upstream.ChatCompletion, 30, 70},
	ChatByMessages: {upstream.ChatCompletion, "talk-2", upstream.Messages, 9, 70},
	Messages:       {upstream.Messages, "talk-2", upstream.Messages, 15, 70},
	MessagesByChat: {upstream.Messages, "talk-1", upstream.ChatCompletion, 9, 70},
	Responses:      {upstream.Responses, "talk-3", upstream.Responses, 12, 70},
	ResponseByChat: {upstream.Responses, "talk-1", upstream.ChatCompletion, 9, 70},
	Embeddings:     {upstream.Embeddings, "vector-1", upstream.Embeddings, 12, 0},
	Rank:           {upstream.Rerank, "ranker-1", upstream.Rerank, 6, 0},
	Judge:          {upstream.Moderations, "judge-1", upstream.Moderations, 4, 0},
	Image:          {upstream.GenerateImage, "imagegen-1", upstream.GenerateImage, 7, 60},
	Print:          {upstream.GenerateImage, "imagegen-legacy-2", upstream.GenerateImage, 3, 0},
	Edit:           {upstream.EditImage, "imagegen-1", upstream.EditImage, 4, 50},
	Speech:         {upstream.Speech, "voice-1", upstream.Speech, 8, 0},
	Beta:           {upstream.SubmitVideo, "beta2.6-t2v", upstream.SubmitVideo, 2, 0},
	Gamma:          {upstream.SubmitVideo, "gamma-1-0-pro-250528", upstream.SubmitVideo, 1, 0},
}

// Kinds are all kinds in a fixed order.
func Kinds() []Kind {
	return []Kind{Chat, ChatByMessages, Messages, MessagesByChat, Responses, ResponseByChat, Embeddings, Image, Print, Edit, Speech, Beta, Gamma, Rank, Judge}
}

// Talks reports whether the kind is a conversation, in any dialect.
func (k Kind) Talks() bool {
	return slices.Contains([]upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Responses}, traits[k].op)
}

// Lists reports whether the kind is a list of texts, which is all or nothing. It is cut into
// parts, unless it is judged.
func (k Kind) Lists() bool { return k == Embeddings || k == Rank || k == Judge }

// IsVideo reports whether the kind is a video, whose end comes after its call's.
func (k Kind) IsVideo() bool { return traits[k].op == upstream.SubmitVideo }

// translated reports whether the gateway turns one dialect into the other.
func (k Kind) translated() bool { return traits[k].op != traits[k].dialect }

// Case is one request as a script: what is asked, by whom, what the vendor does
// with each attempt, and what the client does meanwhile. It is made of a seed and
// a number, and can be written down and played again.
type Case struct {
	Seed   uint64 `json:"seed"`
	Number int    `json:"number"`
	Kind   Kind   `json:"kind"`
	Stream bool   `json:"stream,omitempty"`
	Payer  int    `json:"payer"`

	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens,omitempty"`
	ShowUsage bool   `json:"show_usage,omitempty"`
	Texts     int    `json:"texts,omitempty"`    // of embeddings, and documents of rankings
	Pictures  int64  `json:"pictures,omitempty"` // that are asked for
	Partials  int64  `json:"partials,omitempty"` // partial pictures that are asked for
	Seconds   int64  `json:"seconds,omitempty"`  // of video
	Video     Video  `json:"video,omitzero"`

	// Key is the idempotency key of all copies; empty for none.
	Key    string        `json:"key,omitempty"`
	Pause  time.Duration `json:"pause"` // before the request
	Copies []Copy        `json:"copies"`
}

// Copy is one of several requests that are equal to the byte. One without an
// idempotency key has no other beside it.
type Copy struct {
	After  time.Duration `json:"after,omitempty"` // the first
	Client Client        `json:"client"`
	// Attempts are what the vendors do, for each part of the request that is asked
	// for by itself, attempt by attempt.
	Attempts [][]attemptScript `json:"attempts"`
}

// Client is what a client does besides reading.
type Client struct {
	Leaves Leaving       `json:"leaves,omitempty"`
	At     time.Duration `json:"at,omitempty"`    // of leaving, since it asked
	Reads  int           `json:"reads,omitempty"` // after which it leaves
	Slow   time.Duration `json:"slow,omitempty"`  // what it waits before each read
	Sends  time.Duration `json:"sends,omitempty"` // how long it takes to send its request
	Beats  bool          `json:"beats,omitempty"` // it wants to hear heartbeats
}

// Leaving is how a client goes away.
type Leaving string

// How clients disconnect.
const (
	Stays   Leaving = ""
	Early   Leaving = "early"   // before it has asked
	AtTime  Leaving = "at"      // its connection ends at a time
	Closing Leaving = "closing" // it closes the answer after some reads
)

// Video is what becomes of a video after its submission.
type Video struct {
	End     string        `json:"end,omitempty"`     // succeeded, failed, cancelled or never
	After   time.Duration `json:"after,omitempty"`   // its submission
	Tokens  int64         `json:"tokens,omitempty"`  // that are reported; negative for no report
	Trouble int           `json:"trouble,omitempty"` // of a hundred polls
}

// String is the script as JSON.
func (c *Case) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// attemptScript is what a vendor does when it is asked.
type attemptScript struct {
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

// Trouble is what goes wrong with an attempt.
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
