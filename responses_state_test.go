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
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
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
		return reply, accepted(call, reply)
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
	return reply, accepted(call, reply)
}

// accepted has the gateway accept a reply, as a router does.
func accepted(call *upstream.Call, reply *upstream.Reply) error {
	if call.Accept == nil {
		return nil
	}
	_, err := call.Accept(context.Background(), reply)
	return err
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

func TestNewRefusesWhereResponsesCannotBeKept(t *testing.T) {
	const on = gateway.ResponsesOn
	durable, forgetting := brokenResponses{}, &memory.Responses{}
	secrets := []secret.String{secret.New("the secret of the deployment")}
	for _, row := range []struct {
		responses gateway.ResponsesOptions
		secrets   []secret.String
		want      string // in the error; empty for none
	}{
		{gateway.ResponsesOptions{Mode: "On"}, secrets, `Options.Responses.Mode is "On"; it is one of off, native, on`},
		{gateway.ResponsesOptions{Mode: on, Store: durable}, nil, "Options.Secrets is empty"},
		{gateway.ResponsesOptions{Mode: on, Store: durable}, secrets, ""},
		{gateway.ResponsesOptions{Mode: on, Store: forgetting}, nil, ""},
		{gateway.ResponsesOptions{Mode: on}, nil, ""},
		{gateway.ResponsesOptions{Mode: gateway.ResponsesNative, Store: durable}, nil, ""},
		{gateway.ResponsesOptions{Mode: gateway.ResponsesOff, Store: durable}, nil, ""},
		{gateway.ResponsesOptions{Store: durable}, nil, ""},
	} {
		_, err := gateway.New(gateway.Options{Upstream: &responsesVendor{}, Responses: row.responses, Secrets: row.secrets})
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%+v: got %v, want %q", row.responses, err, row.want)
		}
	}
}

// asAccount is the context of an account's calls.
func asAccount(t testing.TB, account string) context.Context {
	return auth.NewContext(t.Context(), &auth.Principal{Account: account, Key: "k"})
}

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
				if got := k.spent(t, "1.00"); got != micro(100) {
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
				routing, err := router.New(channels, router.Options{})
				must(t, err)
				return newStateGateway(t, v, func(o *gateway.Options) { o.Upstream, o.Responses.Store = routing, rows })
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
	kept := &countingReads{Store: &memory.Responses{}}
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
			if got := k.spent(t, "1.00"); got != micro(50) { // the answer was delivered
				t.Errorf("spent %s", got)
			}
			if got := strings.Contains(k.log.String(), "storing a response failed"); got != row.logged {
				t.Errorf("logged: %s", k.log)
			}
		})
	}
}

func TestAStreamThatIsBrokenOffIsNotStored(t *testing.T) {
	kept := &keepingCount{Store: &memory.Responses{}}
	k := newStateGateway(t, &responsesVendor{pauses: true}, func(o *gateway.Options) { o.Responses.Store = kept })
	r, err := k.do(asAccount(t, "local"), upstream.Responses, askResponseStream)
	must(t, err)
	if out, err := r.Stream.Next(); err != nil || !strings.Contains(string(out), "answer") || strings.Contains(string(out), "completed") {
		t.Fatalf("it begins with %s, %v", out, err)
	}
	r.Stream.Await() // the end is here, and nobody takes it
	_ = r.Stream.Close()
	r.End(200, r.Stream.Err())
	if len(kept.kept) != 0 {
		t.Errorf("kept %+v", kept.kept[0].ID)
	}
	if got := k.spent(t, "1.00"); got != micro(50) { // the vendor has made all of it
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

func TestWhatIsStoredIsReadForAModelThatTheKeyMayUse(t *testing.T) {
	k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) { o.Responses.Store = brokenResponses{errors.New("it was read")} })
	stranger := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Models: []string{"other"}})
	if _, err := k.do(stranger, upstream.Responses, `{"model":"m","previous_response_id":"resp_1","input":"x"}`); fault.From(err).HTTPStatus() != http.StatusForbidden {
		t.Errorf("got %v", err)
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

// keepingCount counts what is kept.
type keepingCount struct {
	state.Store
	kept []state.Response
}

func (s *keepingCount) Put(ctx context.Context, r state.Response) error {
	s.kept = append(s.kept, r)
	return s.Store.Put(ctx, r)
}

func TestADuplicateIsAnsweredThoughWhatItRefersToIsGone(t *testing.T) {
	for _, row := range []struct{ refers, stream string }{
		{`"previous_response_id":"resp_1"`, ""}, {`"previous_response_id":"resp_1"`, `,"stream":true`}, {`"input":[{"id":"msg_1"}]`, ""},
	} {
		v := &responsesVendor{}
		k := newStateGateway(t, v, nil)
		k.must(t, upstream.Responses, askResponse)
		body := `{"model":"m","max_output_tokens":40,` + row.refers + row.stream + `}`
		_, first := k.complete(t, upstream.Responses, body, "once")
		must(t, k.DeleteResponse(asAccount(t, "local"), "resp_1"))
		if _, err := k.do(t.Context(), upstream.Responses, body, "another"); !refersToNothing(err) {
			t.Errorf("%s: a new request: %v", body, err)
		}
		again := k.must(t, upstream.Responses, body, "once")
		if !again.Replayed || string(again.Body) != first || len(v.calls) != 2 {
			t.Errorf("%s: replayed %v, %d calls: %s, want %s", body, again.Replayed, len(v.calls), again.Body, first)
		}
		if _, err := k.do(t.Context(), upstream.Responses, strings.Replace(body, "40", "41", 1), "once"); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("%s: another request with the key: %v", body, err)
		}
	}
}

