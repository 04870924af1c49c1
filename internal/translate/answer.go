package translate

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// An answer crosses from one wire to the other as a sequence of pieces. Each wire has
// one reader, which makes pieces of an upstream's events or of its whole answer, and
// two writers, which make events or a whole answer of pieces: they are in chat_read.go
// and chat_write.go, messages_read.go and messages_write.go.

// reader makes pieces of an upstream's answer. A body of another form and an error in
// it are a fault.BadGateway.
type reader interface {
	// event reads one event; done says that the answer has ended as it should.
	event(name string, data []byte) (done bool, err error)
	// whole reads a whole answer.
	whole(data []byte) error
}

// writer makes an answer of pieces. They come in this order: begun; what the model
// said, of which one call may be interrupted by others; finished, perhaps more than
// once; ended. idle may come between any two.
type writer interface {
	write(p piece) // its text is the reader's
	flush()        // writes what write has gathered
	made() *written
}

// written is what a writer has made.
type written struct {
	out []byte
	err error // ends the answer: nothing is written after it
}

func (w *written) made() *written { return w }

// flush has nothing to write where each piece is written at once.
func (w *written) flush() {}

// piece is one thing that an answer says.
type piece struct {
	kind pieceKind

	// text is a JSON string: both wires have texts in JSON, and one that is passed on
	// as it came is not decoded.
	text []byte

	// list is elements of a JSON array, in one line: of said, its tokens with their
	// probabilities, if they are known; of cited, places that what was said is from.
	list []byte

	id     string // of begun: the answer's, without the prefix of its wire; of call: the call's
	name   string // of call
	index  int64  // of call: which call it belongs to, by the upstream's count
	size   int    // of signed: bytes of the thought
	reason string // of finished: a word of chat's
	usage  *usage // of begun and ended
}

// pieceKind says what a piece is.
type pieceKind int

const (
	begun     pieceKind = iota // the answer has an id; of its usage only the prompt's side counts
	thought                    // what the model thinks
	signed                     // a thought is over, and text is its vendor's signature
	redacted                   // a thought that only its vendor can read
	encrypted                  // a reasoning item is over, and text is its encrypted_content
	said                       // what the model says
	cited                      // where what it said is from, as a response has it
	declined                   // what it says instead of an answer
	call                       // a call of a tool, or a piece of the arguments of one
	idle                       // nothing, but the upstream is alive
	finished                   // the model has stopped
	ended                      // the answer is complete
)

// noIndex is the index of a call whose upstream gives none.
const noIndex = -2

// usage is what an upstream reported, in disjoint buckets but for reasoning.
type usage struct{ tokencount.Report }

// The fields of a usage. An input that is known is known with all that a cache did.
const (
	input = iota
	cached
	cacheWrite
	output
	reasoning // part of output
)

// count is a member of a usage object: a number, or an object of counts.
type count struct {
	name  string
	known bool // what is not is left out: a 0 would be taken for a count and charged as such
	n     int64
	inner []count
}

// appendCounts appends a usage object.
func appendCounts(dst []byte, counts []count) []byte {
	separator := byte('{')
	for i := range counts {
		c := &counts[i]
		if !c.known {
			continue
		}
		dst = append(append(append(dst, separator, '"'), c.name...), `":`...)
		if separator = ','; c.inner != nil {
			dst = appendCounts(dst, c.inner)
		} else {
			dst = strconv.AppendInt(dst, c.n, 10)
		}
	}
	if separator == '{' {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}
