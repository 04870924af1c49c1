package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// What is decided of stored responses is tested in internal/stored. Here are the order of the
// stages, what is charged, and what is shown.

const (
	userItem      = `{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}`
	reasoningItem = `{"type":"reasoning","summary":[],"encrypted_content":"thoughts 1"}`
	messageItem   = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"answer 1"}]}`
	callItem      = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}`
)

// responsesVendor is a vendor of responses: its nth response is resp_n, says "answer n", calls a
// tool and has thought.
type responsesVendor struct {
	status string // of its responses, completed if empty
	tokens int64  // of their input, 20 if 0
	filler int    // bytes of their text, besides
	more   string // items, behind a comma
	usage  string // in the place of its own
	store  string // what it says of them, true, false or nothing

	mu    sync.Mutex
	calls []*upstream.Call
}

func (v *responsesVendor) Supports(op upstream.Op, _ string) bool {
	return op == upstream.Responses || op == upstream.CountInput
}

func (v *responsesVendor) Do(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls = append(v.calls, call)
	reply := &upstream.Reply{Status: 200, Key: "key_1"}
	if call.Op == upstream.CountInput {
		reply.Body = &closing{Reader: strings.NewReader(`{"object":"response.input_tokens","input_tokens":7}`)}
		return reply, nil
	}
	n, status, store := len(v.calls), v.status, ""
	if status == "" {
		status = "completed"
	}
	if v.store != "" {
		store = `,"store":` + v.store
	}
	response := func(status, output string) string {
		return fmt.Sprintf(`{"id":"resp_%d","object":"response","status":"%s","model":"vendor-m","previous_response_id":null%s,"output":[%s],"usage":%s}`, n, status, store, output, cmp.Or(v.usage, fmt.Sprintf(`{"input_tokens":%d,"output_tokens":30}`, cmp.Or(v.tokens, 20))))
	}
	output := fmt.Sprintf(`{"id":"rs_%[1]d","type":"reasoning","summary":[],"encrypted_content":"thoughts %[1]d"},{"id":"rs_gone_%[1]d","type":"reasoning","summary":[]},`+
		`{"id":"msg_%[1]d","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"answer %[1]d%[2]s"}]},`+
		`{"id":"fc_%[1]d","type":"function_call","status":"completed","call_id":"call_%[1]d","name":"f","arguments":"{}"}`, n, strings.Repeat("x", v.filler)) + v.more
	text := response(status, output)
	kind := "application/json"
	if call.Stream {
		kind = "text/event-stream"
		text = responseEvent("0", "created", `,"response":`+response("in_progress", "")) + responseDelta("1", "answer") + responseEvent("2", status, `,"response":`+text)
	}
	reply.Header, reply.Body = http.Header{"Content-Type": {kind}}, &closing{Reader: strings.NewReader(text)}
	return reply, nil
}

// input are the items of the nth call's input, and all of its body.
func (v *responsesVendor) input(t testing.TB, n int) (items []string, body string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	data, err := v.calls[n-1].Body.Bytes()
	must(t, err)
	o, err := rawjson.Index(data, nil, nil)
	must(t, err)
	for _, item := range rawjson.Elements(o.Raw("input")) {
		items = append(items, string(item))
	}
	return items, string(data)
}

// stateGateway is a gateway that stores responses.
type stateGateway struct {
	*testGateway
	vendor *responsesVendor
	store  state.Store
	log    *bytes.Buffer
}

func newStateGateway(t testing.TB, v *responsesVendor, edit func(*gateway.Options)) *stateGateway {
	t.Helper()
	k := &stateGateway{vendor: v, store: &memory.Responses{}, log: new(bytes.Buffer)}
	k.testGateway = newTestGateway(t, v, "1.00", func(o *gateway.Options) {
		o.Responses = gateway.ResponsesOptions{Mode: gateway.ResponsesOn, Store: k.store}
		o.Secrets = []secret.String{secret.New("the secret of the deployment")}
		o.Logger = slog.New(slog.NewTextHandler(k.log, nil))
		if edit != nil {
			edit(o)
		}
	})
	must(t, k.ledger.CreateAccount(t.Context(), "other", billing.One))
	return k
}

// asAccount is the context of an account's calls.
func asAccount(t testing.TB, account string) context.Context {
	return auth.NewContext(t.Context(), &auth.Principal{Account: account, Key: "k"})
}

// brokenResponses is a store that fails with an error, or panics without one.
type brokenResponses struct{ err error }