func refersToNothing(err error) bool {
	return fault.Is(err, fault.ResponseNotFound) || fault.Is(err, fault.ItemNotFound)
}

func TestADuplicateIsAnsweredAsTheFirstWasAndKeptOnce(t *testing.T) {
	for _, body := range []string{askResponse, askResponseStream} {
		kept := &keepingCount{Store: &memory.Responses{}}
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

// A vendor that keeps the conversation bills all of it, of which the request has the last
// words only.
func TestARequestPaysForTheConversationThatAVendorKeeps(t *testing.T) {
	v := &responsesVendor{store: "true", tokens: 900_000}
	k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative })
	k.must(t, upstream.Responses, askResponse)
	v.tokens = 20
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":"something else"}`) // which the rest of the balance covers
	for _, follows := range []string{`"previous_response_id":"resp_1","input":"x"`, `"input":[{"id":"msg_1"},{"id":"rs_1"}]`} {
		if _, err := k.do(t.Context(), upstream.Responses, `{"model":"m","max_output_tokens":40,`+follows+`}`); !fault.Is(err, fault.InsufficientBalance) {
			t.Errorf("%s: %v", follows, err)
		}
	}
	if len(v.calls) != 2 {
		t.Errorf("the vendor was asked %d times", len(v.calls))
	}
}

