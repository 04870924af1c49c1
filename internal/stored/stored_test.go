package stored_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/responses/state"
)

func TestAResponseSaysWhetherItIsKept(t *testing.T) {
	const ask = `"input":"one"`
	for _, row := range []struct {
		name   string
		mode   stored.Mode
		ask    string
		more   string // a member of the response in place of the vendor's
		edit   func(*store)
		logged bool
		kept   bool
	}{
		{name: "here", mode: stored.Here, ask: ask, kept: true},
		{name: "here, whatever the vendor says", mode: stored.Here, ask: ask, more: "store=false", kept: true},
		{name: "here, cut for its length", mode: stored.Here, ask: ask, more: `status="incomplete"`, kept: true},
		{name: "the request asks for it", mode: stored.Here, ask: ask + `,"store":true`, kept: true},
		{name: "the request forbids it", mode: stored.Here, ask: ask + `,"store":false`},
		{name: "the response failed", mode: stored.Here, ask: ask, more: `status="failed"`},
		{name: "the response has no end", mode: stored.Here, ask: ask, more: `status="in_progress"`},
		{name: "the store is away", mode: stored.Here, ask: ask, edit: func(s *store) { s.err = errors.New("away") }, logged: true},
		{name: "the store panics", mode: stored.Here, ask: ask, edit: func(s *store) { s.broken = true }, logged: true},
		{name: "the account keeps what it may", mode: stored.Here, ask: ask, edit: func(s *store) { s.full = true }, logged: true},
		{name: "larger than a request can go on from", mode: stored.Here, ask: ask, more: `x="` + strings.Repeat("x", stored.MostBytes) + `"`, logged: true},
		{name: "an id that nothing can refer to", mode: stored.Here, ask: ask, more: `id="a b"`, logged: true},
		{name: "no id", mode: stored.Here, ask: ask, more: `id=null`, logged: true},
		{name: "at its vendor", mode: stored.AtVendors, ask: ask, more: "store=true", kept: true},
		{name: "at no vendor", mode: stored.AtVendors, ask: ask, more: "store=false"},
		{name: "at a vendor that does not say", mode: stored.AtVendors, ask: ask},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(row.mode)
			if row.edit != nil {
				row.edit(l.store)
			}
			var more []string
			if row.more != "" {
				more = []string{row.more}
			}
			_, got := l.keep(t, "local", row.ask, more...)
			if said := string(rawjson.Lookup([]byte(got), "store")); said != fmt.Sprint(row.kept) || (len(l.store.put) == 1) != row.kept {
				t.Errorf("it says %q, and %d are kept", said, len(l.store.put))
			}
			if logged := strings.Contains(l.log.String(), "storing a response failed"); logged != row.logged {
				t.Errorf("the log has %q", l.log.String())
			}
		})
	}
}

// A response whose vendor gives all of them one id would go on from itself.
func TestAResponseDoesNotGoOnFromItself(t *testing.T) {
	l := newLab(stored.Here)
	l.keep(t, "local", `"input":"one"`)
	if _, got := l.keep(t, "local", `"previous_response_id":"resp_1","input":"x"`, `id="resp_1"`); !strings.Contains(got, `"store":false`) || !strings.Contains(got, `"previous_response_id":"resp_1"`) || len(l.store.put) != 1 {
		t.Errorf("got %s", got)
	}
}