func (b brokenResponses) KeptBy(any) bool         { return false }
func (b brokenResponses) Admit(string, int) error { return nil }
func (b brokenResponses) Put(context.Context, state.Response) error {
	if b.err == nil {
		panic("broken")
	}
	return b.err
}
func (b brokenResponses) Get(ctx context.Context, _, _ string) (*state.Response, error) {
	return nil, b.Put(ctx, state.Response{})
}
func (b brokenResponses) Has(ctx context.Context, _, _ string) (bool, error) {
	return false, b.Put(ctx, state.Response{})
}
func (b brokenResponses) Delete(ctx context.Context, _, _ string) (bool, error) {
	return false, b.Put(ctx, state.Response{})
}

// countedStore counts what is read of a store, and has what was put into it.
type countedStore struct {
	state.Store
	reads int // by Get and by Has
	bytes int // of bodies
	kept  []state.Response
}

func newCountedStore() *countedStore { return &countedStore{Store: &memory.Responses{}} }

func (s *countedStore) Get(ctx context.Context, account, id string) (*state.Response, error) {
	s.reads++
	r, err := s.Store.Get(ctx, account, id)
	if r != nil {
		s.bytes += len(r.Body)
	}
	return r, err
}

func (s *countedStore) Has(ctx context.Context, account, id string) (bool, error) {
	s.reads++
	return s.Store.Has(ctx, account, id)
}

func (s *countedStore) Put(ctx context.Context, r state.Response) error {
	s.kept = append(s.kept, r)
	return s.Store.Put(ctx, r)
}

// settledWith is a store that any meter keeps responses for.
type settledWith struct{ state.Store }

func (settledWith) KeptBy(any) bool { return true }

// refusingMeter plays a meter with a bug: it releases the hold, and refuses every settlement.
type refusingMeter struct{ billing.Meter }

func (m refusingMeter) Settle(ctx context.Context, h billing.Hold, _ billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	_, _ = m.Meter.Settle(ctx, h, billing.Usage{}, with...)
	return billing.Receipt{}, fault.New(fault.InternalError, "no")
}

// responseMeter stores the responses among the records of settlements, unless it refuses.
type responseMeter struct {
	billing.Meter
	to     state.Store
	refuse bool
}

func (m responseMeter) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	if m.refuse {
		return refusingMeter{m.Meter}.Settle(ctx, h, u)
	}
	var others []billing.Record
	for _, record := range with {
		if r, ok := record.(state.Response); ok {
			if err := m.to.Put(ctx, r); err != nil {
				return billing.Receipt{}, err
			}
			continue
		}
		others = append(others, record)
	}
	return m.Meter.Settle(ctx, h, u, others...)
}

