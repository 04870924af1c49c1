package gateway_test

import (
	"cmp"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// All customers share the gateway's account at the vendor. Who learns the id of another's
// file must not read it, whatever the billing.
func TestAFileThatOnlyAnIDNamesIsRefusedOnEveryWire(t *testing.T) {
	const chatUser, user = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[`, `{"model":"m","max_output_tokens":9,"input":[{"role":"user","content":[`
	for _, row := range []struct {
		ops        []upstream.Op
		head, part string
		tail       string // of the body; ]}]} if empty
		param      string // empty if it is allowed
	}{
		{[]upstream.Op{upstream.ChatCompletion}, chatUser, `{"type":"file","file":{"file_id":"file-1"}}`, "", "messages[0].content[0].file.file_id"},
		{[]upstream.Op{upstream.ChatCompletion}, chatUser, `{"type":"file","file":{"File_ID":"file-1","file_data":"data:text/plain,a"}}`, "", "messages[0].content[0].file.File_ID"},
		{[]upstream.Op{upstream.ChatCompletion}, chatUser, `{"type":"text","text":"a"},{"type":"video_url","video_url":{"url":"ms://file-1"}}`, "", "messages[0].content[1].video_url.url"},
		{[]upstream.Op{upstream.ChatCompletion}, chatUser, `{"type":"image_url","image_url":{"url":"gs://bucket/file"}}`, "", "messages[0].content[0].image_url.url"},
		{[]upstream.Op{upstream.ChatCompletion}, chatUser, `{"type":"file","file":{"file_id":null,"file_data":"data:text/plain,a"}}`, "", ""},
		{[]upstream.Op{upstream.Messages, upstream.CountTokens}, chatUser, `{"type":"document","source":{"type":"file","file_id":"file_1"}}`, "", "messages[0].content[0].source.file_id"},
		{[]upstream.Op{upstream.Messages, upstream.CountTokens}, chatUser, `{"type":"image","source":{"type":"file","file_id":"file_1"}}`, "", "messages[0].content[0].source.file_id"},
		{[]upstream.Op{upstream.Messages}, chatUser, `{"type":"container_upload","file_id":"file_1"}`, "", "messages[0].content[0].file_id"},
		{[]upstream.Op{upstream.Messages}, chatUser, `{"type":"of_the_future","source":{"type":"file","file_id":"file_1"}}`, "", "messages[0].content[0].source.file_id"},
		{[]upstream.Op{upstream.Messages}, chatUser, `{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]}`, "", "messages[0].content[0].content[0].source.file_id"},
		{[]upstream.Op{upstream.Messages}, chatUser, `{"type":"text","text":"a"}`, `]},{"role":"assistant","content":[{"type":"code_execution_tool_result","tool_use_id":"t","content":{"type":"code_execution_result","content":[{"type":"code_execution_output","file_id":"file_1"}]}}]},{"role":"user","content":"b"}]}`, ""},
		{[]upstream.Op{upstream.Responses, upstream.CountInput}, user, `{"type":"input_file","file_id":"file-1"}`, "", "input[0].content[0].file_id"},
		{[]upstream.Op{upstream.Responses, upstream.CountInput}, user, `{"type":"input_image","file_id":"file-1"}`, "", "input[0].content[0].file_id"},
		{[]upstream.Op{upstream.Responses}, `{"model":"m","max_output_tokens":9,"input":[`, `{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"f"}]}`, `]}`, "input[0].output[0].file_id"},
		{[]upstream.Op{upstream.Responses}, `{"model":"m","max_output_tokens":9,"input":[`, `{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","file_id":"f"}}`, `]}`, "input[0].output.file_id"},
	} {
		for _, op := range row.ops {
			for name, c := range map[string]struct {
				edit   func(*gateway.Options)
				pass   []string
				passes bool
			}{
				"in prepaid":         {inPrepaid, nil, false},
				"counted billing":    {func(*gateway.Options) {}, nil, false},
				"passed":             {func(*gateway.Options) {}, []string{"file_id"}, true},
				"passed, in prepaid": {inPrepaid, []string{"file_id"}, true},
			} {
				up := &scriptedUpstream{text: map[upstream.Op]string{
					upstream.ChatCompletion: chatAnswer(reported), upstream.Messages: messageAnswer, upstream.Responses: responseAnswer,
					upstream.CountTokens: `{"input_tokens":7}`, upstream.CountInput: `{"object":"response.input_tokens","input_tokens":7}`,
				}[op]}
				h := newTestGateway(t, newRouter(t, router.Channel{Name: "c", Upstream: answering{op, up}, Models: map[string]string{"m": "m"}, Pass: c.pass}), "9.00", c.edit)
				r, err := h.do(t.Context(), op, row.head+row.part+cmp.Or(row.tail, `]}]}`))
				r.Close()
				allowed := c.passes || row.param == ""
				if f := fault.From(err); allowed && err != nil || !allowed && (f == nil || f.HTTPStatus() != 400 || f.Param != row.param || up.count() != 0) {
					t.Errorf("%s of %s, %s: %v, want a refusal of %q", op, row.part, name, err, row.param)
				}
			}
		}
	}
}
