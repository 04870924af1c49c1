package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/responses"
)

// strictTurns checks a conversation as the vendor of messages does.
func strictTurns(r *messages.Request) error {
	if len(r.Messages) == 0 {
		return fmt.Errorf("there are no messages")
	}
	ids := make(map[string]bool)
	var open []string // calls of the turn before
	for i, m := range r.Messages {
		if want := [...]string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("messages[%d] is of %s", i, m.Role)
		}
		blocks, err := m.Content.Blocks()
		if err != nil || len(blocks) == 0 {
			return fmt.Errorf("messages[%d] has no content: %v", i, err)
		}
		answered, said, calls := 0, false, open
		open = nil
		for _, b := range blocks {
			switch b.Type {
			case "tool_result":
				if said || !slices.Contains(calls, b.ToolUseID) {
					return fmt.Errorf("messages[%d] has a result out of place", i)
				}
				answered++
				continue
			case "tool_use":
				if ids[b.ID] || !plainID(b.ID) || b.Input.Kind() != '{' || m.Role != "assistant" {
					return fmt.Errorf("messages[%d] has a bad call %q", i, b.ID)
				}
				ids[b.ID] = true
				open = append(open, b.ID)
			case "text":
				if blank(b.Text) {
					return fmt.Errorf("messages[%d] has an empty text", i)
				}
			}
			said = true
		}
		if answered != len(calls) {
			return fmt.Errorf("messages[%d] answers %d calls of %d", i, answered, len(calls))
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls without results")
	}
	return nil
}

// strictChat checks a conversation as the strictest of chat upstreams does: calls are
// followed by their results, and by nothing before them.
func strictChat(list []chat.Message) error {
	var open []string // calls without a result
	for i := range list {
		m := &list[i]
		at := slices.Index(open, m.ToolCallID)
		switch {
		case m.Role == "tool" && at < 0:
			return fmt.Errorf("messages[%d] answers %q, which nobody asks", i, m.ToolCallID)
		case m.Role == "tool":
			open = slices.Delete(open, at, at+1)
		case len(open) > 0:
			return fmt.Errorf("messages[%d] stands between calls and their results", i)
		}
		for _, call := range m.ToolCalls {
			if _, err := rawjson.Index([]byte(call.Function.Arguments), nil, nil); err != nil || call.ID == "" || call.Function.Name == "" {
				return fmt.Errorf("messages[%d] has the call %+v", i, call)
			}
			open = append(open, call.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %v are not answered", open)
	}
	return nil
}

// flatTalk is everything that a conversation says, in order, without its turns. Within
// one user turn results come first, so texts and results are apart.
type flatTalk struct {
	System         string
	Texts          []string // of one role that stand together are one
	Calls, Results []string // what is called, and with what result
}

func flattened(list []chat.Message) (f flatTalk) {
	calls, role := make(map[string]string), ""
	for _, m := range list {
		text := m.Content.String()
		switch {
		case m.Role == "tool":
			f.Results = append(f.Results, calls[m.ToolCallID]+" "+strings.TrimSpace(text))
		case blank(text):
		case m.Role == "system" || m.Role == "developer":
			f.System += text
		case m.Role == role:
			f.Texts[len(f.Texts)-1] += text
		default:
			f.Texts, role = append(f.Texts, m.Role+": "+text), m.Role
		}
		for _, c := range m.ToolCalls {
			calls[c.ID] = c.Function.Name + c.Function.Arguments
			f.Calls = append(f.Calls, calls[c.ID])
		}
	}
	slices.Sort(f.Results) // of one turn they may come in any order
	return f
}

var drawnText = rapid.SampledFrom([]string{"", " \n", "a", "héllo", "\"q\" <&>", "two\nlines", "  padded "})

// drawnChat draws messages as clients of chat send them: any roles in any order, but
// that they begin with a user and every call is answered.
func drawnChat(t *rapid.T) []chat.Message {
	var list []chat.Message
	instruct := func() {
		if rapid.Bool().Draw(t, "instruct") {
			role := rapid.SampledFrom([]string{"system", "developer"}).Draw(t, "role")
			list = append(list, chat.Message{Role: role, Content: chat.Text(drawnText.Draw(t, "text"))})
		}
	}
	instruct()
	list = append(list, chat.Message{Role: "user", Content: chat.Text("go")})
	for range rapid.IntRange(0, 6).Draw(t, "turns") {
		instruct()
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			list = append(list, chat.Message{Role: "user", Content: chat.Text(drawnText.Draw(t, "text"))})
		case 1:
			list = append(list, chat.Message{Role: "assistant", Content: chat.Text(drawnText.Draw(t, "text"))})
		default:
			list = append(list, drawnCalls(t)...)
		}
	}
	return list
}

// drawnCalls draws calls and, in any order, their results.
func drawnCalls(t *rapid.T) []chat.Message {
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"call_1", "call_2", "functions.f:0", "functions.f:1", "é"}), 1, 3, rapid.ID).Draw(t, "ids")
	call := chat.Message{Role: "assistant", Content: chat.Text(drawnText.Draw(t, "text"))}
	for i, id := range ids {
		call.ToolCalls = append(call.ToolCalls, chat.ToolCall{ID: id, Type: "function", Function: chat.CalledFunction{
			Name: fmt.Sprint("f", i), Arguments: rapid.SampledFrom([]string{`{}`, `{"a":1.0}`, `{"é":[null]}`}).Draw(t, "arguments"),
		}})
	}
	list := []chat.Message{call}
	for _, id := range rapid.Permutation(ids).Draw(t, "order") {
		if rapid.IntRange(0, 3).Draw(t, "interrupt") == 0 {
			list = append(list, chat.Message{Role: "user", Content: chat.Text(drawnText.Draw(t, "text"))})
		}
		list = append(list, chat.Message{Role: "tool", ToolCallID: id, Content: chat.Text(drawnText.Draw(t, "text"))})
	}
	return list
}

