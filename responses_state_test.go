package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
)

// responsesVendor is a vendor of responses: its nth response is resp_n, says "answer n", calls a
// tool and has thought.
type responsesVendor struct {
	status string // of its responses, completed if empty
	tokens int64  // of their input, 20 if 0
	filler int    // bytes of their text, besides
	more   string // items, behind a comma
	usage  string // in the place of its own
	pauses bool   // before the end of a stream
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
	if head, end, ok := strings.Cut(text, "event: response."+status); ok && v.pauses {
		reply.Body = &closing{Reader: io.MultiReader(strings.NewReader(head), strings.NewReader("event: response."+status+end))}
	}
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

func TestWhatAnotherAccountHasStoredIsNotThere(t *testing.T) {
	v := &responsesVendor{}
	k := newStateGateway(t, v, nil)
	k.must(t, upstream.Responses, askResponse)
	for _, account := range []string{"other", "local"} {
		id, item := "resp_1", "msg_1"
		if account == "local" { // to which the same is said of what was never there
			id, item = "resp_9", "msg_9"
		}
		ctx := asAccount(t, account)
		_, show := k.StoredResponse(ctx, id)
		_, input := k.ResponseInputItems(ctx, id, gateway.InputItemsOptions{})
		for name, err := range map[string]error{"show": show, "input": input, "delete": k.DeleteResponse(ctx, id)} {
			if f := fault.From(err); f.Code != fault.NotFound || f.HTTPStatus() != 404 || strings.ReplaceAll(f.Message, id, "ID") != `There is no stored response "ID": it was made with "store": false, has been deleted or has expired.` {
				t.Errorf("%s, %s: %v", account, name, err)
			}
		}
		for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
			for _, row := range []struct{ body, code, param string }{
				{`{"model":"m","input":"x","previous_response_id":"` + id + `"}`, "previous_response_not_found", "previous_response_id"},
				{`{"model":"m","input":"x","previous_response_id":"` + item + `"}`, "previous_response_not_found", "previous_response_id"},
				{`{"model":"m","input":[` + userItem + `,{"type":"item_reference","id":"` + item + `"}]}`, "item_not_found", "input[1].id"},
				{`{"model":"m","input":[{"type":"item_reference","id":"` + id + `"}]}`, "item_not_found", "input[0].id"},
				{`{"model":"m","input":[{"type":"item_reference","id":"a b"}]}`, "item_not_found", "input[0].id"},
			} {
				_, err := k.do(ctx, op, row.body)
				f := fault.From(err)
				if f == nil || string(f.Code) != row.code || f.Param != row.param || f.HTTPStatus() != 400 || f.Retry != fault.RetryNo || strings.Contains(f.Message, "local") {
					t.Errorf("%s, %s %s: %+v", account, op, row.body, f)
				}
			}
		}
	}
	if len(v.calls) != 1 {
		t.Errorf("the vendor was asked %d times", len(v.calls))
	}
	if _, err := k.StoredResponse(asAccount(t, "local"), "resp_1"); err != nil {
		t.Error(err)
	}
	if _, err := k.do(t.Context(), upstream.Responses, `{"model":"m","input":"x","previous_response_id":"msg_1"}`); !fault.Is(err, fault.ResponseNotFound) {
		t.Errorf("a request goes on from an item: %v", err)
	}
	if _, err := k.StoredResponse(asAccount(t, "local"), "msg_1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the id of an item is that of a response: %v", err)
	}
}

func TestWhatIsStoredCanBeShownAndDeleted(t *testing.T) {
	v := &responsesVendor{}
	k := newStateGateway(t, v, nil)
	ctx := asAccount(t, "local")
	_, first := k.complete(t, upstream.Responses, askResponse)
	got, err := k.StoredResponse(ctx, "resp_1")
	if err != nil || string(got) != first || !strings.Contains(first, `"store":true`) {
		t.Errorf("got %s, %v, want %s", got, err, first)
	}
	k.complete(t, upstream.Responses, strings.Replace(askResponseStream, `"input"`, `"previous_response_id":"resp_1","input"`, 1))
	if got, err := k.StoredResponse(ctx, "resp_2"); err != nil || !strings.Contains(string(got), `"status":"completed"`) || !strings.Contains(string(got), `"previous_response_id":"resp_1"`) {
		t.Errorf("of a stream: %s, %v", got, err)
	}
	must(t, k.DeleteResponse(ctx, "resp_1"))
	if err := k.DeleteResponse(ctx, "resp_1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := k.StoredResponse(ctx, "resp_1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("shown: %v", err)
	}
	if _, err := k.StoredResponse(ctx, "resp_2"); err != nil {
		t.Errorf("the response after it: %v", err)
	}
	// The conversation has a gap now, which no client is to take for the whole.
	_, err = k.do(ctx, upstream.Responses, `{"model":"m","input":"x","previous_response_id":"resp_2"}`)
	if f := fault.From(err); f == nil || f.Code != "previous_response_not_found" || !strings.Contains(f.Message, `"resp_1"`) {
		t.Errorf("a request that goes on from what follows it: %v", err)
	}
}

