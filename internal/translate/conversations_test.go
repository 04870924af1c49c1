package translate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// strictTurns checks a conversation as the vendor does.
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
		var answered []string
		said := false
		calls := open
		open = nil
		for _, b := range blocks {
			switch b.Type {
			case "tool_result":
				if said || !slices.Contains(calls, b.ToolUseID) {
					return fmt.Errorf("messages[%d] has a result out of place", i)
				}
				answered = append(answered, b.ToolUseID)
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
		if len(answered) != len(calls) {
			return fmt.Errorf("messages[%d] answers %d calls of %d", i, len(answered), len(calls))
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls without results")
	}
	return nil
}

// flatTalk is everything that a conversation says, in order, without its turns.
// Within one user turn results come first, so texts and results are apart.
type flatTalk struct{ System, Texts, Calls, Results []string }

func flatChat(messages []chat.Message) (f flatTalk) {
	for _, m := range messages {
		text := m.Content.String()
		switch {
		case m.Role == "tool":
			f.Results = append(f.Results, strings.TrimSpace(text))
		case blank(text):
		case m.Role == "system" || m.Role == "developer":
			f.System = append(f.System, text)
		default:
			f.Texts = append(f.Texts, m.Role+": "+text)
		}
		for _, c := range m.ToolCalls {
			f.Calls = append(f.Calls, c.Function.Name+c.Function.Arguments)
		}
	}
	return f
}

func flatMessages(t *rapid.T, r *messages.Request) (f flatTalk) {
	blocksOf := func(c messages.Content) []messages.Block {
		blocks, err := c.Blocks()
		if err != nil {
			t.Fatal(err)
		}
		return blocks
	}
	for _, b := range blocksOf(r.System) {
		f.System = append(f.System, b.Text)
	}
	for _, m := range r.Messages {
		for _, b := range blocksOf(m.Content) {
			switch b.Type {
			case "text":
				f.Texts = append(f.Texts, m.Role+": "+b.Text)
			case "tool_use":
				f.Calls = append(f.Calls, b.Name+string(b.Input))
			case "tool_result":
				f.Results = append(f.Results, strings.TrimSpace(b.Content.String()))
			}
		}
	}
	return f
}

var drawnText = rapid.SampledFrom([]string{"", " \n", "a", "héllo", "\"q\" <&>", "two\nlines", "  padded "})

// drawnChat draws messages as clients of chat send them: any roles in any
// order, but that they begin with a user and every call is answered.
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
	for _, id := range ids {
		call.ToolCalls = append(call.ToolCalls, chat.ToolCall{ID: id, Type: "function", Function: chat.CalledFunction{
			Name: "f", Arguments: rapid.SampledFrom([]string{`{}`, `{"a":1.0}`, `{"é":[null]}`}).Draw(t, "arguments"),
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

func TestEveryConversationBecomesOneThatTheVendorAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawnChat(t)
		parsed, err := chatapi.Encode(&chat.Request{Model: "m", Messages: list})
		if err == nil {
			err = parsed.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		r, dropped, err := chatToMessages(parsed.Request, 100)
		if err != nil || len(dropped) > 0 {
			t.Fatalf("%v, dropped %q", err, dropped)
		}
		encoded, err := messagesapi.Encode(r)
		if err == nil {
			err = encoded.Validate()
		}
		if err == nil {
			err = strictTurns(encoded.Request)
		}
		if err != nil {
			t.Fatalf("%v in %s", err, encoded.Source())
		}
		if diff := cmp.Diff(flatChat(list), flatMessages(t, encoded.Request)); diff != "" {
			t.Errorf("(-chat +messages)\n%s", diff)
		}
	})
}

func TestAnIdThatEveryTurnUsesTakesWorkInProportion(t *testing.T) {
	work := func(calls int) float64 { // every id that is tried is memory of its own
		return testing.AllocsPerRun(3, func() {
			b := &turnBuilder{used: make(map[string]int)}
			for range calls {
				b.uniqueID("call_that_is_always_the_same_and_is_long")
			}
		})
	}
	if once, fourfold := work(250), work(1000); fourfold > 6*once {
		t.Errorf("%.0f allocations for 250 calls, %.0f for 1000", once, fourfold)
	}
}

func TestIdsAreReplacedByTheFirstThatIsFree(t *testing.T) {
	b := &turnBuilder{used: make(map[string]int)}
	var got []string
	for _, id := range []string{"a", "a_3", "a", "a", "a_3", "a_2", "a", "a_3", "a_2_2"} {
		got = append(got, b.uniqueID(id))
	}
	want := []string{"a", "a_3", "a_2", "a_4", "a_3_2", "a_2_2", "a_5", "a_3_3", "a_2_2_2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestOneTurnMayHaveManyCalls(t *testing.T) {
	const calls = 50_000
	asks := chat.Message{Role: "assistant"}
	for i := range calls {
		asks.ToolCalls = append(asks.ToolCalls, chat.ToolCall{ID: fmt.Sprintf("call_of_many_%06d", i), Function: chat.CalledFunction{Name: "f"}})
	}
	b := &turnBuilder{b: &messagesBuilder{r: &messages.Request{}}, used: make(map[string]int)}
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

func TestALongerConversationBeginsAsTheShorterOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawnChat(t)
		whole, _, err := chatToMessages(&chat.Request{Model: "m", Messages: list}, 100)
		if err != nil {
			t.Fatal(err)
		}
		more, _, err := chatToMessages(&chat.Request{Model: "m", Messages: append(list, drawnCalls(t)...)}, 100)
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

// strictly checks a chat request as the strictest of upstreams does, and returns
// its messages.
func strictly(c *chat.Request) ([]chat.Message, error) {
	encoded, err := chatapi.Encode(c)
	if err == nil {
		err = encoded.Validate()
	}
	if err != nil {
		return nil, err
	}
	var open []string // calls without a result
	for i := range encoded.Messages {
		m := &encoded.Messages[i]
		at := slices.Index(open, m.ToolCallID)
		switch {
		case m.Role == "tool" && at < 0:
			return nil, fmt.Errorf("messages[%d] answers %q, which nobody asks", i, m.ToolCallID)
		case m.Role == "tool":
			open = slices.Delete(open, at, at+1)
		case len(open) > 0:
			return nil, fmt.Errorf("messages[%d] stands between calls and their results", i)
		}
		for _, call := range m.ToolCalls {
			if _, err := rawjson.Index([]byte(call.Function.Arguments), nil, nil); err != nil || call.ID == "" || call.Function.Name == "" {
				return nil, fmt.Errorf("messages[%d] has the call %+v", i, call)
			}
			open = append(open, call.ID)
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("the calls %v are not answered", open)
	}
	return encoded.Messages, nil
}

// talk draws a conversation and notes what must not be lost, by what it is.
type talk struct {
	*rapid.T
	texts, calls, results, links []string
	open                         []string
	count                        int
}

func (t *talk) text() messages.Block {
	s := rapid.StringN(1, -1, -1).Draw(t.T, "text")
	t.texts = append(t.texts, s)
	return messages.Block{Type: "text", Text: s}
}

func (t *talk) picture() messages.Block {
	t.count++
	link := fmt.Sprintf("https://a.example/%d.png", t.count)
	t.links = append(t.links, link)
	return messages.Block{Type: "image", Source: &messages.MediaSource{Type: "url", URL: link}}
}

func (t *talk) call() messages.Block {
	t.count++
	id, arguments := fmt.Sprintf("call-%d", t.count), fmt.Sprintf(`{"n":%d}`, t.count)
	t.open, t.calls = append(t.open, id), append(t.calls, id+" "+arguments)
	return messages.Block{Type: "tool_use", ID: id, Name: "f", Input: []byte(arguments)}
}

func (t *talk) result(id string) messages.Block {
	t.count++
	text := fmt.Sprintf("result %d", t.count)
	t.results = append(t.results, id+" "+text)
	blocks := []messages.Block{{Type: "text", Text: text}}
	if rapid.Bool().Draw(t.T, "with a picture") {
		blocks = append(blocks, t.picture())
	}
	return messages.Block{Type: "tool_result", ToolUseID: id, Content: messages.Blocks(blocks...)}
}

// message draws the next message: results of open calls come first of all, in
// any order and perhaps in several messages.
func (t *talk) message(role string) messages.Message {
	var blocks []messages.Block
	if role == "user" {
		for len(t.open) > 0 && (len(blocks) == 0 || rapid.Bool().Draw(t.T, "more")) {
			i := rapid.IntRange(0, len(t.open)-1).Draw(t.T, "which")
			blocks = append(blocks, t.result(t.open[i]))
			t.open = slices.Delete(t.open, i, i+1)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t.T, "blocks") {
		switch other := rapid.Bool().Draw(t.T, "other"); {
		case other && role == "user":
			blocks = append(blocks, t.picture())
		case other:
			blocks = append(blocks, t.call())
		default:
			blocks = append(blocks, t.text())
		}
	}
	if len(blocks) == 0 {
		blocks = append(blocks, t.text())
	}
	return messages.Message{Role: role, Content: messages.Blocks(blocks...)}
}

func TestNoConversationLosesAnythingOnItsWayToChat(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := &talk{T: rt}
		r := &messages.Request{Model: "m", MaxTokens: 9, Messages: []messages.Message{k.message("user")}}
		for range rapid.IntRange(0, 6).Draw(rt, "messages") {
			role := "user"
			if len(k.open) == 0 || r.Messages[len(r.Messages)-1].Role == "assistant" && rapid.Bool().Draw(rt, "goes on") {
				role = rapid.SampledFrom([]string{"user", "assistant"}).Draw(rt, "role")
			}
			r.Messages = append(r.Messages, k.message(role))
		}
		for len(k.open) > 0 {
			r.Messages = append(r.Messages, k.message("user"))
		}
		parsed, err := messagesapi.Encode(r)
		if err == nil {
			err = parsed.Validate()
		}
		if err != nil {
			rt.Fatal(err)
		}
		c, dropped, err := messagesToChat(parsed.Request)
		if err != nil || len(dropped) > 0 {
			rt.Fatalf("dropped %v: %v", dropped, err)
		}
		messages, err := strictly(c)
		if err != nil {
			rt.Fatalf("%v: %s", err, parsed.Source())
		}
		k.found(messages)
	})
}

// found checks that everything is where it belongs.
func (t *talk) found(messages []chat.Message) {
	var text strings.Builder
	var calls, results, links []string
	for i := range messages {
		m := &messages[i]
		for _, call := range m.ToolCalls {
			calls = append(calls, call.ID+" "+call.Function.Arguments)
		}
		if m.Role == "tool" {
			results = append(results, m.ToolCallID+" "+m.Content.String())
			continue
		}
		parts, err := m.Content.Parts()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if p.ImageURL != nil {
				links = append(links, p.ImageURL.URL)
			}
			if !strings.HasPrefix(p.Text, "Attachments of the result of tool call ") {
				text.WriteString(p.Text)
			}
		}
	}
	if want := strings.Join(t.texts, ""); text.String() != want {
		t.Fatalf("text %q, want %q", text.String(), want)
	}
	for name, pair := range map[string][2][]string{"calls": {t.calls, calls}, "results": {t.results, results}, "links": {t.links, links}} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Fatalf("%s: %q, want %q", name, pair[1], pair[0])
		}
	}
}
