package upstream

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Call is one request on its way to an upstream.
type Call struct {
	Op        Op
	Model     string // the public model id before a Router, the upstream's own after it
	Stream    bool   // the reply is wanted as server-sent events
	RequestID string // the gateway's id of the operation; the same for every attempt
	Account   string // whose request it is; empty where there is one account only. A Router counts failures by it
	TaskID    string // the vendor's id of the video that a PollVideo asks for, or of the response that it keeps
	Channel   string // the only channel that a Router may ask; empty for any that serves the model
	// Key is the [Key.ID] of the only key that the channel's driver may use: the vendor
	// keeps what the call refers to for its account. Empty for any.
	Key string
	// RefusedKeys are the [Key.ID]s of keys that the vendor refused in earlier attempts of the
	// call. A Router sets them, and the driver uses other keys.
	RefusedKeys []string
	// Session is the conversation that the call belongs to. A Router asks the same channel, and
	// its driver uses the same key, for all calls of a session while they can. It is zero for a
	// call without a session.
	Session Session
	// Test says that an operator tries a channel. The result counts neither for nor against the
	// channel, except that a key which the vendor refuses or limits is put aside. After a good
	// answer the caller may reset the channel's health (package router).
	Test bool
	// MaxWait is how long the call waits in all: for a channel at its limit, or for one that
	// says when to come back. 0 means a second. Parts of a split request wait longer, because
	// the vendor already bills the others.
	MaxWait time.Duration
	// Caller is closed when no one waits for the answer any more. A Router then asks no further
	// channel and ends its waits. A running attempt goes on. It is nil for a call that needs no
	// caller.
	Caller      <-chan struct{}
	ContentType string
	Body        Body
	// Request is the typed view of the body ("*chat.Request", …). It is read-only. It is what
	// the client sent, with the bound of output that the gateway set, and without the edits that
	// a channel makes to Body.
	Request any
	// Alias, if not nil, returns the name that a vendor gets for an account's own name. So two
	// accounts with one name have two there. A Router gives such members of the body their
	// aliases.
	Alias func(account, name string) string
	// Reserve, if not nil, waits for memory for an answer of that many bytes that a driver keeps
	// whole. release gives the memory back.
	Reserve func(ctx context.Context, bytes int64) (release func(), err error)
	// Header holds the client's protocol headers for an upstream of the same dialect. It may be
	// nil.
	Header http.Header
	// MaxOutput is the most output tokens of one candidate, for an upstream that
	// needs a bound where the caller gave none.
	MaxOutput int64
	// CachePrompts is the channel's (router.Channel.CachePrompts); set by a Router.
	CachePrompts bool
	// Thinking is the channel's (router.Channel.Thinking); set by a Router.
	Thinking string
	// Drop is the channel's (router.Channel.Drop), for what refuses a field before the
	// channel's edits come to it; set by a Router.
	Drop []string
	// Query is the part of the client's query string for an upstream of the same dialect
	// ("beta=true"). It may be empty.
	Query string
}

// Session names a conversation without telling whose or which: it is a keyed hash of
// the account and of what the caller calls it.
type Session [16]byte

// Reply is an upstream's 2xx answer in the public wire.
type Reply struct {
	Status int
	Header http.Header // only what may reach the client; may be nil
	Body   io.ReadCloser
	// Channel is the name of the channel that answered; set by a Router.
	Channel string
	// Key is the [Key.ID] of the vendor's key that the call used. It may be empty.
	Key string
	// Used is the key itself. A Router reports to it how the answer was judged: an error inside
	// a 200 counts against the key, and its text is masked. It is nil if there was no key, or if
	// the driver has reported already.
	Used *Key
	// RetryAfter is how long the vendor asks to wait should the answer hold an error; 0 if it
	// does not say.
	RetryAfter time.Duration
	// Moved says that the answer did not come from the first channel or key in the session's
	// order, so that a prompt cache was missed.
	Moved bool
	// Dropped are the request fields that the upstream refuses and that were
	// left out: by its driver, and, as its channel says, by a Router.
	Dropped []string
	// Attempts are those of the call, the one that was answered last. A Router sets them
	// once the answer counts, and returns a Reply with nothing else beside an error.
	Attempts []Attempt
	// Drain is the channel's (router.Channel.Drain); set by a Router.
	Drain time.Duration
	// Withheld is for how long the reader left the answer unread for reasons of its own. It
	// sets it before it ends the attempt (package router), so that the channel is not taken
	// for slow.
	Withheld time.Duration
}

// Attempt is one try of a Router at one channel.
type Attempt struct {
	Channel  string
	Model    string // the upstream's id
	Again    bool   // it is not the call's first
	Started  time.Time
	Duration time.Duration // until the answer was accepted or refused
	Err      error         // nil if the attempt was accepted
	Sent     bool          // the vendor may have got the request; what was not sent costs nothing
	Refused  bool          // the vendor refused before any work (429, 503, 529), which costs nothing
	Status   int           // the vendor's HTTP status; 0 if there was none
}

type wireContext struct{}

// WithWire returns a context in which calls to vendors carry h beside what their drivers send.
// h has the headers of a trace ("traceparent") or of a proxy. A header that a driver sets wins
// over h. h must not change afterwards.
func WithWire(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, wireContext{}, h)
}

// Wire is what [WithWire] put into the context; nil if nothing. A driver that
// calls a vendor over HTTP adds it to each request, and must not change it.
func Wire(ctx context.Context) http.Header {
	h, _ := ctx.Value(wireContext{}).(http.Header)
	return h
}