func TestTheInputOfAResponseIsListedInPages(t *testing.T) {
	k := newStateGateway(t, &responsesVendor{}, nil)
	ctx := asAccount(t, "local")
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[{"role":"user","content":"a"},{"id":"own","role":"user","content":"b"},{"role":"user","content":"c"}]}`)
	const a, b, c = `{"role":"user","content":"a","id":"item_0_resp_1"}`, `{"id":"own","role":"user","content":"b"}`, `{"role":"user","content":"c","id":"item_2_resp_1"}`
	for _, row := range []struct {
		limit     int
		ascending bool
		after     string
		want      string
	}{
		{20, false, "", `"data":[` + c + `,` + b + `,` + a + `],"first_id":"item_2_resp_1","last_id":"item_0_resp_1","has_more":false`},
		{20, true, "", `"data":[` + a + `,` + b + `,` + c + `],"first_id":"item_0_resp_1","last_id":"item_2_resp_1","has_more":false`},
		{2, true, "", `"data":[` + a + `,` + b + `],"first_id":"item_0_resp_1","last_id":"own","has_more":true`},
		{2, true, "own", `"data":[` + c + `],"first_id":"item_2_resp_1","last_id":"item_2_resp_1","has_more":false`},
		{1, false, "own", `"data":[` + a + `],"first_id":"item_0_resp_1","last_id":"item_0_resp_1","has_more":false`},
		{20, false, "item_0_resp_1", `"data":[],"first_id":null,"last_id":null,"has_more":false`},
	} {
		got, err := k.ResponseInputItems(ctx, "resp_1", gateway.InputItemsOptions{Limit: row.limit, Ascending: row.ascending, After: row.after})
		if want := `{"object":"list",` + row.want + `}`; err != nil || string(got) != want {
			t.Errorf("%+v: got %s, %v", row, got, err)
		}
	}
	if _, err := k.ResponseInputItems(ctx, "resp_1", gateway.InputItemsOptions{After: "nothing"}); fault.From(err).Param != "after" {
		t.Errorf("after nothing: %v", err)
	}
}

func TestTheInputOfAResponseHasTheConversationBeforeIt(t *testing.T) {
	v := &responsesVendor{}
	kept := newCountedStore()
	k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Store = kept })
	ctx := asAccount(t, "local")
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[{"id":"own_1","role":"user","content":[{"type":"input_image","image_url":"https://a/b.png"},{"type":"input_text","text":"one"}]}]}`)
	for turn := 2; turn <= 3; turn++ {
		k.must(t, upstream.Responses, fmt.Sprintf(`{"model":"m","max_output_tokens":40,"previous_response_id":"resp_%d","input":[{"id":"own_%d","role":"user","content":"x"}]}`, turn-1, turn))
	}
	ids := func(page []byte) (ids []string) {
		o, err := rawjson.Index(page, nil, nil)
		must(t, err)
		for _, item := range rawjson.Elements(o.Raw("data")) {
			i, _ := rawjson.Index(item, nil, nil)
			id, _ := rawjson.String(i.Raw("id"))
			ids = append(ids, id)
		}
		return append(ids, string(o.Raw("has_more")))
	}
	for _, row := range []struct {
		o     gateway.InputItemsOptions
		want  string
		reads int // responses, of three
	}{
		{gateway.InputItemsOptions{Ascending: true}, "own_1 rs_1 rs_gone_1 msg_1 fc_1 own_2 rs_2 rs_gone_2 msg_2 fc_2 own_3 false", 3},
		{gateway.InputItemsOptions{}, "own_3 fc_2 msg_2 rs_gone_2 rs_2 own_2 fc_1 msg_1 rs_gone_1 rs_1 own_1 false", 3},
		{gateway.InputItemsOptions{Limit: 2}, "own_3 fc_2 true", 2},
		{gateway.InputItemsOptions{Limit: 2, After: "fc_2"}, "msg_2 rs_gone_2 true", 2},
		{gateway.InputItemsOptions{Limit: 2, After: "rs_2"}, "own_2 fc_1 true", 3},
		{gateway.InputItemsOptions{Limit: 1, After: "own_1", Ascending: true}, "rs_1 true", 3},
		{gateway.InputItemsOptions{Limit: 1, After: "rs_1"}, "own_1 false", 3},
	} {
		kept.reads = 0
		page, err := k.ResponseInputItems(ctx, "resp_3", row.o)
		if err != nil {
			t.Fatal(row.o, err)
		}
		if got := strings.Join(ids(page), " "); got != row.want || kept.reads != row.reads {
			t.Errorf("%+v: %s, after %d reads", row.o, got, kept.reads)
		}
		if text := string(page); strings.Contains(text, "thoughts") || strings.Contains(text, "a/b.png") {
			t.Errorf("%+v: it has more than was asked for: %s", row.o, text)
		}
	}
	page, err := k.ResponseInputItems(ctx, "resp_3", gateway.InputItemsOptions{Include: []string{"reasoning.encrypted_content", "message.input_image.image_url"}})
	if text := string(page); err != nil || !strings.Contains(text, "thoughts 1") || !strings.Contains(text, "a/b.png") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := k.ResponseInputItems(ctx, "resp_3", gateway.InputItemsOptions{Include: []string{"all"}}); fault.From(err).Param != "include" {
		t.Errorf("include all: %v", err)
	}
	if err := k.DeleteResponse(ctx, "resp_1"); err != nil { // what is left of the conversation is listed
		t.Fatal(err)
	}
	if page, err = k.ResponseInputItems(ctx, "resp_3", gateway.InputItemsOptions{Ascending: true}); err != nil || !strings.HasPrefix(strings.Join(ids(page), " "), "own_2 rs_2") {
		t.Errorf("%s, %v", page, err)
	}
}

