package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// play performs a script on a breaker. Its words are calls, which end at once:
//
//	ok fail cut refused     a good one; one that fails; one whose answer is cut; one that is not let through
//	begin end:ok end:fail   one that begins and ends later, the first to begin first
//	probes=3                as many as are let through together, and all end well
//	4s                      time passes
//	=open                   the state that the breaker must be in: closed, open or half-open
func play(t *testing.T, b *Breaker, script string) {
	t.Helper()
	now := time.Unix(0, 0)
	var running []Token
	for at, word := range strings.Fields(script) {
		name, arg, _ := strings.Cut(word, "=")
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("word %d, %s: %s", at+1, word, fmt.Sprintf(format, args...))
		}
		good := func(token Token) {
			b.ContentAccepted(token, now)
			b.AnswerEnded(token, now)
		}
		acquire := func() Token {
			token, ok := b.Acquire(now, Call{}, false)
			if !ok {
				fail("the call is not let through")
			}
			return token
		}
		switch name {
		case "ok":
			good(acquire())
		case "fail":
			b.Failed(acquire(), Failure{}, now)
		case "cut":
			token := acquire()
			b.ContentAccepted(token, now)
			b.Failed(token, Failure{AfterContent: true}, now)
		case "refused":
			if _, ok := b.Acquire(now, Call{}, false); ok {
				fail("the call is let through")
			}
		case "begin":
			running = append(running, acquire())
		case "end:ok":
			good(running[0])
			running = running[1:]
		case "end:fail":
			b.Failed(running[0], Failure{}, now)
			running = running[1:]
		case "probes":
			var probes []Token
			for token, ok := b.Acquire(now, Call{}, false); ok && len(probes) < 100; token, ok = b.Acquire(now, Call{}, false) {
				probes = append(probes, token)
			}
			if got := fmt.Sprint(len(probes)); got != arg {
				fail("%s calls are let through together", got)
			}
			for _, token := range probes {
				good(token)
			}
		case "":
			state, _ := b.State(now)
			if got := [...]string{Closed: "closed", HalfOpen: "half-open", Cooldown: "cooldown", Open: "open"}[state]; got != arg {
				fail("it is %s", got)
			}
		default:
			d, err := time.ParseDuration(word)
			if err != nil {
				fail("no such word")
			}
			now = now.Add(d)
		}
	}
}

func TestBreaker(t *testing.T) {
	const opened, back = " fail fail fail =open ", " probes=1 probes=3 probes=7 probes=14 probes=28 =closed "
	for name, script := range map[string]string{
		"opens after three failures in a row":              "fail fail =closed fail =open refused",
		"a success in between starts the count again":      "fail fail ok fail fail =closed fail =open",
		"opens after three cut answers in a row":           "cut cut =closed cut =open",
		"answers that begin well do not hide cut ones":     "cut begin cut begin cut =open",
		"a whole answer starts the count of cuts again":    "cut cut ok cut cut =closed",
		"each opening is twice as long, up to a minute":    opened + "1s fail 1s refused 1s fail 4s fail 8s fail 16s fail 32s fail 59s refused 1s fail 59s refused 1s =half-open",
		"half-open lets one call through":                  opened + "999ms refused 1ms =half-open begin refused end:ok =half-open",
		"each success allows more probes":                  opened + "1s" + back,
		"a failure halves the probes":                      opened + "1s probes=1 probes=3 fail probes=3",
		"a cut probe opens it again":                       opened + "1s probes=1 probes=3 cut =open",
		"a probe that never ends does not block others":    opened + "1s begin refused 1s begin refused 1s begin",
		"calls from before it opened count no more":        "begin begin begin" + opened + "end:ok =open end:fail =open 1s =half-open end:fail =half-open",
		"soon after it closed the next opening is longer":  opened + "1s fail 2s" + back + opened + "3999ms refused 1ms =half-open",
		"ten seconds of service forget one opening":        opened + "1s fail 2s" + back + "10s" + opened + "1999ms refused 1ms =half-open",
		"a long time of service forgets all":               opened + "1s fail 2s" + back + "10m" + opened + "999ms refused 1ms =half-open",
		"nothing is counted twice for a call that failed":  "begin begin end:fail end:fail =closed fail =open",
		"an opening does not end by what began before it":  "begin" + opened + "1s begin end:ok end:ok =half-open",
		"the zero breaker lets any number through at once": "begin begin begin begin =closed",
	} {
		t.Run(name, func(t *testing.T) { play(t, new(Breaker), script) })
	}
}

func TestTheBreakerOfAKeyClosesWithTheFirstSuccess(t *testing.T) {
	b := &Breaker{CloseOnSuccess: true}
	play(t, b, "fail fail fail =open refused 1s begin refused end:ok =closed begin begin end:ok end:ok fail fail fail 999ms refused")
	good := &Breaker{CloseOnSuccess: true}
	play(t, good, "fail ok")
	if good.needsLock.Load() {
		t.Error("a good call still takes the lock")
	}
}
