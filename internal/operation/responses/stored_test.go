package responses

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

func TestAResponseIsFoundByItsItemsAndWhatItsContainersMade(t *testing.T) {
	cites := func(annotations string) string {
		return `{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"x","annotations":[` + annotations + `]},{"type":"refusal","refusal":"no"},7]}`
	}
	for name, c := range map[string]struct {
		output string
		want   []string
	}{
		"nothing":                       {``, nil},
		"items, each once":              {`{"type":"reasoning","id":"rs_1"},{"type":"message","id":"msg_1"},{"type":"message","id":"msg_1"},{"type":"x"},{"id":7}`, []string{"rs_1", "msg_1"}},
		"the response's own id":         {`{"type":"message","id":"resp_1"}`, nil},
		"a container":                   {`{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_1"}`, []string{"ci_1", "cntr_1"}},
		"a file of a container":         {cites(`{"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1"}`), []string{"msg_1", "cntr_1", "cfile_1"}},
		"a file of the request's":       {cites(`{"type":"file_citation","file_id":"file_1"},{"type":"url_citation","url":"u"}`), []string{"msg_1"}},
		"an id that is too long":        {`{"id":"` + strings.Repeat("x", 257) + `"}`, nil},
		"an id that is no visible text": {`{"id":"a b\n"}`, nil},
	} {
		if got := ItemIDs([]byte(`{"id":"resp_1","output":[` + c.output + `]}`)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"id":"i%d"}`, i)
	}
	if got := ItemIDs([]byte(`{"output":[` + strings.Join(many, ",") + `]}`)); len(got) != 1024 {
		t.Errorf("%d ids of many", len(got))
	}
}

func TestItemsOfAListHaveMoreWhereTheCallerAsksForIt(t *testing.T) {
	for include, c := range map[string]struct{ item, want string }{
		"file_search_call.results":              {`{"type":"file_search_call","results":[1],"id":"a"}`, `{"type":"file_search_call","id":"a"}`},
		"web_search_call.results":               {`{"type":"web_search_call","results":[1],"id":"a"}`, `{"type":"web_search_call","id":"a"}`},
		"web_search_call.action.sources":        {`{"type":"web_search_call","action":{"type":"search","sources":[1]},"id":"a"}`, `{"type":"web_search_call","action":{"type":"search"},"id":"a"}`},
		"message.input_image.image_url":         {`{"role":"user","content":[{"type":"input_image","image_url":"u"},{"type":"input_file","image_url":"v"}],"id":"a"}`, `{"role":"user","content":[{"type":"input_image"},{"type":"input_file","image_url":"v"}],"id":"a"}`},
		"computer_call_output.output.image_url": {`{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"u"},"id":"a"}`, `{"type":"computer_call_output","output":{"type":"computer_screenshot"},"id":"a"}`},
		"code_interpreter_call.outputs":         {`{"type":"code_interpreter_call","outputs":[1],"id":"a"}`, `{"type":"code_interpreter_call","id":"a"}`},
		"reasoning.encrypted_content":           {`{"type":"reasoning","encrypted_content":"x","id":"a"}`, `{"type":"reasoning","id":"a"}`},
		"message.output_text.logprobs":          {`{"type":"message","content":[{"type":"output_text","logprobs":[1]}],"id":"a"}`, `{"type":"message","content":[{"type":"output_text"}],"id":"a"}`},
	} {
		s := Stored{Input: [][]byte{[]byte(c.item)}, Response: []byte(`{"id":"resp_1"}`)}
		if !slices.Contains(Includable(), include) {
			t.Errorf("%s cannot be included", include)
		}
		for _, asked := range [][]string{nil, {include}} {
			want := c.want
			if asked != nil {
				want = c.item
			}
			got, ok := InputPage(s.ListedInput(), 1, "", asked)
			if want = `{"object":"list","data":[` + want + `],"first_id":"a","last_id":"a","has_more":false}`; !ok || string(got) != want {
				t.Errorf("%q: %s, want %s", asked, got, want)
			}
		}
	}
	if n := len(Includable()); n != 8 {
		t.Errorf("%d words, and this table has 8", n)
	}
}

func TestItemsAreListedInPages(t *testing.T) {
	stored := Stored{Response: []byte(`{"id":"resp_1"}`)}
	for _, item := range []string{`{"role":"user","content":"a"}`, `{"id":"own","role":"user","content":"b"}`, `{"role":"user","content":"c"}`} {
		stored.Input = append(stored.Input, []byte(item))
	}
	const a, b, c = `{"role":"user","content":"a","id":"item_0_resp_1"}`, `{"id":"own","role":"user","content":"b"}`, `{"role":"user","content":"c","id":"item_2_resp_1"}`
	for _, row := range []struct {
		limit int
		after string
		want  string // empty if there is no such page
	}{
		{20, "", `"data":[` + a + `,` + b + `,` + c + `],"first_id":"item_0_resp_1","last_id":"item_2_resp_1","has_more":false`},
		{3, "", `"data":[` + a + `,` + b + `,` + c + `],"first_id":"item_0_resp_1","last_id":"item_2_resp_1","has_more":false`},
		{2, "", `"data":[` + a + `,` + b + `],"first_id":"item_0_resp_1","last_id":"own","has_more":true`},
		{2, "own", `"data":[` + c + `],"first_id":"item_2_resp_1","last_id":"item_2_resp_1","has_more":false`},
		{20, "item_2_resp_1", `"data":[],"first_id":null,"last_id":null,"has_more":false`},
		{20, "nothing", ``},
	} {
		got, ok := InputPage(stored.ListedInput(), row.limit, row.after, nil)
		if want := `{"object":"list",` + row.want + `}`; ok != (row.want != "") || ok && string(got) != want {
			t.Errorf("%d after %q: got %s, want %s", row.limit, row.after, got, want)
		}
	}
}

// A byte of the output may be a token, and no vendor makes a conversation shorter.
func TestTokensOfAConversationWhateverTheVendorSays(t *testing.T) {
	const input, most = 100_000, 1_000_000
	for usage, want := range map[string]int64{
		`{"input_tokens":20,"output_tokens":30}`:           input + 30,
		`{"input_tokens":500000,"output_tokens":30}`:       500_030,
		`{"input_tokens":20,"output_tokens":500000}`:       input + 500_000,
		`{"input_tokens":1000000,"output_tokens":1000000}`: most,
		`{}`:   input + 9,
		`null`: input + 9,
		`{"input_tokens":-1,"output_tokens":-9223372036854775808}`:   input + 9,
		`{"input_tokens":9223372036854775807,"output_tokens":30}`:    input + 30,
		`{"input_tokens":9223372036854775807,"output_tokens":1e400}`: input + 9,
	} {
		o, err := rawjson.Index([]byte(`{"output":[1234567],"usage":`+usage+`}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := TokensOf(&o, input, most); got != want {
			t.Errorf("%s: %d, want %d", usage, got, want)
		}
	}
}