func TestAResponseIsKeptWithItsInputAndWhatMadeIt(t *testing.T) {
	items := []string{"rs_1", "rs_gone_1", "msg_1", "fc_1"}
	for _, mode := range []stored.Mode{stored.Here, stored.AtVendors} {
		l := newLab(mode)
		l.keep(t, "local", `"input":"four words"`, "store=true")
		turn, got := l.keep(t, "local", `"previous_response_id":"resp_1","input":"four words"`, "store=true")
		row := l.store.put[1]
		if !row.Created.Equal(l.now) || row.Expires.Sub(row.Created) != time.Hour || row.Account != "local" || row.ID != "resp_2" || row.Previous != "resp_1" || row.Model != "m" || row.Channel != "a" || row.Key != "1" {
			t.Errorf("%v: kept %+v", mode, row)
		}
		if !slices.Equal(l.store.put[0].Items, items) {
			t.Errorf("%v: found by %q, want %q", mode, l.store.put[0].Items, items)
		}
		if mode == stored.AtVendors {
			if row.Body != nil || row.Tokens != 100+30 || l.Open(&row) != nil {
				t.Errorf("of what a vendor keeps: %d bytes and %d tokens", len(row.Body), row.Tokens)
			}
			continue
		}
		for _, clear := range []string{"four words", "answer 2", "message", "thoughts"} {
			if bytes.Contains(row.Body, []byte(clear)) {
				t.Errorf("the row has %q in clear", clear)
			}
		}
		opened := l.Open(&row)
		if opened == nil || string(opened.Response) != got || len(opened.Input) != 1 || !turn.NeedsRequest() {
			t.Errorf("opened %s, want %s", opened, got)
		}
	}
}

// A vendor that does not say how long a conversation is makes no later turn cheaper.
func TestAConversationAtAVendorHasItsTokensAndThoseBefore(t *testing.T) {
	l := newLab(stored.AtVendors)
	l.keep(t, "local", `"input":"one"`, "store=true", `usage={"input_tokens":70000,"output_tokens":30}`)
	for ask, want := range map[string]int64{
		`"previous_response_id":"resp_1","input":"x"`:             70_030,
		`"input":[{"id":"msg_1"},{"id":"rs_1"}]`:                  70_030, // of one response, once
		`"previous_response_id":"resp_1","input":[{"id":"rs_1"}]`: 70_030,
		`"input":"one"`: 0,
		`"input":[{"id":"rs_1","type":"reasoning","summary":[]},{"role":"user","content":"x"}]`: 70_030,
	} {
		turn, r, err := l.ask(t, "local", "request", ask)
		if err != nil {
			t.Fatal(ask, err)
		}
		if channel, key := turn.At(); r.Added.Tokens != want || r.Added.AtVendor != (want > 0) || want > 0 && (channel != "a" || key != "1") {
			t.Errorf("%s: %+v at %q, %q, want %d tokens", ask, r.Added, channel, key, want)
		}
	}
}

func TestWhatIsKeptIsReadByItsAccountAndItsSecretAlone(t *testing.T) {
	first := newLab(stored.Here, "old")
	first.keep(t, "local", `"input":"one"`)
	own := first.store.put[0]
	moved, short, damaged := own, own, own
	moved.Account, short.Body, damaged.Body = "other", []byte("x"), slices.Clone(own.Body) // by one who can write to the database
	damaged.Body[len(damaged.Body)-1] ^= 1
	for _, row := range []struct {
		name    string
		secrets []string
		row     state.Response
		ok      bool
	}{
		{"the same secret", []string{"old"}, own, true},
		{"a newer one before it", []string{"new", "old"}, own, true},
		{"another account's row", []string{"old"}, moved, false},
		{"another secret", []string{"new"}, own, false},
		{"a row that is cut short", []string{"old"}, short, false},
		{"a row that is damaged", []string{"old"}, damaged, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(stored.Here, row.secrets...)
			if err := l.store.Store.Put(t.Context(), row.row); err != nil {
				t.Fatal(err)
			}
			opened := l.Open(&row.row)
			if _, _, err := l.ask(t, row.row.Account, "request", `"previous_response_id":"resp_1","input":"x"`); (opened != nil) != row.ok || (err == nil) != row.ok || err != nil && !fault.Is(err, fault.ResponseNotFound) {
				t.Errorf("opened %v; followed: %v", opened, err)
			}
			if logged := strings.Contains(l.log.String(), "cannot be read"); logged == row.ok {
				t.Errorf("the log has %q", l.log.String())
			}
		})
	}
}