// A vendor looks a thought up by its id alone, among those of all customers of one key.
func TestAThoughtThatIsOnlyNamedIsItsAccountsOwn(t *testing.T) {
	const named = `{"id":"rs_gone_1","type":"reasoning","summary":[]}`
	for _, row := range []struct {
		name, account, input string
		sent                 []string // nil for a refusal
		store                string
	}{
		{"its own", "local", userItem + `,` + named, []string{userItem, named}, ``},
		{"another account's", "other", userItem + `,` + named, []string{userItem}, `"store":false`},
		{"without an id", "local", userItem + `,{"type":"reasoning","summary":[]}`, []string{userItem}, `"store":false`},
		{"another account's, beside its own item", "other", `{"id":"msg_2"},` + named, nil, ``},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := &responsesVendor{store: "true"}
			k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative })
			k.must(t, upstream.Responses, askResponse)
			if _, err := k.do(asAccount(t, "other"), upstream.Responses, askResponse); err != nil {
				t.Fatal(err)
			}
			_, err := k.do(asAccount(t, row.account), upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[`+row.input+`]}`)
			if row.sent == nil {
				if !fault.Is(err, fault.ItemNotFound) || len(v.calls) != 2 {
					t.Errorf("got %v", err)
				}
				return
			}
			must(t, err)
			got, body := v.input(t, 3)
			if diff := gocmp.Diff(row.sent, got); diff != "" || strings.Contains(body, "store") != (row.store != "") || !strings.Contains(body, row.store) {
				t.Errorf("sent %s", body)
			}
		})
	}
}

// A vendor may look an item up by its id even where the request has the item, and then has
// that of whoever made it.
func TestNoIDOfAnotherAccountReachesTheVendor(t *testing.T) {
	const next = `,` + userItem
	for _, row := range []struct{ name, item, native, off string }{ // what is sent of it; a parameter for a refusal
		{"a message", `{"id":"msg_1","role":"assistant","content":"x"}`, `{"role":"assistant","content":"x"}`, `{"id":"msg_1","role":"assistant","content":"x"}`},
		{"a message without text", `{"id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"","annotations":[]}]}`, ``, ``},
		{"a call", `{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, `{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{}"}`},
		{"an output without text", `{"id":"o_1","type":"function_call_output","call_id":"c","output":""}`, `{"type":"function_call_output","call_id":"c","output":""}`, `{"id":"o_1","type":"function_call_output","call_id":"c","output":""}`},
		{"a thought", `{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"x"}`, `{"type":"reasoning","summary":[],"encrypted_content":"x"}`, `{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"x"}`},
		{"a thought in no words", `{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":""}`, ``, ``},
		{"a thought with a summary", `{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"x"}]}`, ``, ``},
		{"a thought with no content", `{"id":"rs_1","type":"reasoning","summary":[],"content":""}`, ``, ``},
		{"a thought with an empty part", `{"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":""}]}`, ``, ``},
		{"a type that nobody knows", `{"id":"rs_1","type":"Reasoning","summary":[]}`, ``, ``},
		{"a search", `{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}}`, `{"type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}}`, `{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}}`},
		{"a search for nothing", `{"id":"ws_1","type":"web_search_call","status":"completed"}`, ``, ``},
		{"a search of files", `{"id":"fs_1","type":"file_search_call","queries":[],"results":null}`, ``, ``},
		{"a call without an action", `{"id":"cu_1","type":"computer_call","call_id":"c","action":{"type":"click"}}`, ``, ``},
		{"a picture", `{"id":"ig_1","type":"image_generation_call","result":""}`, `input[0].id`, `input[0].id`},
		{"a container", `{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`, `input[0].container_id`, `{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`},
		{"an empty container", `{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":null,"outputs":null}`, `input[0].container_id`, ``},
		{"an approval", `{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}`, `input[0].approval_request_id`, `input[0].approval_request_id`},
		{"an approval of what is named", `{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true},{"id":"mcpr_1","type":"mcp_approval_request"}`, `input[0].approval_request_id`, `input[0].approval_request_id`},
		{"an approval of what is there", `{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true},{"id":"mcpr_1","type":"mcp_approval_request","name":"f"}`, `input[0].approval_request_id`, `{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true},{"id":"mcpr_1","type":"mcp_approval_request","name":"f"}`},
	} {
		for mode, want := range map[gateway.ResponsesMode]string{gateway.ResponsesNative: row.native, gateway.ResponsesOff: row.off, gateway.ResponsesOn: row.off} {
			for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
				v := &responsesVendor{}
				k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = mode })
				_, err := k.do(asAccount(t, "other"), op, `{"model":"m","input":[`+row.item+next+`]}`)
				got, refused := "", fault.From(err)
				switch {
				case err == nil:
					items, _ := v.input(t, 1)
					got = strings.Join(items[:len(items)-1], ",")
				case refused.Code == fault.ItemNotFound && len(v.calls) == 0:
					got = refused.Param
				}
				if got != want {
					t.Errorf("%s, %q, %s: got %s, %v, want %s", row.name, mode, op, got, err, want)
				}
			}
		}
	}
}

