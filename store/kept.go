package store

import (
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
)

// answerQuota bounds the bytes of idempotent answers that are kept for an account.
// An account may keep half of the limit at once, and the other half spread over
// the time for which answers are kept: so at no time are more bytes than the
// limit kept by this process. It is counted in memory, so that n processes keep
// up to n times as much, and one that starts again counts from 0.
type answerQuota struct {
	limit     int64
	accounts  map[string]*accountAnswers
	cleanupAt int // how many accounts are counted before the idle ones are forgotten
}

// accountAnswers is the count of one account.
type accountAnswers struct {
	bytes   int64 // that were kept, less those that the time since has let go
	pending int64 // of the batch that is being written
	at      int64 // up to when the time was counted
}

// fits reports whether an account may keep an answer of so many bytes, and counts
// them for the batch.
func (k *answerQuota) fits(account string, bytes, now int64) bool {
	of := k.accounts[account]
	if of == nil {
		if len(k.accounts) >= max(k.cleanupAt, 1024) {
			k.removeIdle(now)
		}
		of = &accountAnswers{at: now}
		if k.accounts == nil {
			k.accounts = map[string]*accountAnswers{}
		}
		k.accounts[account] = of
	}
	of.expire(k.limit/2, now)
	if of.bytes+of.pending+bytes > k.limit/2 {
		return false
	}
	of.pending += bytes
	return true
}

// drop forgets what a batch was about to keep that was not committed.
func (k *answerQuota) drop(answers []answer) {
	for i := range answers {
		if of := k.accounts[answers[i].record.Key.Account]; of != nil {
			of.pending = 0
		}
	}
}

// commit counts what the batch has kept.
func (k *answerQuota) commit(answers []answer) {
	for i := range answers {
		if of := k.accounts[answers[i].record.Key.Account]; of != nil {
			of.bytes, of.pending = of.bytes+of.pending, 0
		}
	}
}

// expire lets go of what the time lets go of: most bytes while answers are kept.
func (k *accountAnswers) expire(most, now int64) {
	seconds := (now - k.at) / int64(time.Second)
	if seconds <= 0 {
		k.at = min(k.at, now)
		return
	}
	whole := int64(idempotency.KeptFor / time.Second)
	if seconds >= whole {
		k.bytes, k.at = 0, now
		return
	}
	k.bytes = max(0, k.bytes-(most/whole*seconds+most%whole*seconds/whole))
	k.at += seconds * int64(time.Second)
}

// removeIdle drops the accounts that have nothing left to be counted.
func (k *answerQuota) removeIdle(now int64) {
	for name, of := range k.accounts {
		if of.expire(k.limit/2, now); of.bytes == 0 && of.pending == 0 {
			delete(k.accounts, name)
		}
	}
	k.cleanupAt = 2 * len(k.accounts)
}
