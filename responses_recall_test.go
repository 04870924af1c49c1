package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const (
	userItem      = `{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}`
	reasoningItem = `{"type":"reasoning","summary":[],"encrypted_content":"thoughts 1"}`
	messageItem   = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"answer 1"}]}`
	callItem      = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}`
	outputItem    = `{"type":"function_call_output","call_id":"call_1","output":"x"}`
)

func TestARequestGoesOnFromWhatItsAccountHasStored(t *testing.T) {
	for _, row := range []struct {
		name, second string
		want         []string
	}{
		{"the response before", `"previous_response_id":"resp_1","input":[` + outputItem + `]`, []string{userItem, reasoningItem, messageItem, callItem, outputItem}},
		{"the response before, in a word", `"previous_response_id":"resp_1","input":"two"`, []string{userItem, reasoningItem, messageItem, callItem, `{"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}`}},
		{"the response before, with nothing new", `"previous_response_id":"resp_1"`, []string{userItem, reasoningItem, messageItem, callItem}},
		{"its items", `"input":[` + userItem + `,{"type":"item_reference","id":"rs_1"},{"type":"item_reference","id":"msg_1"},{"id":"fc_1"},` + outputItem + `]`, []string{userItem, reasoningItem, messageItem, callItem, outputItem}},
		{"thoughts that cannot be read", `"input":[` + userItem + `,{"type":"item_reference","id":"rs_gone_1"},{"type":"item_reference","id":"msg_1"}]`, []string{userItem, messageItem}},
		{"an item twice", `"input":[{"id":"msg_1"},{"id":"msg_1"}]`, []string{messageItem, messageItem}},
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			t.Run(row.name+stream, func(t *testing.T) {
				v := &responsesVendor{}
				k := newStateGateway(t, v, nil)
				k.complete(t, upstream.Responses, `{"model":"m","instructions":"first","max_output_tokens":40,"input":"one"`+stream+`}`)
				_, answer := k.complete(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+row.second+stream+`}`)
				got, body := v.input(t, 2)
				if diff := gocmp.Diff(row.want, got); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if strings.Contains(body, "previous_response_id") || strings.Contains(body, "first") || !strings.Contains(body, `"store":false`) {
					t.Errorf("sent %s", body)
				}
				previous := `"previous_response_id":null`
				if strings.Contains(row.second, "previous") {
					previous = `"previous_response_id":"resp_1"`
				}
				if events := 1 + 2*len(stream)/len(stream+" ")%2; strings.Count(answer, `"store":true`) < events || !strings.Contains(answer, previous) || strings.Contains(answer, "vendor-m") {
					t.Errorf("answered %s", answer)
				}
				if got := k.spent(t); got != micro(100) {
					t.Errorf("spent %s", got)
				}
			})
		}
	}
}

// The chain is read anew from SQLite by each process.
func TestAConversationOfFiftyTurnsOutlivesARestart(t *testing.T) {
	path, v := filepath.Join(t.TempDir(), "test.db"), &responsesVendor{}
	previous := ""
	for turn := range 50 {
		if turn%25 == 0 {
			db, err := sqlite.Open(t.Context(), path, store.Options{})
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			k := newStateGateway(t, v, func(o *gateway.Options) {
				o.Responses.Store, o.Secrets = db.Responses(), []secret.String{db.Secret()}
			})
			for i := range 25 {
				k.complete(t, upstream.Responses, fmt.Sprintf(`{"model":"m","max_output_tokens":40,"input":"question %d"%s}`, turn+i+1, previous))
				previous = fmt.Sprintf(`,"previous_response_id":"resp_%d"`, turn+i+1)
			}
			must(t, db.Close())
		}
	}
	items, body := v.input(t, 50)
	if len(items) != 49*4+1 {
		t.Errorf("%d items were sent", len(items))
	}
	at := 0
	for turn := range 50 {
		next := strings.Index(body[at:], fmt.Sprintf("question %d\"", turn+1))
		if next < 0 {
			t.Fatalf("question %d is missing, or not in its place", turn+1)
		}
		at += next
	}
}

