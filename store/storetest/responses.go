package storetest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/store"
)

// RunResponses runs the rules of state.Store. open gives each test an empty store,
// whose clock is now.
func RunResponses(t *testing.T, open func(t testing.TB, now func() time.Time) state.Store) {
	for name, test := range responseTests {
		t.Run(name, func(t *testing.T) {
			b := newBase(t)
			test(responseTest{b, open(t, b.clock.Now)})
		})
	}
}

// responseTest is a test of a store of responses.
type responseTest struct {
	base
	state.Store
}

// responseOf is a response of an account, with everything that a store keeps.
func responseOf(account, id string) state.Response {
	return state.Response{
		ID: id, Account: account, Created: startTime, Expires: startTime.Add(time.Hour), Previous: "resp_before", Model: "m",
		Channel: "c", Key: "k", Tokens: 7, Items: []string{"msg_of_" + id, "rs_of_" + id}, Body: []byte{0, 1, 0xff},
	}
}

func (s responseTest) put(r state.Response) {
	s.t.Helper()
	s.ok(s.Admit(r.Account, len(r.Body)))
	s.ok(s.Put(s.t.Context(), r))
}

// want checks what an account finds by an id; nil is nothing.
func (s responseTest) want(account, id string, want *state.Response) {
	s.t.Helper()
	got, err := s.Get(s.t.Context(), account, id)
	s.ok(err)
	if want != nil {
		plain := *want
		plain.Items = nil
		want = &plain
	}
	s.same(id+" of "+account, want, got)
	has, err := s.Has(s.t.Context(), account, id)
	s.ok(err)
	if has != (want != nil) {
		s.t.Errorf("%s of %s: it is there: %t", id, account, has)
	}
}

func (s responseTest) wantDeleted(account, id string, want bool) {
	s.t.Helper()
	got, err := s.Delete(s.t.Context(), account, id)
	s.ok(err)
	if got != want {
		s.t.Errorf("deleting %s of %s: got %t", id, account, got)
	}
}

// responseTests are the sentences of state.Store.
var responseTests = map[string]func(responseTest){
	"AResponseIsFoundByItsIDAndByThoseOfItsItems": func(s responseTest) {
		r := responseOf("acme", "resp_1")
		s.put(r)
		s.want("acme", "resp_1", &r)
		s.want("acme", "msg_of_resp_1", &r)
		s.want("acme", "rs_of_resp_1", &r)
		s.want("acme", "resp_2", nil)
		s.want("acme", "", nil)
		bare := state.Response{ID: "resp_3", Account: "acme", Created: startTime, Expires: startTime.Add(time.Hour)}
		s.put(bare)
		s.want("acme", "resp_3", &bare)
	},
	"AnotherAccountFindsAndDeletesNothing": func(s responseTest) {
		r, same := responseOf("acme", "resp_1"), responseOf("zeta", "resp_1")
		s.put(r)
		for _, id := range []string{"resp_1", "msg_of_resp_1"} {
			s.want("zeta", id, nil)
			s.want("", id, nil)
			s.wantDeleted("zeta", id, false)
		}
		same.Body = []byte("theirs")
		s.put(same) // by a vendor that gives two customers one id
		s.want("acme", "resp_1", &r)
		s.want("zeta", "resp_1", &same)
		s.wantDeleted("zeta", "resp_1", true)
		s.want("acme", "msg_of_resp_1", &r)
	},
	"WhatIsKeptAgainTakesTheOldOnesPlace": func(s responseTest) {
		first, second := responseOf("acme", "resp_1"), responseOf("acme", "resp_1")
		second.Body, second.Items, second.Previous = []byte("second"), []string{"msg_of_resp_1"}, ""
		s.put(first)
		s.put(second)
		s.want("acme", "resp_1", &second)
		s.want("acme", "msg_of_resp_1", &second)
		other := responseOf("acme", "resp_2")
		other.Items = second.Items // by a vendor that gives two items one id
		s.put(other)
		s.want("acme", "msg_of_resp_1", &other)
		s.want("acme", "resp_1", &second)
	},
	"AResponseStaysOneWhateverTheIDsOfItemsAre": func(s responseTest) {
		first, second := responseOf("acme", "resp_1"), responseOf("acme", "resp_2")
		second.Items = []string{"resp_1", "resp_2", "msg_of_resp_2"}
		s.put(first)
		s.put(second)
		s.want("acme", "resp_1", &first)
		s.want("acme", "msg_of_resp_1", &first)
		s.want("acme", "resp_2", &second)
		s.want("acme", "msg_of_resp_2", &second)
		s.wantDeleted("acme", "resp_1", true)
		s.want("acme", "resp_2", &second)
	},
	"WhatIsDeletedIsGoneWithItsItems": func(s responseTest) {
		r, other := responseOf("acme", "resp_1"), responseOf("acme", "resp_2")
		s.put(r)
		s.put(other)
		s.wantDeleted("acme", "msg_of_resp_1", false) // only a response is deleted
		s.wantDeleted("acme", "resp_1", true)
		s.wantDeleted("acme", "resp_1", false)
		s.want("acme", "resp_1", nil)
		s.want("acme", "msg_of_resp_1", nil)
		s.want("acme", "resp_2", &other)
	},
	"WhatHasExpiredIsNotFound": func(s responseTest) {
		r, longer := responseOf("acme", "resp_1"), responseOf("acme", "resp_2")
		longer.Expires = startTime.Add(2 * time.Hour)
		s.put(r)
		s.put(longer)
		s.advance(time.Hour - 1)
		s.want("acme", "resp_1", &r)
		s.advance(1)
		s.want("acme", "resp_1", nil)
		s.want("acme", "rs_of_resp_1", nil)
		s.wantDeleted("acme", "resp_1", false)
		s.want("acme", "resp_2", &longer)
	},
	"ManyAtOnceAreAllKept": func(s responseTest) {
		nth := func(i int) state.Response {
			r := responseOf("acme", fmt.Sprint("resp_", i))
			r.Body = bytes.Repeat([]byte{byte(i)}, 1_000)
			return r
		}
		s.inParallel(50, func(i int) error { return s.Put(s.t.Context(), nth(i)) })
		for i := range 50 {
			s.want("acme", fmt.Sprint("msg_of_resp_", i), new(nth(i)))
		}
	},
}