func TestARequestGoesOnFromWhatIsStored(t *testing.T) {
	v := &responsesVendor{}
	k := newStateGateway(t, v, nil)
	ctx, want := asAccount(t, "local"), []string{userItem, reasoningItem, messageItem, callItem}
	_, first := k.complete(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":"one"}`)
	_, second := k.complete(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","stream":true}`)
	if _, err := k.Responses(t.Context(), &responses.Request{Model: "m", MaxOutputTokens: 40, PreviousResponseID: "resp_1", Input: responses.Items(responses.Item{ID: "msg_1"})}); err != nil {
		t.Fatal(err)
	}
	for n, want := range [][]string{want, append(slices.Clip(want), messageItem)} {
		got, body := v.input(t, n+2)
		if !slices.Equal(got, want) || strings.Contains(body, "previous_response_id") || !strings.Contains(body, `"store":false`) {
			t.Errorf("sent %s, want %q", body, want)
		}
	}
	if events := strings.Count(second, `"store":true`); events != 2 || strings.Count(second, `"previous_response_id":"resp_1"`) != 2 || strings.Contains(second, "vendor-m") {
		t.Errorf("answered %s", second)
	}
	if got, err := k.StoredResponse(ctx, "resp_1"); err != nil || string(got) != first || !strings.Contains(first, `"store":true`) {
		t.Errorf("shown %s, %v, want %s", got, err, first)
	}
	if got, err := k.StoredResponse(ctx, "resp_2"); err != nil || !strings.Contains(second, string(got)) {
		t.Errorf("shown %s, %v, of %s", got, err, second)
	}
	if got := k.spent(t); got != micro(150) {
		t.Errorf("spent %s", got)
	}
}

func TestWhatIsStoredCanBeShownAndDeleted(t *testing.T) {
	k := newStateGateway(t, &responsesVendor{}, nil)
	ctx := asAccount(t, "local")
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[{"id":"own_1","role":"user","content":[{"type":"input_image","image_url":"https://a/b.png"}]}]}`)
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x"}`)
	for _, row := range []struct {
		o    gateway.InputItemsOptions
		want []string // of the page
		no   string   // is not in it
	}{
		{gateway.InputItemsOptions{}, []string{`"first_id":"item_0_resp_2","last_id":"own_1"`, `"has_more":false`}, "thoughts"},
		{gateway.InputItemsOptions{Limit: 1, After: "own_1", Ascending: true}, []string{`"first_id":"rs_1","last_id":"rs_1"`, `"has_more":true`}, "own_1"},
		{gateway.InputItemsOptions{Include: []string{"reasoning.encrypted_content", "message.input_image.image_url"}}, []string{"thoughts 1", "a/b.png"}, "x.png"},
	} {
		page, err := k.ResponseInputItems(ctx, "resp_2", row.o)
		for _, want := range row.want {
			if !strings.Contains(string(page), want) || strings.Contains(string(page), row.no) {
				t.Errorf("%+v: got %s, %v, want %s", row.o, page, err, want)
			}
		}
	}
	for want, o := range map[string]gateway.InputItemsOptions{"after": {After: "nothing"}, "include": {Include: []string{"all"}}} {
		if _, err := k.ResponseInputItems(ctx, "resp_2", o); err == nil || fault.From(err).Param != want {
			t.Errorf("%+v: %v", o, err)
		}
	}
	must(t, k.DeleteResponse(ctx, "resp_1"))
	_, shown := k.StoredResponse(ctx, "resp_1")
	for _, err := range []error{shown, k.DeleteResponse(ctx, "resp_1")} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("after it was deleted: %v", err)
		}
	}
	if _, err := k.StoredResponse(ctx, "resp_2"); err != nil {
		t.Errorf("the response after it: %v", err)
	}
}

func TestWhatAnotherAccountHasStoredIsNotThere(t *testing.T) {
	const missing = `There is no stored response "ID": it was made with "store": false, has been deleted or has expired.`
	off := func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesOff }
	for _, row := range []struct {
		name, account, id, says string
		edit                    func(*gateway.Options)
	}{
		{"another account's", "other", "resp_1", missing, nil},
		{"what was never there", "local", "resp_9", missing, nil},
		{"an item", "local", "msg_1", missing, nil},
		{"nothing is stored", "local", "resp_1", "This gateway does not show or delete stored responses.", off},
		{"it cannot be read", "local", "resp_1", missing, func(o *gateway.Options) {
			o.Responses.Store = otherBody{o.Responses.Store}
		}},
	} {
		k := newStateGateway(t, &responsesVendor{}, row.edit)
		k.must(t, upstream.Responses, askResponse)
		for name, op := range storedOperations {
			err := op.process(asAccount(t, row.account), k.Gateway, row.id)
			if f := fault.From(err); f == nil || f.Code != fault.NotFound || f.HTTPStatus() != 404 || strings.ReplaceAll(f.Message, row.id, "ID") != strings.ReplaceAll(row.says, row.id, "ID") {
				t.Errorf("%s, %s: %v", row.name, name, err)
			}
		}
		if row.account == "local" {
			continue
		}
		if _, err := k.do(asAccount(t, row.account), upstream.Responses, `{"model":"m","input":"x","previous_response_id":"resp_1"}`); !fault.Is(err, fault.ResponseNotFound) || len(k.vendor.calls) != 1 {
			t.Errorf("a request goes on from it: %v", err)
		}
	}
}

// otherBody is a store whose bodies cannot be decrypted.
type otherBody struct{ state.Store }

func (s otherBody) Get(ctx context.Context, account, id string) (*state.Response, error) {
	r, err := s.Store.Get(ctx, account, id)
	if r != nil {
		other := *r
		other.Body = []byte("something else")
		r = &other
	}
	return r, err
}

