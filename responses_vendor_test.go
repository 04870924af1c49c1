package gateway_test

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// A vendor that keeps the conversation bills all of it, of which the request has the last
// words only.
func TestARequestPaysForTheConversationThatAVendorKeeps(t *testing.T) {
	v := &responsesVendor{store: "true", tokens: 300_000}
	k := newStateGateway(t, v, func(o *gateway.Options) { o.Responses.Mode = gateway.ResponsesNative })
	k.must(t, upstream.Responses, `{"model":"m","max_output_tokens":40,"input":"`+strings.Repeat("word ", 180_000)+`"}`) // a byte may be a token
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
		ran         = `"input":[{"type":"shell_call","id":"sh_1","call_id":"c","action":{"commands":["ls"]},"environment":{"type":"container_reference","container_id":"cntr_1"}},` + userItem + `],` + plain
		ranSpelled  = `"input":[{"type":"shell_call","id":"sh_1","call_id":"c","action":{"commands":["ls"]},"environment":{"type":"container_reference","Container_ID":"cntr_1"}},` + userItem + `],` + plain
		ranSkill    = `"input":[{"type":"shell_call","id":"sh_1","call_id":"c","action":{"commands":["ls"]},"environment":{"type":"container_auto","skills":[{"skill_id":"skill_1"}]}},` + userItem + `],` + plain
		searched    = `"input":[{"type":"file_search_call","id":"fs_1","queries":["q"],"vector_store_id":"vs_1"},` + userItem + `],` + plain
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
		{"a shell's container in a step", ran, "input[0].environment.container_id", true, nil},
		{"a shell's container in a step, in other letters", ranSpelled, "input[0].environment.Container_ID", true, nil},
		{"a skill in a step", ranSkill, "input[0].environment.skills[0].skill_id", false, []string{"skill_id"}},
		{"a vector store in a step", searched, "input[0].vector_store_id", false, []string{"vector_store_ids"}},
		{"a container, in other letters", strings.Replace(interpreter, `"container"`, `"Container"`, 1), "tools[0].Container", true, []string{"container_id"}},
		{"one vector store", `"tools":[{"type":"file_search","vector_store_id":"vs_1"}]`, "tools[0].vector_store_id", false, []string{"vector_store_ids"}},
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

// What the account has made itself may be named in any form.
func TestWhatAVendorStoresIsItsAccountsAndGoesBackToTheSameKey(t *testing.T) {
	const approval, step = `{"type":"mcp_approval_response","approval_request_id":"fc_1","approve":true}`, `{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`
	for _, request := range []string{askResponse, askResponseStream} {
		v := &responsesVendor{store: "true", more: `,` + step}
		kept := newCountedStore()
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
		for _, row := range []struct {
			follows string
			code    fault.Code // for another account; none where the item is sent without its id, or left out
		}{
			{`"previous_response_id":"resp_1","input":"x"`, fault.ResponseNotFound},
			{`"input":[{"type":"item_reference","id":"msg_1"}]`, fault.ItemNotFound},
			{`"input":[{"type":"code_interpreter_call","container_id":"cntr_1","code":"x"}]`, fault.ItemNotFound},
			{`"input":[` + approval + `]`, fault.ItemNotFound},
			{`"input":[` + approval + `,{"id":"fc_1","type":"mcp_approval_request","name":"f"}]`, fault.ItemNotFound},
			{`"input":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":""}]`, ""},
			{`"input":[{"id":"msg_1","type":"web_search_call","status":"completed"}]`, ""},
		} {
			k.complete(t, upstream.Responses, `{"model":"m","max_output_tokens":40,`+row.follows+`}`)
			n := len(v.calls)
			if _, body := v.input(t, n); !strings.Contains(body, row.follows) {
				t.Errorf("sent %s", body)
			}
			if c := v.calls[n-1]; c.Channel != "default" || c.Key != "key_1" {
				t.Errorf("it went to %q, %q", c.Channel, c.Key)
			}
			if _, err := k.do(asAccount(t, "other"), upstream.Responses, `{"model":"m","max_output_tokens":40,`+row.follows+`}`); row.code == "" && err != nil || row.code != "" && (!fault.Is(err, row.code) || len(v.calls) != n) {
				t.Errorf("another account: %s, %v", row.follows, err)
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