func TestWhatIsNotStoredSaysSo(t *testing.T) {
	broken := errors.New("away")
	for _, row := range []struct {
		name, request string
		vendor        *responsesVendor
		edit          func(*gateway.Options)
		logged        bool
	}{
		{name: "the request forbids it", request: strings.Replace(askResponse, `"input"`, `"store":false,"input"`, 1)},
		{name: "the gateway stores nothing", request: askResponse, edit: func(o *gateway.Options) { o.Responses.Mode = "off" }},
		{name: "the gateway stores nothing by default", request: askResponse, edit: func(o *gateway.Options) { o.Responses.Mode = "" }},
		{name: "the response failed", request: askResponse, vendor: &responsesVendor{status: "failed"}},
		{name: "the store is away", request: askResponse, edit: func(o *gateway.Options) { o.Responses.Store = brokenResponses{broken} }, logged: true},
		{name: "the store is away, of a stream", request: askResponseStream, edit: func(o *gateway.Options) { o.Responses.Store = brokenResponses{broken} }, logged: true},
		{name: "the store fails", request: askResponseStream, edit: func(o *gateway.Options) { o.Responses.Store = brokenResponses{} }, logged: true},
		{name: "it is larger than what a request can go on from", request: askResponse, vendor: &responsesVendor{filler: 32 << 20}, logged: true},
		{name: "a vendor that keeps nothing", request: askResponse, vendor: &responsesVendor{store: "false"}, edit: func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative }},
		{name: "a vendor that does not say", request: askResponse, edit: func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative }},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := newStateGateway(t, cmp.Or(row.vendor, new(responsesVendor)), row.edit)
			_, answer := k.complete(t, upstream.Responses, row.request)
			end := answer[max(strings.LastIndex(answer, "response.completed"), 0):]
			if strings.Contains(end, `"store":true`) || !strings.HasPrefix(row.name, "the gateway stores nothing") && !strings.Contains(end, `"store":false`) {
				t.Errorf("answered %s", answer)
			}
			if found, err := k.store.Get(t.Context(), "local", "resp_1"); err != nil || found != nil {
				t.Errorf("it is stored: %v, %v", found, err)
			}
			if got := k.spent(t); got != micro(50) { // the answer was delivered
				t.Errorf("spent %s", got)
			}
			if got := strings.Contains(k.log.String(), "storing a response failed"); got != row.logged {
				t.Errorf("logged: %s", k.log)
			}
		})
	}
}

func TestAStreamThatIsBrokenOffIsNotStored(t *testing.T) {
	kept := newCountedStore()
	k := newStateGateway(t, &responsesVendor{pauses: true}, func(o *gateway.Options) { o.Responses.Store = kept })
	r, err := k.do(asAccount(t, "local"), upstream.Responses, askResponseStream)
	must(t, err)
	if out, err := r.Stream.Next(); err != nil || !strings.Contains(string(out), "answer") || strings.Contains(string(out), "completed") {
		t.Fatalf("it begins with %s, %v", out, err)
	}
	r.Stream.Await() // the end is here, and nobody takes it
	_ = r.Stream.Close()
	r.Close()
	if len(kept.kept) != 0 {
		t.Errorf("kept %+v", kept.kept[0].ID)
	}
	if got := k.spent(t); got != micro(50) { // the vendor has made all of it
		t.Errorf("spent %s", got)
	}
}

