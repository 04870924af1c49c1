package stored_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/responses/state"
)

func TestARequestGoesOnFromWhatItsAccountHasStored(t *testing.T) {
	second := `{"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}`
	for _, row := range []struct {
		name, ask string
		want      []string
	}{
		{"the response before", `"previous_response_id":"resp_1","input":[` + outputItem + `]`, []string{userItem, reasoningItem, messageItem, callItem, outputItem}},
		{"the response before, in a word", `"previous_response_id":"resp_1","input":"two"`, []string{userItem, reasoningItem, messageItem, callItem, second}},
		{"the response before, with nothing new", `"previous_response_id":"resp_1"`, []string{userItem, reasoningItem, messageItem, callItem}},
		{"its items", `"input":[` + userItem + `,{"type":"item_reference","id":"rs_1"},{"type":"item_reference","id":"msg_1"},{"id":"fc_1"},` + outputItem + `]`, []string{userItem, reasoningItem, messageItem, callItem, outputItem}},
		{"both", `"previous_response_id":"resp_1","input":[{"id":"msg_1"}]`, []string{userItem, reasoningItem, messageItem, callItem, messageItem}},
		{"reasoning that cannot be read", `"input":[` + userItem + `,{"type":"item_reference","id":"rs_gone_1"},{"type":"item_reference","id":"msg_1"}]`, []string{userItem, messageItem}},
		{"an item twice", `"input":[{"id":"msg_1"},{"id":"msg_1"}]`, []string{messageItem, messageItem}},
	} {
		for kind := range kinds {
			t.Run(row.name+", "+kind, func(t *testing.T) {
				l := newLab(stored.Here)
				l.keep(t, "local", `"instructions":"first","input":"one"`)
				turn, r, err := l.ask(t, "local", kind, row.ask)
				if err != nil {
					t.Fatal(err)
				}
				got, body := sent(t, r)
				if diff := cmp.Diff(row.want, got); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if strings.Contains(body, "previous_response_id") || strings.Contains(body, "first") || kind == "request" && !strings.Contains(body, `"store":false`) {
					t.Errorf("sent %s", body)
				}
				if channel, key := turn.At(); channel != "" || key != "" {
					t.Errorf("it is bound to %q and %q", channel, key)
				}
				if needs := turn.NeedsRequest(); needs != (kind == "request" && row.name != "the response before, with nothing new") {
					t.Errorf("the bytes of the request are needed: %t", needs)
				}
			})
		}
	}
}

func TestAConversationOfFiftyTurnsIsInOrder(t *testing.T) {
	l := newLab(stored.Here)
	ask := `"input":"question 0."`
	for n := range 50 {
		l.keep(t, "local", ask)
		ask = fmt.Sprintf(`"previous_response_id":"resp_%d","input":"question %d."`, n+1, n+1)
	}
	_, r, err := l.ask(t, "local", "request", ask)
	if err != nil {
		t.Fatal(err)
	}
	items, body := sent(t, r)
	if len(items) != 50*4+1 {
		t.Errorf("%d items are sent, want 201", len(items))
	}
	for n, at := 0, 0; n <= 50; n++ {
		next := strings.Index(body[at:], fmt.Sprintf("question %d.", n))
		if next < 0 {
			t.Fatalf("question %d is missing, or not in its place", n)
		}
		at += next
	}
	if _, err := l.Delete(t.Context(), "local", "resp_7"); err != nil {
		t.Fatal(err)
	}
	// The conversation has a gap now, which no client is to take for the whole.
	if _, _, err = l.ask(t, "local", "request", ask); !fault.Is(err, fault.ResponseNotFound) || !strings.Contains(err.Error(), `"resp_7"`) {
		t.Errorf("with a gap: %v", err)
	}
}