func TestEveryConversationIsAcceptedThereAndBackAndLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawnChat(t)
		there, dropped, err := chatToMessages(&chat.Request{Model: "m", Messages: list}, 100, "")
		if err == nil {
			err = strictTurns(there.Request)
		}
		if err != nil || len(dropped) > 0 {
			t.Fatalf("%v, dropped %q", err, dropped)
		}
		back, dropped, err := messagesToChat(there.Request)
		if err == nil {
			err = strictChat(back.Messages)
		}
		if err != nil || len(dropped) > 0 {
			t.Fatalf("%v, dropped %q in %s", err, dropped, there.Source())
		}
		if diff := cmp.Diff(flattened(list), flattened(back.Messages)); diff != "" {
			t.Errorf("(-sent +back)\n%s", diff)
		}
	})
}

// strictItems checks a conversation as the vendor of responses does, and is what it says:
// every call has one output after it.
func strictItems(in responses.Input) (f flatTalk, err error) {
	items, err := in.Items()
	if err != nil {
		return f, err
	}
	calls, role := make(map[string]string), ""
	for i := range items {
		item := &items[i]
		switch text := item.Content.String(); item.Type {
		case "message":
			switch {
			case blank(text):
			case item.Role == "system" || item.Role == "developer":
				f.System += text
			case item.Role == role:
				f.Texts[len(f.Texts)-1] += text
			default:
				f.Texts, role = append(f.Texts, item.Role+": "+text), item.Role
			}
		case "function_call":
			arguments, ok := rawjson.String(item.Arguments)
			if calls[item.CallID] != "" || item.Name == "" || !ok {
				return f, fmt.Errorf("input[%d] is the call %+v", i, item)
			}
			calls[item.CallID] = item.Name + arguments
			f.Calls = append(f.Calls, calls[item.CallID])
		case "function_call_output":
			if calls[item.CallID] == "" {
				return f, fmt.Errorf("input[%d] answers %q, which is not open", i, item.CallID)
			}
			f.Results = append(f.Results, calls[item.CallID]+" "+strings.TrimSpace(item.Output.String()))
			delete(calls, item.CallID)
		default:
			return f, fmt.Errorf("input[%d] is of type %q", i, item.Type)
		}
	}
	if len(calls) > 0 {
		return f, fmt.Errorf("calls without outputs: %v", calls)
	}
	slices.Sort(f.Results)
	return f, nil
}