func TestAnAccountAboveItsQuotaFillsNoLog(t *testing.T) {
	now := time.Now()
	k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) {
		o.Now = func() time.Time { return now }
		o.Responses.Store = brokenResponses{fault.New(fault.InvalidRequest, "as many bytes as it may")}
	})
	for minute := range 3 {
		for range 5 {
			k.must(t, upstream.Responses, askResponse)
		}
		if got := strings.Count(k.log.String(), "storing a response failed"); got != minute+1 || strings.Contains(k.log.String(), "level=ERROR") {
			t.Errorf("after %d minutes %d lines: %s", minute, got, k.log)
		}
		now = now.Add(time.Minute)
	}
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

func TestAStoreThatIsAwayIsNoWrongID(t *testing.T) {
	for name, row := range map[string]struct {
		store brokenResponses
		code  fault.Code
	}{"away": {brokenResponses{errors.New("away")}, fault.ServiceUnavailable}, "broken": {brokenResponses{}, fault.InternalError}} {
		v := &responsesVendor{}
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Store = row.store })
		_, show := k.StoredResponse(asAccount(t, "local"), "resp_1")
		_, previous := k.do(t.Context(), upstream.Responses, `{"model":"m","previous_response_id":"resp_1","input":"x"}`)
		_, item := k.do(t.Context(), upstream.Responses, `{"model":"m","input":[{"id":"msg_1"}]}`)
		for _, err := range []error{show, previous, item, k.DeleteResponse(asAccount(t, "local"), "resp_1")} {
			if !fault.Is(err, row.code) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if len(v.calls) != 0 {
			t.Errorf("%s: the vendor was asked", name)
		}
	}
}

const notShown = "This gateway does not show or delete stored responses."

func TestWithoutAStoreTheRefusalSaysWhatToSend(t *testing.T) {
	k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesOff })
	for body, param := range map[string]string{
		`{"model":"m","previous_response_id":"resp_1","input":"x"}`:                       "previous_response_id",
		`{"model":"m","input":[` + userItem + `,{"type":"item_reference","id":"msg_1"}]}`: "input[1].id",
	} {
		_, err := k.do(t.Context(), upstream.Responses, body)
		if f := fault.From(err); f == nil || f.Param != param || f.Retry != fault.RetryNo || !strings.HasPrefix(f.Message, "This gateway stores no responses. Send the whole conversation:") {
			t.Errorf("%s: %+v", body, f)
		}
	}
	if _, err := k.StoredResponse(asAccount(t, "local"), "resp_1"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), notShown) {
		t.Errorf("shown: %v", err)
	}
}

func TestWhatIsStoredIsEncryptedForItsAccount(t *testing.T) {
	rows := &memory.Responses{}
	keep := func(o *gateway.Options) { o.Responses.Store = rows }
	k := newStateGateway(t, &responsesVendor{}, keep)
	k.must(t, upstream.Responses, askResponse)
	row, err := rows.Get(t.Context(), "local", "resp_1")
	if err != nil || row == nil {
		t.Fatal(row, err)
	}
	for _, clear := range []string{"four words", "answer 1", "message", "thoughts"} {
		if bytes.Contains(row.Body, []byte(clear)) {
			t.Errorf("the row has %q in clear", clear)
		}
	}
	row.Account = "other" // by one who can write to the database
	must(t, rows.Put(t.Context(), *row))
	for _, r := range []struct {
		name, account string
		secrets       []string
		ok            bool
	}{
		{"the same secret", "local", []string{"the secret of the deployment"}, true},
		{"a newer one before it", "local", []string{"new", "the secret of the deployment"}, true},
		{"another account's row", "other", []string{"the secret of the deployment"}, false},
		{"another secret", "local", []string{"new"}, false},
		{"no secret", "local", nil, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			v := &responsesVendor{}
			k := newStateGateway(t, v, func(o *gateway.Options) {
				keep(o)
				o.Secrets = nil
				for _, s := range r.secrets {
					o.Secrets = append(o.Secrets, secret.New(s))
				}
			})
			_, shown := k.StoredResponse(asAccount(t, r.account), "resp_1")
			_, followed := k.do(asAccount(t, r.account), upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x"}`)
			if r.ok && (shown != nil || followed != nil) || !r.ok && (!fault.Is(shown, fault.NotFound) || !fault.Is(followed, "previous_response_not_found")) {
				t.Errorf("shown: %v; followed: %v", shown, followed)
			}
			if r.ok == strings.Contains(k.log.String(), "cannot be read") {
				t.Errorf("logged: %s", k.log)
			}
		})
	}
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

// refusingMeter refuses every settlement, as one with a bug, and releases the hold.
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
		k := newStateGateway(t, &responsesVendor{pauses: true}, func(o *gateway.Options) {
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
