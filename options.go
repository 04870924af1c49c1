package gateway

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/speech/lame"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Options configure a Gateway. Every nil or zero field but Upstream means a
// safe default.
type Options struct {
	// Upstream answers the calls: an *router.Router over many channels, or
	// any other Upstream, which then serves every model. Required.
	Upstream upstream.Upstream
	// Prices are the operator's prices by public model id; a model without one
	// is free. See also RequirePrice.
	Prices *billing.PriceList
	// Models are facts about models, over the built-in tables.
	Models []Model
	// Affinity is that of models without their own; empty means AffinitySession.
	Affinity Affinity
	// RequirePrice is prepaid billing: a model without a price is unknown, for an
	// operation too whose units its price lacks, and request fields that cost money
	// without a price, or choose another model or account, are refused unless the
	// model's channels pass them (router.Channel).
	RequirePrice bool

	// Authenticator finds the principal of a token. Without one every caller is
	// let in and belongs to the account "local".
	Authenticator auth.Authenticator
	// Limiter enforces the limits of principals; nil means one of this
	// process's own.
	Limiter auth.Limiter
	// Meter holds and captures money; nil means billing.Free, which charges
	// nothing.
	Meter billing.Meter

	// Idempotency remembers answers by idempotency key; nil means the Meter, if it keeps
	// answers, else in memory; [New] refuses that beside a durable Meter, since a retry after a
	// crash would be charged twice. If it is the Meter, keys are claimed with the hold and
	// answers kept in the settling transaction; otherwise it has to be an idempotency.Claimer.
	Idempotency idempotency.Store

	// Tasks keeps the tasks of videos; nil means the Meter, if it can, else in
	// memory; [New] refuses that beside a durable Meter: of a store.DB give
	// Ledger() as the Meter. If it is the Meter, a task changes in the settling transaction. Run
	// delivers the webhooks of its tasks if it is a webhook.Outbox too, as memory.Tasks
	// and the stores of this module are.
	Tasks video.Store
	// Video says how tasks are polled and kept.
	Video VideoOptions

	// Responses says what is kept of responses for requests that go on from them.
	Responses ResponsesOptions

	// Secrets are the deployment's: what callers and stores keep sealed for later
	// requests is encrypted with keys that are derived from the first one, and opened
	// with those of any, so that a secret can be replaced. All servers of a deployment
	// need the same. With none there is a random one, which ends with the process. The last
	// one names the sessions of calls, which move where it is another: put there one that
	// stays, such as the Secret() of a store.DB.
	Secrets []secret.String

	// Media bounds the input tokens of pictures and videos.
	Media chat.MediaBound
	// MP3 makes MP3 of speech whose upstream gives WAV only; nil means the lame
	// program on PATH, without which such a request is refused with a 400.
	MP3 speech.Encoder
	// Heartbeat is the silence after which a streaming client over HTTP gets an
	// empty chunk; zero means 15 s, negative never.
	Heartbeat time.Duration
	// SettleTimeout is how long the end of an answer waits for its capture to
	// be durable; zero means 5 s.
	SettleTimeout time.Duration
	// MaxAnswer is the largest non-streamed answer in bytes; zero means 256 MiB, or
	// a quarter of Admission.Memory where that is less, but not under 64 MiB.
	MaxAnswer int64

	// Admission bounds the calls that run at once, and their memory.
	Admission Admission

	// Logger gets one line per request, without prompts and keys; nil discards.
	Logger *slog.Logger
	// Observe gets every request, attempt and event. Each Start and Attempt is given
	// the context of the one before.
	Observe []Observer
	// Now and NewID are the clock and the source of unique ids; nil means the
	// real ones. NewID gets a prefix ("req_") and appends to it.
	Now   func() time.Time
	NewID func(prefix string) string
}

func (o *Options) setDefaults() {
	if o.Meter == nil {
		o.Meter = &billing.Free{}
	}
	if o.Limiter == nil {
		o.Limiter = &auth.MemoryLimiter{Now: o.Now}
	}
	if o.Idempotency == nil { // in memory, a retry after a crash would be charged twice
		o.Idempotency, _ = o.Meter.(idempotency.Store)
	}
	if o.Idempotency == nil {
		o.Idempotency = &memory.Answers{Now: o.Now}
	}
	if o.Tasks == nil {
		o.Tasks, _ = o.Meter.(video.Store)
	}
	if o.Tasks == nil {
		answers, _ := o.Idempotency.(idempotency.Claimer)
		o.Tasks = memory.NewTasks(o.Now, answers)
	}
	o.Admission.setDefaults()
	o.Video.setDefaults(o.Admission.MaxCalls)
	o.Responses.setDefaults(o.Now)
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.MP3 == nil {
		o.MP3 = &lame.Encoder{}
	}
	if o.SettleTimeout == 0 {
		o.SettleTimeout = 5 * time.Second
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = 256 << 20
		if shared := o.Admission.options(nil); shared.Share() > 0 {
			o.MaxAnswer = min(o.MaxAnswer, shared.Share())
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = orderedIDs(o.Now)
	}
}

// checkStores refuses a meter that remembers, beside tasks or idempotency keys that a restart
// forgets. The holds of videos that vendors still make would outlive their tasks, and a request
// that is sent again would be charged again. A meter that keeps answers, too, keeps them with its
// money, and so remembers.
func (o *Options) checkStores() error {
	if _, durable := o.Meter.(idempotency.Store); !durable {
		return nil
	}
	if _, forgets := o.Idempotency.(*memory.Answers); forgets {
		return errors.New("gateway: Options.Meter is durable, but Options.Idempotency keeps answers in memory, where a restart loses them and a retry is charged again; " +
			"leave Idempotency nil, or give the Ledger() of a store.DB as Meter and Idempotency")
	}
	switch o.Tasks.(type) {
	case *memory.Tasks:
		return errors.New("gateway: Options.Meter is durable, but Options.Tasks keeps video tasks in memory, where a restart loses them and their holds stay open; " +
			"give the Ledger() of a store.DB as Meter, Idempotency and Tasks (ledger := db.Ledger())")
	}
	return nil
}

// orderedIDs makes ids of the millisecond and 80 random bits, in base 32. Ids
// that follow each other in time do so in a database's indexes: it touches a
// few pages for many requests, where ids without order touch one for each.
func orderedIDs(now func() time.Time) func(prefix string) string {
	const digits, letters = "0123456789ABCDEFGHIJKLMNOPQRSTUV", 16
	return func(prefix string) string {
		var moment [10]byte
		ms := uint64(now().UnixMilli())
		for i := range moment {
			moment[len(moment)-1-i] = digits[ms>>(5*i)&31]
		}
		var random [letters]byte
		_, _ = rand.Read(random[:]) // it never fails
		for i, b := range random {
			random[i] = digits[b&31]
		}
		return prefix + string(moment[:]) + string(random[:])
	}
}