func TestTheThoughtsOfAnotherModelAreLeftOut(t *testing.T) {
	for _, follows := range []string{`"previous_response_id":"resp_1"`, `"input":[` + userItem + `,{"id":"rs_1"},{"id":"msg_1"},{"id":"fc_1"}]`} {
		v := &responsesVendor{}
		k := newStateGateway(t, v, func(o *gateway.Options) {
			o.Prices = billing.NewPriceList(map[string]*billing.Price{"m": price(t, "1", "1"), "n": price(t, "1", "1")})
		})
		k.must(t, upstream.Responses, `{"model":"n","max_output_tokens":40,"input":"one"}`)
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+follows+`}`)
		got, _ := v.input(t, 2)
		if diff := gocmp.Diff([]string{userItem, messageItem, callItem}, got); diff != "" {
			t.Errorf("%s: sent (-want +got):\n%s", follows, diff)
		}
	}
}

// oneReader is a vendor that refuses the thoughts that it has not encrypted itself.
type oneReader struct {
	*responsesVendor
	key  string // of its account
	keys int    // how many more there are
}

func (v oneReader) OnlyKey() (string, bool) { return v.key, v.keys == 0 }

func (v oneReader) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	reply, err := v.responsesVendor.Do(ctx, call)
	if reply != nil {
		reply.Key = v.key
	}
	return reply, err
}

func TestTheThoughtsOfAVendorGoBackToItAlone(t *testing.T) {
	const second = `{"id":"rs_2","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"clear"}],"encrypted_content":"blob"}`
	const clear = `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"clear"}]`
	channel := func(name string, v upstream.Upstream) router.Channel {
		return router.Channel{Name: name, Upstream: v, Models: map[string]string{"m": "m"}}
	}
	for _, row := range []struct {
		name         string
		first, since func(v *responsesVendor) []router.Channel
		read         bool // its vendor gets the thoughts
	}{
		{"one account", func(v *responsesVendor) []router.Channel { return []router.Channel{channel("a", oneReader{v, "1", 0})} }, nil, true},
		{"an account without keys", func(v *responsesVendor) []router.Channel { return []router.Channel{channel("a", v)} }, nil, true},
		{"two keys", func(v *responsesVendor) []router.Channel { return []router.Channel{channel("a", oneReader{v, "1", 1})} }, nil, false},
		{"two channels", func(v *responsesVendor) []router.Channel {
			return []router.Channel{channel("a", oneReader{v, "1", 0}), channel("b", oneReader{v, "2", 0})}
		}, nil, false},
		{"another key since", func(v *responsesVendor) []router.Channel { return []router.Channel{channel("a", oneReader{v, "1", 0})} },
			func(v *responsesVendor) []router.Channel { return []router.Channel{channel("a", oneReader{v, "2", 0})} }, false},
		{"another channel since", func(v *responsesVendor) []router.Channel { return []router.Channel{channel("a", oneReader{v, "1", 0})} },
			func(v *responsesVendor) []router.Channel { return []router.Channel{channel("b", oneReader{v, "1", 0})} }, false},
	} {
		for _, follows := range []string{`"previous_response_id":"resp_1"`, `"input":[{"id":"rs_1"},{"id":"rs_2"},` + userItem + `]`} {
			v, rows := &responsesVendor{more: `,` + second}, &memory.Responses{}
			gatewayOf := func(channels []router.Channel) *stateGateway {
				return newStateGateway(t, v, func(o *gateway.Options) { o.Upstream, o.Responses.Store = newRouter(t, channels...), rows })
			}
			k := gatewayOf(row.first(v))
			k.must(t, upstream.Responses, askResponse)
			if row.since != nil {
				k = gatewayOf(row.since(v))
			}
			k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+follows+`}`)
			_, body := v.input(t, 2)
			if !strings.Contains(body, clear) || strings.Contains(body, reasoningItem) != row.read || strings.Contains(body, `"blob"`) != row.read {
				t.Errorf("%s, %s: sent %s", row.name, follows, body)
			}
		}
	}
}

