package stored_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/stored"
)

// modes are all modes by their names.
var modes = map[string]stored.Mode{"off": stored.Off, "at vendors": stored.AtVendors, "here": stored.Here}

// What the account has made itself may be named in any form, and goes to who made it.
func TestWhatAVendorKeepsGoesBackToTheSameKey(t *testing.T) {
	const approval, step = `{"type":"mcp_approval_response","approval_request_id":"fc_1","approve":true}`, `{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`
	for _, ask := range []string{
		`"previous_response_id":"resp_1","input":"x"`,
		`"input":[{"type":"item_reference","id":"msg_1"}]`,
		`"input":[{"type":"code_interpreter_call","container_id":"cntr_1","code":"x"}]`,
		`"input":[` + approval + `]`,
		`"input":[` + approval + `,{"id":"fc_1","type":"mcp_approval_request","name":"f"}]`,
		`"input":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":""}]`,
		`"input":[{"id":"msg_1","type":"web_search_call","status":"completed"}]`,
	} {
		for kind := range kinds {
			l := newLab(stored.AtVendors)
			l.keep(t, "local", `"input":"one"`, output(1, step), "store=true")
			turn, r, err := l.ask(t, "local", kind, ask)
			if err != nil {
				t.Fatal(ask, err)
			}
			if _, body := sent(t, r); !strings.Contains(body, ask) || strings.Contains(body, "store") {
				t.Errorf("sent %s, want %s as it came", body, ask)
			}
			if channel, key := turn.At(); channel != "a" || key != "1" {
				t.Errorf("%s: it goes to %q, %q", ask, channel, key)
			}
		}
	}
}