// The answer is delivered and charged whether or not it is stored.
func TestWhatIsNotStoredSaysSo(t *testing.T) {
	away := func(o *gateway.Options) { o.Responses.Store = brokenResponses{errors.New("away")} }
	for _, row := range []struct {
		name, request string
		edit          func(*gateway.Options)
		says          int // how often the answer says that it is not stored
	}{
		{"the gateway stores nothing", askResponse, func(o *gateway.Options) { o.Responses.Mode = "off" }, 0},
		{"the gateway stores nothing by default", askResponse, func(o *gateway.Options) { o.Responses.Mode = "" }, 0},
		{"the store is away", askResponse, away, 1},
		{"the store is away, of a stream", askResponseStream, away, 1},
	} {
		k := newStateGateway(t, new(responsesVendor), row.edit)
		_, answer := k.complete(t, upstream.Responses, row.request)
		if end := answer[max(strings.LastIndex(answer, "response.completed"), 0):]; strings.Count(end, `"store":false`) != row.says || strings.Contains(end, `"store":true`) {
			t.Errorf("%s: answered %s", row.name, answer)
		}
		if got := k.spent(t); got != micro(50) {
			t.Errorf("%s: spent %s", row.name, got)
		}
	}
}

func TestTheThoughtsOfAVendorGoBackToItAlone(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		v := &responsesVendor{}
		var channels []router.Channel
		for _, name := range names {
			channels = append(channels, router.Channel{Name: name, Upstream: v, Models: map[string]string{"m": "m"}})
		}
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Upstream = newRouter(t, channels...) })
		k.must(t, upstream.Responses, askResponse)
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1"}`)
		if _, body := v.input(t, 2); strings.Contains(body, reasoningItem) != (len(names) == 1) {
			t.Errorf("channels %q: sent %s", names, body)
		}
	}
}

// What is stored is sent again, or is at the vendor: it is paid for either way.
func TestARequestPaysForTheConversationThatItGoesOnFrom(t *testing.T) {
	text := func(bytes int) string { return `"input":"` + strings.Repeat("word ", bytes/5) + `"}` }
	for mode, follows := range map[gateway.ResponsesMode]string{
		gateway.ResponsesOn: `"previous_response_id":"resp_1",` + text(300_000), gateway.ResponsesNative: `"previous_response_id":"resp_1",` + text(5),
	} {
		v := &responsesVendor{store: "true", tokens: 300_000} // of a balance for a million tokens, and a byte may be one
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = mode })
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+text(900_000))
		v.tokens = 20
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+text(300_000)) // which the rest of the balance covers
		if _, err := k.do(t.Context(), upstream.Responses, `{"model":"m","max_output_tokens":40,`+follows); !fault.Is(err, fault.InsufficientBalance) || len(v.calls) != 2 {
			t.Errorf("%s: %v, %d calls", mode, err, len(v.calls))
		}
		if r, err := k.store.Get(t.Context(), "local", "resp_1"); mode == gateway.ResponsesNative && (err != nil || r.Tokens < 900_000) { // whatever the vendor says
			t.Errorf("%s: %+v, %v", mode, r, err)
		}
	}
}

func TestWhatAVendorStoresIsItsAccountsAndGoesBackToTheSameKey(t *testing.T) {
	const follows = `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x"}`
	for _, request := range []string{askResponse, askResponseStream} {
		v := &responsesVendor{store: "true"}
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative })
		if _, answer := k.complete(t, upstream.Responses, request); !strings.Contains(answer, `"store":true`) {
			t.Errorf("answered %s", answer)
		}
		k.must(t, upstream.Responses, follows)
		if _, body := v.input(t, 2); body != follows || v.calls[1].Channel != "default" || v.calls[1].Key != "key_1" {
			t.Errorf("sent %s to %q, %q", body, v.calls[1].Channel, v.calls[1].Key)
		}
		if _, err := k.do(asAccount(t, "other"), upstream.Responses, follows); !fault.Is(err, fault.ResponseNotFound) || len(v.calls) != 2 {
			t.Errorf("another account: %v", err)
		}
	}
}

func TestAStreamThatIsBrokenOffIsNotStored(t *testing.T) {
	kept := newCountedStore()
	k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) { o.Responses.Store = kept })
	r, err := k.do(asAccount(t, "local"), upstream.Responses, askResponseStream)
	must(t, err)
	r.Close()
	if len(kept.kept) != 0 {
		t.Errorf("kept %+v", kept.kept[0].ID)
	}
}