func TestReasoningGoesBackToTheModelAndTheVendorThatMadeIt(t *testing.T) {
	const second = `{"id":"rs_2","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"clear"}],"encrypted_content":"blob"}`
	const clear = `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"clear"}]`
	for _, row := range []struct {
		name   string
		model  string // that made it
		routes stored.Routes
		want   []string // of the reasoning
	}{
		{"one channel", "m", stored.Routes{Only: true, Channel: "a", Key: "1"}, []string{reasoningItem, clear + `,"encrypted_content":"blob"}`}},
		{"a channel whose key is not known", "m", stored.Routes{Only: true, Channel: "a"}, []string{reasoningItem, clear + `,"encrypted_content":"blob"}`}},
		{"several channels or keys", "m", stored.Routes{}, []string{clear + `}`}},
		{"another key since", "m", stored.Routes{Only: true, Channel: "a", Key: "2"}, []string{clear + `}`}},
		{"another channel since", "m", stored.Routes{Only: true, Channel: "b", Key: "1"}, []string{clear + `}`}},
		{"another model", "n", stored.Routes{Only: true, Channel: "a", Key: "1"}, nil},
	} {
		for follows, want := range map[string][]string{
			`"previous_response_id":"resp_1"`:                        slices.Concat([]string{userItem}, row.want[:min(1, len(row.want)/2)], []string{messageItem, callItem}, row.want[min(1, len(row.want)/2):]),
			`"input":[{"id":"rs_1"},{"id":"rs_2"},` + userItem + `]`: append(slices.Clone(row.want), userItem),
		} {
			l := newLab(stored.Here)
			l.model = row.model
			l.keep(t, "local", `"input":"one"`, output(1, second))
			row.routes.Channels = passing(nil)
			l.model, l.routes = "m", row.routes
			_, r, err := l.ask(t, "local", "request", follows)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := sent(t, r); !slices.Equal(got, want) {
				t.Errorf("%s, %s: sent %s", row.name, follows, cmp.Diff(want, got))
			}
		}
	}
}

// A vendor that stores nothing forgets reasoning that it does not give away.
func TestReasoningIsAskedForWhereItIsNeededLater(t *testing.T) {
	for _, row := range []struct{ ask, want string }{
		{`"reasoning":{"effort":"low"}`, `"include":["reasoning.encrypted_content"]`},
		{`"reasoning":{"effort":"low"},"include":["message.output_text.logprobs"]`, `"include":["message.output_text.logprobs","reasoning.encrypted_content"]`},
		{`"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"]`, `"include":["reasoning.encrypted_content"]`},
		{`"reasoning":{"effort":"low"},"store":false`, ``},
		{`"temperature":1`, ``},
	} {
		_, r, err := newLab(stored.Here).ask(t, "local", "request", `"input":"x",`+row.ask)
		if err != nil {
			t.Fatal(err)
		}
		if _, body := sent(t, r); row.want == "" && strings.Contains(body, "include") || !strings.Contains(body, row.want) {
			t.Errorf("%s: sent %s", row.ask, body)
		}
	}
}

func TestWhatAnAccountDoesNotHaveIsRefusedInOneWay(t *testing.T) {
	approval := func(id string) string {
		return `{"type":"mcp_approval_response","approve":true,"approval_request_id":"` + id + `"}`
	}
	for _, row := range []struct {
		mode       stored.Mode
		ask, param string
		code       fault.Code
	}{
		{stored.Here, `"input":"x","previous_response_id":"resp_1"`, "previous_response_id", fault.ResponseNotFound},
		{stored.Here, `"input":"x","previous_response_id":"msg_1"`, "previous_response_id", fault.ResponseNotFound},
		{stored.Here, `"input":[` + userItem + `,{"type":"item_reference","id":"msg_1"}]`, "input[1].id", fault.ItemNotFound},
		{stored.Here, `"input":[{"type":"item_reference","id":"resp_1"}]`, "input[0].id", fault.ItemNotFound},
		{stored.Here, `"input":[{"type":"item_reference","id":"a b"}]`, "input[0].id", fault.ItemNotFound},
		{stored.Here, `"input":[` + approval("fc_1") + `]`, "input[0].approval_request_id", fault.ItemNotFound},
		{stored.AtVendors, `"input":"x","previous_response_id":"resp_1"`, "previous_response_id", fault.ResponseNotFound},
		{stored.AtVendors, `"input":"x","previous_response_id":"msg_1"`, "previous_response_id", fault.ResponseNotFound},
		{stored.AtVendors, `"input":[{"type":"item_reference","id":"msg_1"}]`, "input[0].id", fault.ItemNotFound},
		{stored.AtVendors, `"input":[` + approval("fc_1") + `]`, "input[0].approval_request_id", fault.ItemNotFound},
		{stored.AtVendors, `"input":[` + approval("fc_1") + `,{"id":"fc_1","type":"mcp_approval_request","name":"f"}]`, "input[0].approval_request_id", fault.ItemNotFound},
	} {
		for kind := range kinds {
			l := newLab(row.mode)
			l.keep(t, "local", `"input":"one"`, "store=true")
			if strings.Contains(row.ask, `"previous_response_id":"msg_1"`) || strings.Contains(row.ask, `"id":"resp_1"`) { // not even its own
				if _, _, err := l.ask(t, "local", kind, row.ask); !fault.Is(err, row.code) {
					t.Errorf("%v %s, %s: %v", row.mode, kind, row.ask, err)
				}
			}
			_, _, others := l.ask(t, "other", kind, row.ask)
			ask := strings.NewReplacer("_1", "_9").Replace(row.ask)
			_, _, nobodys := l.ask(t, "local", kind, ask)
			for who, err := range map[string]error{"another account": others, "an id that never was": nobodys} {
				if code, param := refusal(err); code != row.code || param != row.param || fault.From(err).HTTPStatus() != 400 || fault.From(err).Retry != fault.RetryNo {
					t.Errorf("%v %s, %s, %s: %v", row.mode, kind, row.ask, who, err)
				}
			}
			if got, want := nobodys.Error(), strings.NewReplacer("_1", "_9").Replace(others.Error()); got != want {
				t.Errorf("%s: %q to one, %q to the other", row.ask, got, want)
			}
		}
	}
}