func TestATypedRequestGoesOnToo(t *testing.T) {
	v := &responsesVendor{}
	k := newStateGateway(t, v, nil)
	first, err := k.Responses(t.Context(), &responses.Request{Model: "m", MaxOutputTokens: 40, Input: responses.Text("one")})
	must(t, err)
	if _, err := k.Responses(t.Context(), &responses.Request{Model: "m", MaxOutputTokens: 40, PreviousResponseID: first.ID, Input: responses.Items(responses.Item{ID: "msg_1"})}); err != nil {
		t.Fatal(err)
	}
	got, _ := v.input(t, 2)
	if diff := gocmp.Diff([]string{userItem, reasoningItem, messageItem, callItem, messageItem}, got); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

func TestWhatIsStoredIsReadForAModelThatTheKeyMayUse(t *testing.T) {
	k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) { o.Responses.Store = brokenResponses{errors.New("it was read")} })
	stranger := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Models: []string{"other"}})
	if _, err := k.do(stranger, upstream.Responses, `{"model":"m","previous_response_id":"resp_1","input":"x"}`); fault.From(err).HTTPStatus() != http.StatusForbidden {
		t.Errorf("got %v", err)
	}
}

// A duplicate is answered whatever has become of the conversation, of its account's money and
// of the store of responses.
func TestADuplicateReadsNothingThatIsStored(t *testing.T) {
	for _, row := range []struct{ refers, stream string }{
		{`"previous_response_id":"resp_1"`, ""}, {`"previous_response_id":"resp_1"`, `,"stream":true`}, {`"input":[{"id":"msg_1"}]`, ""},
	} {
		for name, lose := range map[string]func(k *stateGateway, now *time.Time) error{
			"deleted": func(k *stateGateway, _ *time.Time) error { return k.DeleteResponse(asAccount(t, "local"), "resp_1") },
			"expired": func(_ *stateGateway, now *time.Time) error { *now = now.Add(2 * time.Hour); return nil },
		} {
			v, now := &responsesVendor{}, time.Now()
			var kept *countedStore
			k := newStateGateway(t, v, func(o *gateway.Options) {
				o.Now = func() time.Time { return now }
				kept = &countedStore{Store: &memory.Responses{Now: o.Now}}
				o.Responses.Retention, o.Responses.Store = time.Hour, kept
			})
			k.must(t, upstream.Responses, askResponse)
			body := `{"model":"m","max_output_tokens":40,` + row.refers + row.stream + `}`
			_, first := k.complete(t, upstream.Responses, body, "once")
			must(t, lose(k, &now))
			if _, err := k.do(t.Context(), upstream.Responses, body, "another"); !fault.Is(err, fault.ResponseNotFound) && !fault.Is(err, fault.ItemNotFound) {
				t.Errorf("%s, %s: a new request: %v", body, name, err)
			}
			must(t, k.ledger.Credit(t.Context(), "local", -k.balance(t).Posted, "taken back"))
			reads := kept.reads
			again := k.must(t, upstream.Responses, body, "once")
			if !again.Replayed || string(again.Body) != first || len(v.calls) != 2 || kept.reads != reads {
				t.Errorf("%s, %s: replayed %v, %d calls, %d reads: %s, want %s", body, name, again.Replayed, len(v.calls), kept.reads-reads, again.Body, first)
			}
			if _, err := k.do(t.Context(), upstream.Responses, strings.Replace(body, "40", "41", 1), "once"); !fault.Is(err, fault.IdempotencyConflict) {
				t.Errorf("%s, %s: another request with the key: %v", body, name, err)
			}
		}
	}
}