func TestEveryConversationIsAcceptedByAnUpstreamOfResponsesAndLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawnChat(t)
		r, dropped, err := chatToResponses(&chat.Request{Model: "m", Messages: list}, false)
		if err != nil || len(dropped) > 0 {
			t.Fatalf("%v, dropped %q", err, dropped)
		}
		got, err := strictItems(r.Input)
		if err != nil {
			t.Fatalf("%v in %s", err, r.Source())
		}
		if diff := cmp.Diff(flattened(list), got); diff != "" {
			t.Errorf("(-sent +got)\n%s", diff)
		}
		back, _, dropped, err := responsesToChat(r.Request, nil)
		if err == nil {
			err = strictChat(back.Messages)
		}
		if err != nil || len(dropped) > 0 {
			t.Fatalf("%v, dropped %q in %s", err, dropped, r.Source())
		}
		there, again := flattened(list), flattened(back.Messages)
		there.Texts, again.Texts = nil, nil // a turn's texts are paragraphs then
		if diff := cmp.Diff(there, again); diff != "" {
			t.Errorf("(-sent +back)\n%s", diff)
		}
	})
}

func TestALongerConversationBeginsAsTheShorterOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawnChat(t)
		whole, _, err := chatToMessages(&chat.Request{Model: "m", Messages: list}, 100, "")
		if err != nil {
			t.Fatal(err)
		}
		more, _, err := chatToMessages(&chat.Request{Model: "m", Messages: append(list, drawnCalls(t)...)}, 100, "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(whole.Messages) - 1 {
			if string(whole.Messages[i].Content) != string(more.Messages[i].Content) {
				t.Errorf("messages[%d] changed", i)
			}
		}
	})
}

func TestIdsAreReplacedByTheFirstThatIsFree(t *testing.T) {
	b := &chatToMessagesBuilder{used: make(map[string]int)}
	var got []string
	for _, id := range []string{"a", "a_3", "a", "a", "a_3", "a_2", "a", "a_3", "a_2_2"} {
		got = append(got, b.uniqueID(id))
	}
	want := []string{"a", "a_3", "a_2", "a_4", "a_3_2", "a_2_2", "a_5", "a_3_3", "a_2_2_2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	work := func(calls int) float64 { // every id that is tried is memory of its own
		return testing.AllocsPerRun(3, func() {
			b := &chatToMessagesBuilder{used: make(map[string]int)}
			for range calls {
				b.uniqueID("call_that_is_always_the_same_and_is_long")
			}
		})
	}
	if once, fourfold := work(250), work(1000); fourfold > 6*once {
		t.Errorf("%.0f allocations for 250 calls, %.0f for 1000", once, fourfold)
	}
}

func TestOneTurnMayHaveManyCalls(t *testing.T) {
	const calls = 50_000
	asks := chat.Message{Role: "assistant"}
	for i := range calls {
		asks.ToolCalls = append(asks.ToolCalls, chat.ToolCall{ID: fmt.Sprintf("call_of_many_%06d", i), Function: chat.CalledFunction{Name: "f"}})
	}
	b := &chatToMessagesBuilder{used: make(map[string]int)}
	if err := b.message(&asks, 0); err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		if b.requireResults() == nil {
			t.Fatalf("closed after %d results", i)
		}
		result := chat.Message{Role: "tool", ToolCallID: fmt.Sprintf("call_of_many_%06d", i)}
		if err := b.message(&result, i+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.requireResults(); err != nil {
		t.Error(err)
	}
}