// Another mode was set when the response was kept.
func TestWhatIsKeptHereIsAtNoVendor(t *testing.T) {
	l, before := newLab(stored.AtVendors), newLab(stored.Here)
	before.keep(t, "local", `"input":"one"`)
	if err := l.store.Put(t.Context(), before.store.put[0]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.ask(t, "local", "request", `"previous_response_id":"resp_1","input":"x"`); !fault.Is(err, fault.ResponseNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestWhatTwoVendorsKeepIsRefusedInOneRequest(t *testing.T) {
	l := newLab(stored.AtVendors)
	l.keep(t, "local", `"input":"one"`, "store=true")
	turn, _, err := l.ask(t, "local", "request", `"input":"one"`)
	if err != nil {
		t.Fatal(err)
	}
	turn.Answered(t.Context(), "a", "2")
	turn.Edit(answer(2, "store=true"), true)
	if _, _, err := l.ask(t, "local", "request", `"input":[{"id":"msg_1"},{"id":"msg_2"}]`); fault.From(err) == nil || fault.From(err).Param != "input[1].id" || !strings.Contains(err.Error(), "kept by another vendor") {
		t.Errorf("got %v", err)
	}
}

// A vendor looks reasoning up by its id alone, among those of all customers of one key.
func TestReasoningThatIsOnlyNamedIsItsAccountsOwn(t *testing.T) {
	const named = `{"id":"rs_gone_1","type":"reasoning","summary":[]}`
	for _, row := range []struct {
		name, account, input string
		sent                 []string // nil for a refusal
		store                bool     // the vendor is asked to store nothing
	}{
		{"its own", "local", userItem + `,` + named, []string{userItem, named}, false},
		{"another account's", "other", userItem + `,` + named, []string{userItem}, true},
		{"without an id", "local", userItem + `,{"type":"reasoning","summary":[]}`, []string{userItem}, true},
		{"another account's, beside its own item", "other", `{"id":"msg_2"},` + named, nil, false},
	} {
		l := newLab(stored.AtVendors)
		l.keep(t, "local", `"input":"one"`, "store=true")
		l.keep(t, "other", `"input":"one"`, "store=true")
		_, r, err := l.ask(t, row.account, "request", `"input":[`+row.input+`]`)
		if row.sent == nil {
			if !fault.Is(err, fault.ItemNotFound) {
				t.Errorf("%s: got %v", row.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(row.name, err)
		}
		if got, body := sent(t, r); !slices.Equal(got, row.sent) || strings.Contains(body, `"store":false`) != row.store {
			t.Errorf("%s: sent %s: %s", row.name, body, cmp.Diff(row.sent, got))
		}
	}
}

// A vendor may look an item up by its id even where the request has the item, and then has
// that of whoever made it.
func TestNoIDOfAnotherAccountReachesTheVendor(t *testing.T) {
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
		for name, mode := range modes {
			want := row.off
			if mode == stored.AtVendors {
				want = row.native
			}
			for kind := range kinds {
				_, r, err := newLab(mode).ask(t, "other", kind, `"input":[`+row.item+`,`+userItem+`]`)
				got := ""
				if code, param := refusal(err); code == fault.ItemNotFound {
					got = param
				} else if err == nil {
					items, _ := sent(t, r)
					got = strings.Join(items[:len(items)-1], ",")
				}
				if got != want {
					t.Errorf("%s, %s, %s: got %s, %v, want %s", row.name, name, kind, got, err, want)
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
		ask := row.body
		if !strings.Contains(ask, `"input"`) {
			ask = `"input":"x",` + ask
		}
		for name, mode := range modes {
			for kind := range kinds {
				for _, passes := range []bool{false, true} {
					l := newLab(mode)
					if mode != stored.Off {
						l.keep(t, "local", `"input":"one"`, "store=true", output(1, `{"id":"ci_1","type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`))
					}
					if passes {
						l.routes.Channels = passing(row.pass)
					}
					for _, account := range []string{"local", "other"} {
						_, _, err := l.ask(t, account, kind, ask)
						allowed := row.param == "" || passes && row.pass != nil || row.own && account == "local" && mode != stored.Off
						if f := fault.From(err); allowed && err != nil || !allowed && (f == nil || f.HTTPStatus() != 400 || f.Param != row.param) {
							t.Errorf("%s, %s, %s of %s, passed %t: %v", row.name, name, kind, account, passes, err)
						}
					}
				}
			}
		}
	}
}

// Prepaid leaves out a tool without a price, and with it what the tool names.
func TestAToolThatIsLeftOutNamesNothing(t *testing.T) {
	for _, row := range []struct {
		prepaid bool
		pass    passing
		code    fault.Code
	}{
		{true, nil, ""}, {true, passing{"tools"}, fault.ItemNotFound}, {true, passing{"tools", "vector_store_ids"}, ""}, {false, nil, fault.ItemNotFound},
	} {
		l := newLab(stored.Here)
		l.routes = stored.Routes{Channels: row.pass, Prepaid: row.prepaid}
		_, _, err := l.ask(t, "local", "request", `"input":"x","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]`)
		if code, _ := refusal(err); code != row.code {
			t.Errorf("prepaid %t, %q: %v, want %q", row.prepaid, row.pass, err, row.code)
		}
	}
}

// What an account could say while no tool used it is not used by a later turn.
func TestAStoredItemLeadsToNoContainerOfOthers(t *testing.T) {
	l := newLab(stored.Here)
	l.keep(t, "local", `"input":[{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_9","code":"x","outputs":[]},`+userItem+`]`)
	_, _, err := l.ask(t, "local", "request", `"previous_response_id":"resp_1","input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`)
	if code, param := refusal(err); code != fault.ItemNotFound || param != "input[0].container_id" {
		t.Errorf("got %v", err)
	}
}

func TestCitationsOfTheVendorsAccountAreLeftOut(t *testing.T) {
	message := func(citations string) string {
		return `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[` + citations + `]}]}`
	}
	const link, file, container = `{"type":"url_citation","url":"https://a"}`, `{"type":"file_citation","file_id":"file_1","index":1}`, `{"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1"}`
	both := []string{message(file + "," + link + "," + container), message(link)}
	for name, mode := range modes {
		for _, row := range []struct {
			pass passing
			want []string
		}{
			{nil, []string{message(link), message(link)}},
			{passing{"file_id"}, []string{message(link), message(link)}},
			{passing{"file_id", "container_id"}, both},
		} {
			l := newLab(mode)
			l.routes.Channels = row.pass
			_, r, err := l.ask(t, "local", "request", `"input":[`+strings.Join(both, ",")+`]`)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := sent(t, r); !slices.Equal(got, row.want) {
				t.Errorf("%s, passing %q: sent %s", name, row.pass, got)
			}
		}
	}
}