func TestADuplicateIsAnsweredAsTheFirstWasAndKeptOnce(t *testing.T) {
	for _, body := range []string{askResponse, askResponseStream} {
		kept := newCountedStore()
		v := &responsesVendor{}
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Store = kept })
		_, first := k.complete(t, upstream.Responses, body, "once")
		_, again := k.complete(t, upstream.Responses, body, "once")
		if first != again || !strings.Contains(again, `"store":true`) || len(kept.kept) != 1 || len(v.calls) != 1 {
			t.Errorf("%d kept, %d calls: %s, %s", len(kept.kept), len(v.calls), first, again)
		}
		if r := kept.kept[0]; r.Expires.Sub(r.Created) != 30*24*time.Hour || r.Channel != "default" || r.Key != "key_1" || !slices.Equal(r.Items, []string{"rs_1", "rs_gone_1", "msg_1", "fc_1"}) {
			t.Errorf("kept %+v", r)
		}
	}
}

func TestARequestPaysForTheConversationThatIsSent(t *testing.T) {
	v := &responsesVendor{}
	k := newStateGateway(t, v, nil) // whose balance is for a million tokens, and a byte may be one
	text := func(bytes int) string { return `"input":"` + strings.Repeat("word ", bytes/5) + `"}` }
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+text(800_000))
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+text(300_000))
	_, err := k.do(t.Context(), upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1",`+text(300_000))
	if !fault.Is(err, fault.InsufficientBalance) || len(v.calls) != 2 {
		t.Errorf("with the conversation before: %v, %d calls", err, len(v.calls))
	}
}

func TestTheBodyOfAStreamStaysInMemoryWhereItIsStored(t *testing.T) {
	const size = 1 << 20
	for _, row := range []struct {
		mode gateway.ResponsesMode
		body string
		want int64
	}{
		{gateway.ResponsesOff, askResponseStream, 0}, {gateway.ResponsesNative, askResponseStream, 0}, {gateway.ResponsesOn, askResponseStream, size},
		{gateway.ResponsesOn, strings.Replace(askResponseStream, `"input"`, `"store":false,"input"`, 1), 0},
	} {
		k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) {
			o.Responses.Mode, o.Admission.Memory = row.mode, 8<<30
		})
		e := authenticated(t, t.Context(), k.Gateway)
		must(t, e.Reserve(size))
		_, err := e.Do(t.Context(), &gateway.Request{Op: upstream.Responses, Body: []byte(row.body)})
		must(t, err)
		if got := k.Load().Bodies; got != row.want {
			t.Errorf("%q, %s: %d bytes are reserved, want %d", row.mode, row.body, got, row.want)
		}
		e.End(200, nil)
		if got := k.Load().Bodies; got != 0 {
			t.Errorf("%q: %d bytes are left", row.mode, got)
		}
	}
}

func TestTwoRequestsGoOnFromOneResponseAtOnce(t *testing.T) {
	v := &responsesVendor{}
	k := newStateGateway(t, v, nil)
	k.must(t, upstream.Responses, askResponse)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := k.do(t.Context(), upstream.Responses, fmt.Sprintf(`{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"branch %d"}`, i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for n := 2; n <= 9; n++ {
		if items, _ := v.input(t, n); len(items) != 5 {
			t.Errorf("call %d: %q", n, items)
		}
		if _, err := k.StoredResponse(asAccount(t, "local"), fmt.Sprint("resp_", n)); err != nil {
			t.Error(err)
		}
	}
}

// endlessResponses is a store in which each response goes on from itself, as one has it whose
// vendor gives all of them one id.
type endlessResponses struct {
	state.Store
	body  []byte
	reads int
}

func (s *endlessResponses) Get(_ context.Context, account, id string) (*state.Response, error) {
	s.reads++
	return &state.Response{ID: id, Account: account, Previous: id, Channel: "default", Body: s.body}, nil
}

func TestAConversationIsRecalledWithinBounds(t *testing.T) {
	source := newCountedStore()
	k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) { o.Responses.Store = source })
	k.must(t, upstream.Responses, askResponse)
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":"`+strings.Repeat("word ", 50_000)+`"}`)
	for i, want := range []string{"more than 1000 responses", "more than 32 MiB"} {
		v, loop := &responsesVendor{}, &endlessResponses{body: source.kept[i].Body}
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Store = loop })
		_, err := k.do(t.Context(), upstream.Responses, `{"model":"m","previous_response_id":"resp_1","input":"x"}`)
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Param != "previous_response_id" || !strings.Contains(f.Message, want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if loop.reads > 1000 || len(v.calls) > 0 {
			t.Errorf("%d responses were read, %d calls", loop.reads, len(v.calls))
		}
	}
}

