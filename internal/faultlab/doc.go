// Package faultlab plays the gateway's bad days: thousands of requests whose
// vendors and clients do what a script says, hours of virtual time in seconds,
// and after it each charge compared with what an oracle makes of the scripts
// alone.
//
// # What is played
//
// A [Case] is one request as a value: what is asked and by whom, what the vendor
// does with each try, what the client does meanwhile, and whether there are
// duplicates with the same idempotency key. [Draw] makes it of a seed and a
// number, and String writes it down. Around the cases [Simulate] puts reloads
// with other prices, moments in which the ledger is away, hangs or loses its
// word or in which every vendor fails, restarts of the gateway over the same ledger, and payers whose money or
// limits end. All of it runs in the bubble of a testing/synctest, so that time
// passes only when everybody waits, and so that a goroutine which is left behind
// is a failure.
//
// The same script can be played by an [upstream.Upstream] in process, which is
// fast, or behind real drivers on raw connections (Options.Wire), and its client
// can come in process or over HTTP on a connection that it cuts (Options.HTTP).
//
// # What must hold
//
// Safety, while things go wrong: a charge is to the nano-unit what the oracle
// says; the ledger's invariants hold and its sums are those of the receipts; a
// request has one log line, which tells its charge; a hold is settled once; an
// idempotency key pays once and its duplicates get what the first request got;
// what a vendor may have done is not asked for again where that is not allowed;
// extra tries are a fifth of the calls; a vendor is let go when its client
// leaves, within 100 ms.
//
// Liveness, when nothing goes wrong any more: every hold, capture, task and slot
// ends within a bounded time, and every new request succeeds.
//
// # The oracle
//
// It knows the script, how many bytes of an answer the gateway had read, and when
// the client left. It shares no code with the gateway: who pays is the table "Who
// pays when it ends badly" again, what was used is counted from what the script
// means and not from its bytes, and prices are multiplied as exact fractions. The
// times of vendors are whole microseconds and clients leave between two of them,
// so that it is never in doubt what came first.
//
// # What is not exact
//
// Some charges may each be right in two ways. A message that is translated into a
// completion, and breaks between the report of its output and its end, may cost
// that report or the estimate, since the translation tells the report at the end.
// A stream of which the vendor's part had ended early, and whose client left
// before it asked for any of it, may cost the input or nothing. A whole answer
// that is withheld, as its charge could not be recorded, costs nothing, or all of
// it where the ledger had recorded it and only its word was lost. Report.Loose
// counts them: they are a few of ten thousand. What an account that
// runs out of money pays depends on what else it pays for; of it the charge and
// what the operator bears are compared in sum.
//
// A ledger does not lose its word of a hold that it made, since what becomes of
// that is a matter of its own recovery, and it does not hang while a stream ends,
// which is settled under a lock: in a bubble, time stands still for who waits for
// one.
package faultlab