func TestAStoreThatIsAwayIsNoWrongID(t *testing.T) {
	for name, row := range map[string]struct {
		edit func(*store)
		code fault.Code
	}{
		"away":   {func(s *store) { s.err = errors.New("away") }, fault.ServiceUnavailable},
		"panics": {func(s *store) { s.broken = true }, fault.InternalError},
	} {
		for _, mode := range []stored.Mode{stored.Here, stored.AtVendors} {
			l := newLab(mode)
			row.edit(l.store)
			_, found := l.Find(t.Context(), "local", "resp_1")
			_, deleted := l.Delete(t.Context(), "local", "resp_1")
			errs := []error{found, deleted}
			for _, ask := range []string{
				`"previous_response_id":"resp_1","input":"x"`, `"input":[{"id":"msg_1"}]`,
				`"input":[{"type":"mcp_approval_response","approval_request_id":"fc_1","approve":true}]`, `"input":"x","tools":[{"type":"code_interpreter","container":"cntr_1"}]`,
			} {
				_, _, err := l.ask(t, "local", "request", ask)
				errs = append(errs, err)
			}
			for i, err := range errs {
				if !fault.Is(err, row.code) {
					t.Errorf("%s, %v, row %d: got %v, want %s", name, mode, i, err, row.code)
				}
			}
		}
	}
}

func TestAnAccountAboveItsQuotaIsInTheLogOnceAMinute(t *testing.T) {
	l := newLab(stored.Here)
	l.store.full = true
	for minute := range 3 {
		for range 5 {
			l.keep(t, "local", `"input":"one"`)
		}
		if got := strings.Count(l.log.String(), "storing a response failed"); got != minute+1 || strings.Contains(l.log.String(), "level=ERROR") {
			t.Errorf("after %d minutes %d lines: %s", minute, got, l.log.String())
		}
		l.now = l.now.Add(time.Minute)
	}
}

// A response stays if its request is charged, and not otherwise.
func TestAResponseIsKeptByItsSettlementOrUntilThatFails(t *testing.T) {
	var none *stored.Turn
	none.Discard()
	for _, settles := range []bool{true, false} {
		l := newLab(stored.Here)
		l.store.settles = settles
		turn, got := l.keep(t, "local", `"input":"one"`)
		if !strings.Contains(got, `"store":true`) || (len(l.store.put) == 0) != settles {
			t.Errorf("by the meter %t: %d are kept before the settlement: %s", settles, len(l.store.put), got)
		}
		for reason, want := range map[string]bool{
			billing.ReasonComplete: settles, billing.ReasonClientGone: settles, billing.ReasonUpstreamFailed: false, billing.ReasonBalanceEnded: false,
		} {
			records := turn.Settled(reason)
			if len(records) > 0 != want || want && records[0].(state.Response).ID != "resp_1" {
				t.Errorf("by the meter %t, %s: the settlement keeps %+v", settles, reason, records)
			}
		}
		turn.Discard()
		if found, err := l.Find(t.Context(), "local", "resp_1"); err != nil || found != nil {
			t.Errorf("by the meter %t: after a settlement that failed %+v is kept, %v", settles, found, err)
		}
		l.turns--
		l.store.settles = false
		l.keep(t, "local", `"input":"one"`)
		turn.Discard() // again, which does nothing
		if found, err := l.Find(t.Context(), "local", "resp_1"); err != nil || found == nil {
			t.Errorf("by the meter %t: the response of another request is gone, %v", settles, err)
		}
	}
	l := newLab(stored.Here)
	turn, _ := l.keep(t, "local", `"input":"one"`)
	l.store.broken = true
	if turn.Discard(); !strings.Contains(l.log.String(), "deleting a response that was not settled failed") {
		t.Errorf("the log has %q", l.log.String())
	}
}