// An item that a request names many times makes it larger each time.
func TestAnItemIsInsertedWithinBoundsHoweverOftenItIsNamed(t *testing.T) {
	const size = 200_000
	for _, row := range []struct {
		name       string
		references int
		memory     int64 // for bodies; 0 means no limit
		status     int
	}{
		{"few", 3, 0, 200},
		{"more than the bound of one request", 4_000, 0, 400},
		{"more than the gateway has", 100, 16 << 20, 503},
	} {
		for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
			v := &responsesVendor{filler: size}
			k := newStateGateway(t, v, func(o *gateway.Options) {
				o.Admission.Memory, o.Admission.InUse = row.memory, func() int64 { return 0 }
			})
			k.must(t, upstream.Responses, askResponse)
			body := `{"model":"m","max_output_tokens":1,"input":[` + strings.Repeat(`{"id":"msg_1"},`, row.references) + userItem + `]}`
			r, err := k.Do(t.Context(), gateway.Caller{}, &gateway.Request{Op: op, Body: []byte(body)})
			got := 200
			if f := fault.From(err); f != nil {
				got = f.HTTPStatus()
			}
			r.Close()
			if calls := len(v.calls) - 1; got != row.status || (calls > 0) != (row.status == 200) {
				t.Errorf("%s, %s: status %d (%v) after %d calls, want %d", row.name, op, got, err, calls, row.status)
			}
			if left := k.Load().Bodies; left != 0 {
				t.Errorf("%s, %s: %d bytes are still reserved", row.name, op, left)
			}
		}
	}
}

// What a request only names is looked up once for each id, and no body is read for that.
func TestWhatIsOnlyNamedIsLookedUpOnceWithoutItsBody(t *testing.T) {
	const approval = `{"type":"mcp_approval_response","approve":true,"approval_request_id":"%s"}`
	const interpreter = `{"type":"code_interpreter","container":"%s"}`
	for _, row := range []struct {
		name, body string
		code       fault.Code
		reads      int
	}{
		{"approvals", `"input":[` + userItem + strings.Repeat(","+fmt.Sprintf(approval, "msg_1"), 300) + `]`, "", 1},
		{"approvals, and one of nothing", `"input":[` + userItem + strings.Repeat(","+fmt.Sprintf(approval, "msg_1"), 300) + "," + fmt.Sprintf(approval, "msg_9") + `]`, fault.ItemNotFound, 2},
		{"a container", `"input":"x","tools":[` + strings.Repeat(fmt.Sprintf(interpreter, "cntr_1")+",", 99) + fmt.Sprintf(interpreter, "cntr_1") + `]`, "", 1},
		{"a container, and another", `"input":"x","tools":[` + strings.Repeat(fmt.Sprintf(interpreter, "cntr_1")+",", 99) + fmt.Sprintf(interpreter, "cntr_9") + `]`, fault.ItemNotFound, 2},
	} {
		for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
			kept := newCountedStore()
			k := newStateGateway(t, &responsesVendor{filler: 1 << 20, more: `,{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"1","container_id":"cntr_1","outputs":[]}`}, func(o *gateway.Options) {
				o.Responses.Store = kept
			})
			k.must(t, upstream.Responses, askResponse)
			kept.reads, kept.bytes = 0, 0
			_, err := k.do(t.Context(), op, `{"model":"m","max_output_tokens":40,`+row.body+`}`)
			if row.code == "" && err != nil || row.code != "" && !fault.Is(err, row.code) || kept.reads != row.reads || kept.bytes != 0 {
				t.Errorf("%s, %s: %v, after %d reads of %d bytes", row.name, op, err, kept.reads, kept.bytes)
			}
		}
	}
}