func TestWhereNothingIsKeptAReferenceIsRefused(t *testing.T) {
	for ask, param := range map[string]string{
		`"previous_response_id":"resp_1","input":"x"`:                       "previous_response_id",
		`"input":[` + userItem + `,{"type":"item_reference","id":"msg_1"}]`: "input[1].id",
	} {
		turn, _, err := newLab(stored.Off).ask(t, "local", "request", ask)
		if f := fault.From(err); turn != nil || f == nil || f.Param != param || f.Retry != fault.RetryNo || !strings.HasPrefix(f.Message, "This gateway stores no responses. Send the whole conversation:") {
			t.Errorf("%s: %+v, %v", ask, turn, err)
		}
	}
}

// endless is a store in which each response goes on from another one, or from itself, as with
// a vendor that gives all of them one id.
type endless struct {
	state.Store
	row  state.Response
	self bool
}

func (s endless) Get(_ context.Context, _, id string) (*state.Response, error) {
	row := s.row
	if row.ID, row.Previous = id, id; !s.self {
		n, _ := strconv.Atoi(strings.TrimPrefix(id, "resp_"))
		row.Previous = fmt.Sprint("resp_", n+1)
	}
	return &row, nil
}

func (s endless) Has(context.Context, string, string) (bool, error) { return true, nil }

func TestWhatARequestBringsInIsBounded(t *testing.T) {
	list := func(n int, item string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(item, i)
		}
		return `"input":[` + strings.Join(items, ",") + `]`
	}
	const container = `{"type":"code_interpreter_call","id":"ci_%[1]d","container_id":"cntr_%[1]d","code":"x","outputs":[]}`
	for _, row := range []struct {
		name   string
		mode   stored.Mode
		filler int // bytes of each response
		ask    string
		param  string
		says   string
	}{
		{"responses of a conversation", stored.Here, 0, `"previous_response_id":"resp_1","input":"x"`, "previous_response_id", "more than 1000 responses"},
		{"bytes of a conversation", stored.Here, 250_000, `"previous_response_id":"resp_1","input":"x"`, "previous_response_id", "more than 32 MiB"},
		{"responses of items", stored.Here, 0, list(2_000, `{"id":"msg_%d"}`), "input[0].id", ""},
		{"items at a vendor", stored.AtVendors, 0, list(2_000, `{"id":"msg_%d"}`), "input[1000].id", "more than 1000 stored items"},
		{"approvals", stored.Here, 0, list(1_001, `{"type":"mcp_approval_response","approve":true,"approval_request_id":"fc_%d"}`), "input[1000].approval_request_id", "more than 1000 calls"},
		{"containers", stored.Here, 0, list(1_001, container) + `,"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`, "input[1000].container_id", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(row.mode)
			l.keep(t, "local", `"input":"x"`, "store=true", `x="`+strings.Repeat("x", row.filler)+`"`)
			l.store.Store = endless{l.store.Store, l.store.put[0], true}
			l.store.reads = 0
			_, _, err := l.ask(t, "local", "request", row.ask)
			if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Param != row.param || !strings.Contains(f.Message, row.says) {
				t.Errorf("got %v, want a refusal of %s with %q", err, row.param, row.says)
			}
			if l.store.reads > 1_000 {
				t.Errorf("%d responses were read, want at most 1,000", l.store.reads)
			}
		})
	}
}