// storedResponseTests are the rules of responses that are in a database.
var storedResponseTests = map[string]func(dbTest){
	"ResponsesOutliveACrash": func(b dbTest) {
		kept, deleted := responseOf("acme", "resp_1"), responseOf("acme", "resp_2")
		s := responseTest{b.base, b.Responses()}
		s.put(kept)
		s.put(deleted)
		s.wantDeleted("acme", "resp_2", true)
		s.Store = b.crash().Responses()
		s.want("acme", "msg_of_resp_1", &kept)
		s.want("acme", "resp_2", nil)
	},
	"ASweepPurgesTheResponsesThatHaveExpired": func(b dbTest) {
		s := responseTest{b.base, b.Responses()}
		for i := range 3 * 64 { // in several transactions
			s.put(responseOf("acme", fmt.Sprint("resp_", i)))
		}
		later := responseOf("acme", "resp_later")
		later.Expires = startTime.Add(2 * time.Hour)
		s.put(later)
		b.advance(time.Hour)
		b.ok(b.Sweep(b.t.Context()))
		s.want("acme", "resp_later", &later)
		b.clock.Set(startTime) // what is not purged would be found again
		s.want("acme", "resp_0", nil)
		s.want("acme", "msg_of_resp_191", nil)
		s.want("acme", "msg_of_resp_later", &later)
	},
	"AnAccountKeepsABoundedNumberOfBytesADay": func(b dbTest) {
		b.kill()
		b = b.open(store.Options{ResponseBytes: 2_000})
		s := responseTest{b.base, b.Responses()}
		sized := func(account, id string) error {
			r := responseOf(account, id)
			r.Body, r.Expires = make([]byte, 400), startTime.Add(1000*time.Hour)
			if err := s.Admit(account, len(r.Body)); err != nil {
				return err
			}
			return s.Put(s.t.Context(), r)
		}
		b.ok(sized("acme", "resp_1"))
		b.ok(sized("acme", "resp_2"))
		b.wantCode(sized("acme", "resp_3"), fault.InvalidRequest)
		b.ok(sized("zeta", "resp_3"))
		s.want("acme", "resp_3", nil)
		b.advance(24 * time.Hour)
		b.ok(sized("acme", "resp_3"))
		b.ok(sized("acme", "resp_4"))
		b.wantCode(sized("acme", "resp_5"), fault.InvalidRequest)
	},
	"AResponseIsThereOnceItsRequestIsSettled": func(b dbTest) {
		s := responseTest{b.base, b.Responses()}
		if !s.KeptBy(b.Ledger) || s.KeptBy(billing.Free{}) || s.KeptBy(nil) {
			b.t.Error("it is kept by another meter than the one of its database")
		}
		b.account("acme", 10)
		complete := billing.Outcome{Reason: billing.ReasonComplete}
		refused, died, settled := responseOf("acme", "resp_1"), responseOf("acme", "resp_2"), responseOf("acme", "resp_3")
		_, err := b.Settle(b.t.Context(), billing.Hold{ID: "never made", Account: "acme"}, images(1), complete, refused)
		b.wantCode(err, fault.InternalError)
		s.want("acme", "resp_1", nil)
		h := b.reserve("r1", 3)
		if _, err := b.Settle(b.t.Context(), h, images(2), complete, settled); err != nil {
			b.t.Fatal(err)
		}
		s.want("acme", "msg_of_resp_3", &settled)
		other := responseOf("acme", "resp_4")
		if _, err := b.Settle(b.t.Context(), h, images(2), complete, other); err != nil {
			b.t.Fatal(err)
		}
		s.want("acme", "resp_4", nil) // the request had ended before
		late := b.reserve("r2", 3)
		b = b.crash()
		s.Store = b.Responses()
		s.want("acme", "resp_3", &settled)
		if _, err := b.Settle(b.t.Context(), late, images(1), complete, died); err == nil { // the next process has ended it
			s.want("acme", "resp_2", nil)
		}
		b.wantBalance(8, 0)
	},
	"ADatabaseHasOneSecretForGood": func(b dbTest) {
		made := b.Secret().Reveal()
		if again := b.crash().Secret().Reveal(); len(made) < 26 || again != made {
			b.t.Errorf("the secret was %d letters, and is the same after a restart: %t", len(made), again == made)
		}
	},
}