// The vendor's account is shared by all customers of a key.
func TestWhatLiesInTheVendorsAccountIsTheCallersOwnOrRefused(t *testing.T) {
	const (
		interpreter = `"tools":[{"type":"code_interpreter","container":"cntr_1"}]`
		auto        = `"tools":[{"type":"function","name":"f"},{"type":"code_interpreter","container":{"type":"auto","file_ids":["file_1"]}}]`
		plain       = `"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`
		shell       = `"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}]`
		skills      = `"tools":[{"type":"shell","environment":{"type":"container_auto","skills":[{"type":"skill_reference","skill_id":"skill_1"}]}}]`
		search      = `"tools":[{"type":"file_search","vector_store_ids":["vs_1"],"filters":{"type":"eq","key":"file_id","value":"x"}}]`
		mask        = `"tools":[{"type":"image_generation","input_image_mask":{"file_id":"file_1"}}]`
		added       = `"input":[` + userItem + `,{"type":"additional_tools","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}]`
		function    = `"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"container":{"type":"string"},"file_id":{"const":"file_1"}}}}]`
		history     = `"input":[{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_1","code":"x","outputs":[]},` + userItem + `],` + plain
		fileInput   = `"input":[{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}]`
	)
	for _, row := range []struct {
		name, body, param string
		own               bool // the account's own if its response made it
		pass              []string
	}{
		{"a container", interpreter, "tools[0].container", true, []string{"container_id"}},
		{"a file for a container", auto, "tools[1].container.file_ids[0]", false, []string{"file_id"}},
		{"a container of its own", plain, "", false, nil},
		{"a shell's container", shell, "tools[0].environment.container_id", true, []string{"container_id"}},
		{"a skill", skills, "tools[0].environment.skills[0].skill_id", false, []string{"skill_id"}},
		{"a vector store", search, "tools[0].vector_store_ids[0]", false, []string{"vector_store_ids"}},
		{"a mask", mask, "tools[0].input_image_mask.file_id", false, []string{"file_id"}},
		{"a tool in the input", added, "input[1].tools[0].vector_store_ids[0]", false, []string{"vector_store_ids"}},
		{"names of a function's own", function, "", false, nil},
		{"a container that a step used", history, "input[0].container_id", true, nil},
		{"a file", fileInput, "input[0].content[0].file_id", false, []string{"file_id"}},
		{"a conversation", `"conversation":"conv_1"`, "conversation", false, nil},
		{"the template of a prompt", `"prompt":{"id":"pmpt_1"}`, "prompt", false, nil},
	} {
		body := `{"model":"m","max_output_tokens":40,"input":"x",` + row.body + `}`
		if strings.Contains(row.body, `"input"`) {
			body = `{"model":"m","max_output_tokens":40,` + row.body + `}`
		}
		for _, mode := range []gateway.ResponsesMode{gateway.ResponsesOff, gateway.ResponsesNative, gateway.ResponsesOn} {
			for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
				for _, passes := range []bool{false, true} {
					v := &responsesVendor{store: "true", more: `,{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`}
					k := newStateGateway(t, v, func(o *gateway.Options) {
						channel := router.Channel{Name: "default", Upstream: v, Models: map[string]string{"m": "m"}}
						if o.Responses.Mode = mode; passes {
							channel.Pass = row.pass
						}
						routing := newRouter(t, channel)
						o.Upstream = routing
					})
					k.must(t, upstream.Responses, askResponse)
					for _, account := range []string{"local", "other"} {
						calls := len(v.calls)
						_, err := k.do(asAccount(t, account), op, body)
						allowed := row.param == "" || passes && row.pass != nil || row.own && account == "local" && mode != gateway.ResponsesOff
						if f := fault.From(err); allowed && err != nil || !allowed && (f == nil || f.HTTPStatus() != 400 || f.Param != row.param || len(v.calls) != calls) {
							t.Errorf("%s, %s, %s of %s, passed %t: %v", row.name, mode, op, account, passes, err)
						}
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
			routing := newRouter(t, router.Channel{Name: "default", Upstream: v, Models: map[string]string{"m": "m"}, Pass: row.pass})
			o.Upstream = routing
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

// What an account was let to say, since no tool would use it, is not used by a later turn.
func TestAStoredItemLeadsToNoContainerOfOthers(t *testing.T) {
	v := &responsesVendor{}
	k := newStateGateway(t, v, nil)
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_9","code":"x","outputs":[]},`+userItem+`]}`)
	_, err := k.do(t.Context(), upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`)
	if f := fault.From(err); f == nil || f.Code != fault.ItemNotFound || f.Param != "input[0].container_id" || len(v.calls) != 1 {
		t.Errorf("got %v", err)
	}
}

func TestCitationsOfTheVendorsAccountAreLeftOut(t *testing.T) {
	message := func(citations string) string {
		return `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[` + citations + `]}]}`
	}
	const link, file, container = `{"type":"url_citation","url":"https://a"}`, `{"type":"file_citation","file_id":"file_1","index":1}`, `{"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1"}`
	for _, mode := range []gateway.ResponsesMode{gateway.ResponsesOff, gateway.ResponsesNative, gateway.ResponsesOn} {
		v := &responsesVendor{}
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = mode })
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[`+message(file+","+link+","+container)+`,`+message(link)+`]}`)
		if got, _ := v.input(t, 1); strings.Join(got, ",") != message(link)+`,`+message(link) {
			t.Errorf("%s: sent %s", mode, got)
		}
	}
}

// A vendor that does not say what a conversation has makes no later turn of it cheaper, and
// one that says nonsense makes none impossible.
func TestAConversationThatAVendorKeepsHasItsTokensWhateverTheVendorSays(t *testing.T) {
	const words = 100_000 // bytes, and tokens at most
	for usage, want := range map[string][2]int64{
		`{"input_tokens":20,"output_tokens":30}`:     {words, words + 1_000},
		`{"input_tokens":500000,"output_tokens":30}`: {500_030, 500_030},
		`{"input_tokens":20,"output_tokens":500000}`: {words + 500_000, words + 501_000},
		`{}`:   {words, words + 2_000},
		`null`: {words, words + 2_000},
		`{"input_tokens":-1,"output_tokens":-9223372036854775808}`:   {words, words + 2_000},
		`{"input_tokens":9223372036854775807,"output_tokens":30}`:    {words, words + 1_000},
		`{"input_tokens":9223372036854775807,"output_tokens":1e400}`: {words, words + 2_000},
	} {
		v := &responsesVendor{store: "true", usage: usage}
		k := newStateGateway(t, v, func(o *gateway.Options) {
			o.Responses.Mode, o.Prices = gateway.ResponsesNative, billing.NewPriceList(nil)
		})
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":"`+strings.Repeat("word ", words/5)+`"}`)
		first, err := k.store.Get(t.Context(), "local", "resp_1")
		if err != nil || first.Tokens < want[0] || first.Tokens > want[1] {
			t.Errorf("%s: %d tokens, %v, want %v", usage, first.Tokens, err, want)
		}
		v.usage = ""
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x"}`)
		if second, err := k.store.Get(t.Context(), "local", "resp_2"); err != nil || second.Tokens <= first.Tokens {
			t.Errorf("%s: %d tokens after %d, %v", usage, second.Tokens, first.Tokens, err)
		}
	}
}

// What the account has made itself is looked up as before.
func TestWhatAnAccountHasMadeMayBeNamedInAnyForm(t *testing.T) {
	for _, item := range []string{
		`{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":""}`,
		`{"id":"msg_1","type":"web_search_call","status":"completed"}`,
		`{"type":"mcp_approval_response","approval_request_id":"fc_1","approve":true}`,
		`{"type":"mcp_approval_response","approval_request_id":"fc_1","approve":true},{"id":"fc_1","type":"mcp_approval_request","name":"f"}`,
		`{"type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`,
	} {
		v := &responsesVendor{store: "true", more: `,{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`}
		k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative })
		k.must(t, upstream.Responses, askResponse)
		k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":[`+item+`]}`)
		if got, _ := v.input(t, 2); strings.Join(got, ",") != item || v.calls[1].Channel != "default" {
			t.Errorf("sent %s to %q", got, v.calls[1].Channel)
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
		r, err := k.Do(t.Context(), &gateway.Request{Op: upstream.Responses, Body: []byte(row.body), Read: func(r *gateway.Response) error { return r.ReserveMemory(size) }})
		must(t, err)
		if got := k.Load().Bodies; got != row.want {
			t.Errorf("%q, %s: %d bytes are reserved, want %d", row.mode, row.body, got, row.want)
		}
		r.End(200, nil)
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
	source := &keepingCount{Store: &memory.Responses{}}
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

// countingReads counts what is read of a store.
type countingReads struct {
	state.Store
	reads int // by Get and by Has
	bytes int // of bodies
}

func (s *countingReads) Get(ctx context.Context, account, id string) (*state.Response, error) {
	s.reads++
	r, err := s.Store.Get(ctx, account, id)
	if r != nil {
		s.bytes += len(r.Body)
	}
	return r, err
}

func (s *countingReads) Has(ctx context.Context, account, id string) (bool, error) {
	s.reads++
	return s.Store.Has(ctx, account, id)
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
			kept := &countingReads{Store: &memory.Responses{}}
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
		}, fault.InsufficientBalance},
		{"no tokens left", limited(auth.Limits{TPM: 10}), nil, fault.RateLimitExceeded},
		{"enough of both", limited(auth.Limits{TPM: 1_000, MaxConcurrent: 1}), nil, ""},
	} {
		for _, mode := range []gateway.ResponsesMode{gateway.ResponsesNative, gateway.ResponsesOn} {
			for _, body := range []string{`"previous_response_id":"resp_1","input":"x"`, `"input":[{"id":"msg_1"}]`, `"input":[{"type":"mcp_approval_response","approval_request_id":"fc_1","approve":true}]`} {
				for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
					v, kept := &responsesVendor{store: "true"}, &countingReads{Store: &memory.Responses{}}
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

// A duplicate is answered whatever has become of the conversation, of its account's money and
// of the store of responses.
func TestADuplicateReadsNothingThatIsStored(t *testing.T) {
	var kept *countingReads
	now := time.Now()
	k := newStateGateway(t, &responsesVendor{}, func(o *gateway.Options) {
		o.Now = func() time.Time { return now }
		kept = &countingReads{Store: &memory.Responses{Now: o.Now}}
		o.Responses.Retention, o.Responses.Store = time.Hour, kept
	})
	k.must(t, upstream.Responses, askResponse)
	const follows = `{"model":"m","max_output_tokens":40,"previous_response_id":"resp_1","input":"x"}`
	first := k.must(t, upstream.Responses, follows, "once")
	now = now.Add(2 * time.Hour) // what it goes on from has expired
	must(t, k.ledger.Credit(t.Context(), "local", -k.balance(t).Posted, "taken back"))
	reads := kept.reads
	if again := k.must(t, upstream.Responses, follows, "once"); !again.Replayed || string(again.Body) != string(first.Body) || kept.reads != reads {
		t.Errorf("replayed %t, %d reads: %s", again.Replayed, kept.reads-reads, again.Body)
	}
	must(t, k.ledger.Credit(t.Context(), "local", billing.One, "paid in"))
	if _, err := k.do(t.Context(), upstream.Responses, follows, "another"); !fault.Is(err, fault.ResponseNotFound) {
		t.Errorf("a new request: %v", err)
	}
}

func TestARequestRefersToABoundedNumberOfItems(t *testing.T) {
	for _, mode := range []gateway.ResponsesMode{gateway.ResponsesNative, gateway.ResponsesOn} {
		source := &keepingCount{Store: &memory.Responses{}}
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

func TestWhatAVendorStoresIsItsAccountsAndGoesBackToTheSameKey(t *testing.T) {
	for _, request := range []string{askResponse, askResponseStream} {
		v := &responsesVendor{store: "true"}
		kept := &keepingCount{Store: &memory.Responses{}}
		k := newStateGateway(t, v, func(o *gateway.Options) {
			o.Responses = gateway.ResponsesOptions{Mode: gateway.ResponsesNative, Store: kept}
		})
		_, answer := k.complete(t, upstream.Responses, request)
		if !strings.Contains(answer, `"store":true`) {
			t.Errorf("answered %s", answer)
		}
		if _, body := v.input(t, 1); strings.Contains(body, "store") {
			t.Errorf("sent %s", body)
		}
		if r := kept.kept[0]; r.Body != nil || r.Tokens < 50 || r.Tokens > 200 || r.Channel != "default" || r.Key != "key_1" {
			t.Errorf("kept %+v", r)
		}
		for _, row := range []struct{ follows, sent string }{
			{`"previous_response_id":"resp_1","input":"x"`, `"previous_response_id":"resp_1","input":"x"`},
			{`"input":[{"type":"item_reference","id":"msg_1"}]`, `"input":[{"type":"item_reference","id":"msg_1"}]`},
		} {
			k.complete(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+row.follows+`}`)
			n := len(v.calls)
			if _, body := v.input(t, n); !strings.Contains(body, row.sent) {
				t.Errorf("sent %s", body)
			}
			if c := v.calls[n-1]; c.Channel != "default" || c.Key != "key_1" {
				t.Errorf("it went to %q, %q", c.Channel, c.Key)
			}
			if _, err := k.do(asAccount(t, "other"), upstream.Responses, `{"model":"m","max_output_tokens":40,`+row.follows+`}`); fault.From(err).HTTPStatus() != 400 || len(v.calls) != n {
				t.Errorf("another account: %v", err)
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
		routing, err := router.New(channels, router.Options{})
		must(t, err)
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
	if got := k.spent(t, "1.00"); got != micro(50) { // that of the first
		t.Errorf("spent %s", got)
	}
	must(t, routing.Resume("a"))
	gone, _ := gatewayOf(channel("b", w, 0))
	refused(gone, "The channel at which the conversation is kept does not serve it any more.")
	k.must(t, upstream.Responses, follows)
}

// settledWith is a store that any meter keeps responses for.
type settledWith struct{ state.Store }

func (settledWith) KeptBy(any) bool { return true }

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
				r.End(200, r.Stream.Err())
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
		kept := &keepingCount{Store: &memory.Responses{}}
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