func TestAListOfItemsIsBounded(t *testing.T) {
	for _, row := range []struct {
		name   string
		filler int // bytes of each response
		self   bool
		reads  int
	}{
		{"responses", 0, false, 1_000},
		{"bytes", 1 << 20, false, 32},
		{"a response that goes on from itself", 0, true, 1},
	} {
		l := newLab(stored.Here)
		l.keep(t, "local", `"input":"x"`, `x="`+strings.Repeat("x", row.filler)+`"`)
		l.store.Store = endless{l.store.Store, l.store.put[0], row.self}
		first, err := l.Find(t.Context(), "local", "resp_1")
		if err != nil {
			t.Fatal(err)
		}
		if items, found, err := l.Input(t.Context(), first, stored.Page{Limit: 1 << 20}, &l.memory); err != nil || !found || len(items) == 0 || l.store.reads != row.reads {
			t.Errorf("%s: %d items after %d reads, %v, want %d reads", row.name, len(items), l.store.reads, err, row.reads)
		}
	}
}

// An item that a request names many times makes it larger each time.
func TestAnItemTakesMemoryAsOftenAsItIsNamed(t *testing.T) {
	const size = 200_000
	for _, row := range []struct {
		name   string
		times  int
		memory int64
		code   fault.Code
	}{
		{"few times", 3, 1 << 30, ""},
		{"more than one request may bring in", 4_000, 1 << 30, fault.InvalidRequest},
		{"more than there is memory for", 100, 16 << 20, fault.ServiceUnavailable},
	} {
		for kind := range kinds {
			l := newLab(stored.Here)
			l.keep(t, "local", `"input":"x"`, output(1, `{"id":"msg_l","type":"message","role":"assistant","content":[{"type":"output_text","text":"`+strings.Repeat("x", size)+`"}]}`))
			l.memory = budget{left: row.memory}
			_, _, err := l.ask(t, "local", kind, `"input":[`+strings.Repeat(`{"id":"msg_l"},`, row.times)+userItem+`]`)
			if code, _ := refusal(err); code != row.code {
				t.Errorf("%s, %s: %v", row.name, kind, err)
			}
			if least := int64(row.times) * size; row.code == "" && (l.memory.taken < least || l.memory.taken > least+10_000) {
				t.Errorf("%s, %s: %d bytes are reserved, want about %d", row.name, kind, l.memory.taken, least)
			}
		}
	}
}

// What a request only names is looked up once for each id, and no body is read for that.
func TestWhatIsOnlyNamedIsLookedUpOnceWithoutItsBody(t *testing.T) {
	const approval = `,{"type":"mcp_approval_response","approve":true,"approval_request_id":"%s"}`
	const interpreter = `{"type":"code_interpreter","container":"%s"},`
	for _, row := range []struct {
		name, ask string
		code      fault.Code
		reads     int
	}{
		{"approvals", `"input":[` + userItem + strings.Repeat(fmt.Sprintf(approval, "msg_1"), 300) + `]`, "", 1},
		{"approvals, and one of nothing", `"input":[` + userItem + strings.Repeat(fmt.Sprintf(approval, "msg_1"), 300) + fmt.Sprintf(approval, "msg_9") + `]`, fault.ItemNotFound, 2},
		{"a container", `"input":"x","tools":[` + strings.Repeat(fmt.Sprintf(interpreter, "cntr_1"), 99) + `{"type":"function","name":"f"}]`, "", 1},
		{"a container, and another", `"input":"x","tools":[` + strings.Repeat(fmt.Sprintf(interpreter, "cntr_1"), 99) + fmt.Sprintf(interpreter, "cntr_9") + `{"type":"function","name":"f"}]`, fault.ItemNotFound, 2},
	} {
		for kind := range kinds {
			l := newLab(stored.Here)
			l.keep(t, "local", `"input":"x"`, output(1, `{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"1"}`))
			_, _, err := l.ask(t, "local", kind, row.ask)
			if code, _ := refusal(err); code != row.code || l.store.reads != row.reads || l.store.bytes != 0 {
				t.Errorf("%s, %s: %v, after %d reads of %d bytes", row.name, kind, err, l.store.reads, l.store.bytes)
			}
		}
	}
}