func TestAnAnswerWhoseChargeIsNotRecordedIsWithheldAndNotStored(t *testing.T) {
	for name, edit := range map[string]func(o *gateway.Options){
		"put before the settlement": func(o *gateway.Options) { o.Meter = refusingMeter{o.Meter} },
		"stored by the settlement": func(o *gateway.Options) {
			o.Meter, o.Responses.Store = responseMeter{o.Meter, o.Responses.Store, true}, settledWith{o.Responses.Store}
		},
	} {
		for _, request := range []string{askResponse, askResponseStream} {
			k := newStateGateway(t, &responsesVendor{}, edit)
			r, err := k.do(t.Context(), upstream.Responses, request)
			got := fmt.Sprint(err)
			if err == nil {
				got = drain(t, r.Stream)
				r.Close()
			}
			if !strings.Contains(got, "could not be recorded") || strings.Contains(got, "response.completed") {
				t.Errorf("%s: got %s", name, got)
			}
			if _, err := k.StoredResponse(asAccount(t, "local"), "resp_1"); !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: it is stored: %v", name, err)
			}
		}
	}
}

func TestAResponseIsStoredByItsSettlementAndNotBefore(t *testing.T) {
	for _, request := range []string{askResponse, askResponseStream} {
		kept := newCountedStore()
		k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) {
			o.Meter, o.Responses.Store = responseMeter{o.Meter, kept, false}, settledWith{kept}
		})
		k.complete(t, upstream.Responses, request)
		if len(kept.kept) != 1 || kept.kept[0].ID != "resp_1" {
			t.Errorf("kept %+v", kept.kept)
		}
		k.complete(t, upstream.Responses, strings.Replace(request, `"input"`, `"previous_response_id":"resp_1","input"`, 1))
		if _, err := k.StoredResponse(asAccount(t, "local"), "resp_2"); err != nil {
			t.Error(err)
		}
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

func TestAToolThatIsLeftOutNamesNothing(t *testing.T) {
	const search = `{"model":"m","max_output_tokens":40,"input":"x","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}`
	for _, row := range []struct {
		pass []string
		code fault.Code
		sent bool
	}{{nil, "", false}, {[]string{"tools"}, fault.ItemNotFound, false}, {[]string{"tools", "vector_store_ids"}, "", true}} {
		v := &responsesVendor{}
		k := newStateGateway(t, v, func(o *gateway.Options) {
			inPrepaid(o)
			o.Upstream = newRouter(t, router.Channel{Name: "default", Upstream: v, Models: map[string]string{"m": "m"}, Pass: row.pass})
		})
		_, err := k.do(t.Context(), upstream.Responses, search)
		if row.code == "" && err != nil || row.code != "" && !fault.Is(err, row.code) {
			t.Errorf("%q: %v", row.pass, err)
			continue
		}
		if row.code == "" {
			if _, body := v.input(t, 1); strings.Contains(body, "vs_1") != row.sent {
				t.Errorf("%q: sent %s", row.pass, body)
			}
		}
	}
}

func TestAConversationWhoseChannelIsPausedSaysSo(t *testing.T) {
	v, w, rows := &responsesVendor{store: "true"}, &responsesVendor{store: "true"}, &memory.Responses{}
	channel := func(name string, v upstream.Upstream, priority int) router.Channel {
		return router.Channel{Name: name, Upstream: v, Priority: priority, Models: map[string]string{"m": "m"}}
	}
	gatewayOf := func(channels ...router.Channel) (*stateGateway, *router.Router) {
		routing := newRouter(t, channels...)
		return newStateGateway(t, v, func(o *gateway.Options) {
			o.Upstream, o.Responses.Store, o.Responses.Mode = routing, rows, gateway.ResponsesNative
		}), routing
	}
	k, routing := gatewayOf(channel("a", v, 0), channel("b", w, 1))
	k.must(t, upstream.Responses, askResponse)
	const follows = `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x"}`
	refused := func(k *stateGateway, want string) {
		t.Helper()
		_, err := k.do(t.Context(), upstream.Responses, follows)
		if f := fault.From(err); f == nil || f.Code != fault.NoChannel || f.HTTPStatus() != 502 || !strings.Contains(f.Message, want) || len(v.calls) != 1 || len(w.calls) != 0 {
			t.Errorf("got %v, %d and %d calls", err, len(v.calls), len(w.calls))
		}
	}
	must(t, routing.Pause("a"))
	refused(k, "The channel at which the conversation is kept is paused.")
	if got := k.spent(t); got != micro(50) { // that of the first
		t.Errorf("spent %s", got)
	}
	must(t, routing.Resume("a"))
	gone, _ := gatewayOf(channel("b", w, 0))
	refused(gone, "The channel at which the conversation is kept does not serve it any more.")
	k.must(t, upstream.Responses, follows)
}