func TestTheEventsBeforeTheLastKeepNothing(t *testing.T) {
	l := newLab(stored.Here)
	turn, _, err := l.ask(t, "local", "request", `"input":"one"`)
	if err != nil {
		t.Fatal(err)
	}
	turn.Answered(t.Context(), "a", "1")
	if got := string(turn.Edit(answer(1, `status="in_progress"`), false)); !strings.Contains(got, `"store":true`) || len(l.store.put) != 0 || turn.Settled(billing.ReasonComplete) != nil {
		t.Errorf("%d are kept: %s", len(l.store.put), got)
	}
	if got := string(turn.Edit([]byte("no JSON"), false)); got != "no JSON" {
		t.Errorf("got %s", got)
	}
}

func TestTheInputOfAResponseHasTheConversationBeforeIt(t *testing.T) {
	l := newLab(stored.Here)
	l.keep(t, "local", `"input":[{"id":"own_1","role":"user","content":"one"},{"role":"user","content":"x"}]`)
	for n := 2; n <= 3; n++ {
		l.keep(t, "local", fmt.Sprintf(`"previous_response_id":"resp_%d","input":[{"id":"own_%d","role":"user","content":"x"}]`, n-1, n))
	}
	list := func(page stored.Page) (ids string, found bool, err error) {
		row, err := l.Find(t.Context(), "local", "resp_3")
		if err != nil {
			t.Fatal(err)
		}
		l.store.reads = 1
		items, found, err := l.Input(t.Context(), row, page, &l.memory)
		for _, item := range items {
			ids += item.ID + " "
		}
		return strings.TrimSpace(ids), found, err
	}
	const all = "own_3 fc_2 msg_2 rs_gone_2 rs_2 own_2 fc_1 msg_1 rs_gone_1 rs_1 item_1_resp_1 own_1"
	for _, row := range []struct {
		page  stored.Page
		want  string // the beginning of what is read for the page
		reads int    // responses, of three
	}{
		{stored.Page{Limit: 20, Ascending: true}, "own_1 item_1_resp_1 rs_1 rs_gone_1 msg_1 fc_1 own_2 rs_2 rs_gone_2 msg_2 fc_2 own_3", 3},
		{stored.Page{Limit: 1, Ascending: true}, "own_1 item_1_resp_1 rs_1", 3},
		{stored.Page{Limit: 20}, all, 3},
		{stored.Page{Limit: 2}, "own_3 fc_2 msg_2 rs_gone_2 rs_2 own_2", 2},
		{stored.Page{Limit: 2, After: "fc_2"}, "own_3 fc_2 msg_2 rs_gone_2 rs_2 own_2", 2},
		{stored.Page{Limit: 2, After: "rs_2"}, all, 3},
		{stored.Page{Limit: 1, After: "own_1", Ascending: true}, "own_1 item_1_resp_1", 3},
	} {
		if got, found, err := list(row.page); err != nil || !found || !strings.HasPrefix(got, row.want) || l.store.reads != row.reads {
			t.Errorf("%+v: %s after %d reads, %v, want %s after %d", row.page, got, l.store.reads, err, row.want, row.reads)
		}
	}
	l.memory = budget{left: int64(len(l.store.put[1].Body))}
	if _, _, err := list(stored.Page{Limit: 20}); !fault.Is(err, fault.ServiceUnavailable) {
		t.Errorf("without memory for the first: %v", err)
	}
	l.memory = budget{left: 1 << 20}
	if _, err := l.Delete(t.Context(), "local", "resp_1"); err != nil { // what is left of the conversation is listed
		t.Fatal(err)
	}
	if got, found, err := list(stored.Page{Limit: 20, Ascending: true}); err != nil || !found || !strings.HasPrefix(got, "own_2 rs_2") {
		t.Errorf("after the first was deleted: %s, %v", got, err)
	}
	if _, found, err := l.Input(t.Context(), &state.Response{ID: "resp_9", Account: "local", Body: []byte("x")}, stored.Page{}, &l.memory); err != nil || found {
		t.Errorf("what cannot be read is found: %t, %v", found, err)
	}
}