func TestNothingIsReadForWhoCannotPayOrHasReachedALimit(t *testing.T) {
	nothing := func(t *testing.T, k *stateGateway) {
		must(t, k.ledger.Credit(t.Context(), "local", -k.balance(t).Posted, "taken back"))
	}
	limited := func(limits auth.Limits) *auth.Principal {
		return &auth.Principal{Account: "local", Key: "k", Limits: limits}
	}
	for _, row := range []struct {
		name   string
		caller *auth.Principal
		before func(t *testing.T, k *stateGateway)
		code   fault.Code
	}{
		{"no balance", limited(auth.Limits{}), nothing, fault.InsufficientBalance},
		{"no budget", limited(auth.Limits{}), func(t *testing.T, k *stateGateway) {
			must(t, k.ledger.SetBudget(t.Context(), "local", "k", new(billing.Money)))
		}, fault.BudgetExceeded},
		{"no tokens left", limited(auth.Limits{TPM: 10}), nil, fault.RateLimitExceeded},
		{"enough of both", limited(auth.Limits{TPM: 1_000, MaxConcurrent: 1}), nil, ""},
	} {
		for _, mode := range []gateway.ResponsesMode{gateway.ResponsesNative, gateway.ResponsesOn} {
			for _, body := range []string{`"previous_response_id":"resp_1","input":"x"`, `"input":[{"id":"msg_1"}]`, `"input":[{"type":"mcp_approval_response","approval_request_id":"fc_1","approve":true}]`} {
				for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
					v, kept := &responsesVendor{store: "true"}, newCountedStore()
					k := newStateGateway(t, v, func(o *gateway.Options) {
						o.Responses.Mode, o.Responses.Store = mode, kept
						o.Limiter = new(auth.MemoryLimiter)
					})
					k.must(t, upstream.Responses, askResponse)
					if row.before != nil {
						row.before(t, k)
					}
					_, err := k.do(auth.NewContext(t.Context(), row.caller), op, `{"model":"m","max_output_tokens":40,`+body+`}`)
					if op == upstream.CountInput && row.code == fault.RateLimitExceeded {
						continue // a count has no tokens of its own
					}
					if row.code == "" && (err != nil || kept.reads == 0) || row.code != "" && (!fault.Is(err, row.code) || kept.reads != 0 || len(v.calls) != 1) {
						t.Errorf("%s, %s, %s %s: %v, after %d reads", row.name, mode, op, body, err, kept.reads)
					}
				}
			}
		}
	}
}

func TestARequestRefersToABoundedNumberOfItems(t *testing.T) {
	for _, mode := range []gateway.ResponsesMode{gateway.ResponsesNative, gateway.ResponsesOn} {
		source := newCountedStore()
		newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) { o.Responses.Store = source }).must(t, upstream.Responses, askResponse)
		loop := &endlessResponses{body: source.kept[0].Body}
		k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) { o.Responses.Mode, o.Responses.Store = mode, loop })
		items := make([]string, 2_000)
		for i := range items {
			items[i] = fmt.Sprintf(`{"id":"msg_%d"}`, i)
		}
		_, err := k.do(t.Context(), upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[`+strings.Join(items, ",")+`]}`)
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || loop.reads > 1_000 {
			t.Errorf("%q: %v, after %d reads", mode, err, loop.reads)
		}
	}
}

func TestThoughtsAreAskedForWhereTheyAreNeededLater(t *testing.T) {
	for _, row := range []struct{ request, want string }{
		{`"reasoning":{"effort":"low"}`, `"include":["reasoning.encrypted_content"]`},
		{`"reasoning":{"effort":"low"},"include":["message.output_text.logprobs"]`, `"include":["message.output_text.logprobs","reasoning.encrypted_content"]`},
		{`"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"]`, `"include":["reasoning.encrypted_content"]`},
		{`"reasoning":{"effort":"low"},"store":false`, ``},
		{`"temperature":1`, ``},
	} {
		v := &responsesVendor{}
		newStateGateway(t, v, nil).must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":"x",`+row.request+`}`)
		if _, body := v.input(t, 1); row.want == "" && strings.Contains(body, "include") || !strings.Contains(body, row.want) {
			t.Errorf("%s: sent %s", row.request, body)
		}
	}
}
