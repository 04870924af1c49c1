package translate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/messages"
)

// toMessagesWire is what an upstream of messages gets of a chat request's body.
func toMessagesWire(body []byte) (out []byte, dropped []string, err error) {
	c, err := chatapi.Parse(body)
	if err != nil {
		return nil, nil, err
	}
	r, dropped, err := chatToMessages(c.Request, 4096)
	if err != nil {
		return nil, nil, err
	}
	return r.Source(), dropped, nil
}

// toResponsesWire is what an upstream of Responses gets of a chat request's body.
func toResponsesWire(body []byte) (out []byte, dropped []string, err error) {
	c, err := chatapi.Parse(body)
	if err != nil {
		return nil, nil, err
	}
	r, dropped, err := chatToResponses(c.Request, false)
	if err != nil {
		return nil, nil, err
	}
	return r.Source(), dropped, nil
}

// toChatWire is what a chat upstream gets of the body of a request for a message.
func toChatWire(body []byte) (out []byte, dropped []string, err error) {
	r, err := messagesapi.Parse(body)
	if err != nil {
		return nil, nil, err
	}
	c, dropped, err := messagesToChat(r.Request)
	if err != nil {
		return nil, nil, err
	}
	return c.Source(), dropped, nil
}

// pairedRequests are the files of pairs and the translation that they show. A case is
// its name, the request ("from"), and either what it becomes ("to") with the fields
// that are dropped ("drop"), or the text of the refusal ("400").
var pairedRequests = []struct {
	file      string
	translate func(body []byte) (out []byte, dropped []string, err error)
}{
	{"chat_to_messages.txt", toMessagesWire},
	{"messages_to_chat.txt", toChatWire},
	{"chat_to_responses.txt", toResponsesWire},
}

// paired are the lines of a file of pairs that begin with key.
func paired(t testing.TB, file, key string) (values []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			values = append(values, strings.TrimSuffix(value, "\n"))
		}
	}
	return values
}

func TestEveryRequestIsTranslatedAsItsPairSays(t *testing.T) {
	for _, way := range pairedRequests {
		t.Run(way.file, func(t *testing.T) {
			var got bytes.Buffer
			names := paired(t, way.file, "case")
			for i, from := range paired(t, way.file, "from") {
				fmt.Fprintf(&got, "case %s\nfrom %s\n", names[i], from)
				out, dropped, err := way.translate([]byte(from))
				var f *fault.Error
				switch {
				case errors.As(err, &f) && f.Code == fault.InvalidRequest && strings.Contains(f.Message, `"`+f.Param+`"`):
					fmt.Fprintf(&got, "400  %s\n\n", f.Message)
					continue
				case err != nil:
					t.Errorf("%s: %v", from, err)
				}
				fmt.Fprintf(&got, "to   %s\n", out)
				if len(dropped) > 0 {
					fmt.Fprintf(&got, "drop %s\n", strings.Join(dropped, " "))
				}
				got.WriteByte('\n')
			}
			capabilitytest.Golden(t, *update, way.file, got.Bytes())
		})
	}
}

func TestARequestMadeInGoIsTranslatedLikeOneFromTheWire(t *testing.T) {
	half := 0.5
	r, dropped, err := chatToMessages(&chat.Request{
		Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}},
		PresencePenalty: &half, Extra: jsontext.Value(`{"seed":1,"top_k":3}`),
	}, 4096)
	if err != nil || r.TopK == nil || *r.TopK != 3 || !slices.Equal(dropped, []string{"presence_penalty", "seed"}) {
		t.Errorf("%+v, dropped %q, %v", r, dropped, err)
	}
	three := int64(3)
	c, dropped, err := messagesToChat(&messages.Request{
		Model: "m", MaxTokens: 9, TopK: &three, Extra: jsontext.Value(`{"speed":"fast"}`),
		Messages: []messages.Message{{Role: "user", Content: messages.Text("Hi"), Extra: jsontext.Value(`{"name":"n"}`)}},
	})
	if err != nil || c.MaxTokens != 9 || !slices.Equal(dropped, []string{"top_k", "speed", "messages.name"}) {
		t.Errorf("%+v, dropped %q, %v", c, dropped, err)
	}
}

func TestBothTranslationsKeepTheSameNamesOutOfTheHeader(t *testing.T) {
	longest := strings.Repeat("n", 80)
	for name, want := range map[string]string{"short": "short others", longest: longest + " others", longest + "n": "others", "a,b": "others", "a b": "others", "others": "others"} {
		for _, way := range pairedRequests {
			_, dropped, err := way.translate(fmt.Appendf(nil, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],%q:1,"%s,":1}`, name, name))
			if got := strings.Join(dropped, " "); err != nil || got != want {
				t.Errorf("%s, %q: dropped %q, want %q, %v", way.file, name, got, want, err)
			}
		}
	}
}

func TestTheMediaTypesOfPicturesAreThoseOfTheRules(t *testing.T) {
	for _, kind := range append([]string{"image/tiff"}, imageTypes...) {
		r := &messages.Request{Model: "m", MaxTokens: 9, Messages: []messages.Message{{Role: "user", Content: messages.Blocks(
			messages.Block{Type: "image", Source: &messages.MediaSource{Type: "base64", MediaType: kind, Data: "aaaa"}},
		)}}}
		if _, err := checked(r, messagesapi.Encode); (err == nil) != slices.Contains(imageTypes, kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// rowNames are the names of a table's rows, of which each is of one form.
func rowNames[B any](t *testing.T, rows []field[B]) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, f := range rows {
		if names[f.name] {
			t.Errorf("%s has two rows", f.name)
		}
		names[f.name] = true
		if f.note == "" && f.action == carried || f.carry != nil && (f.action == leftOut || strings.Contains(f.name, ".")) {
			t.Errorf("%s: %q, %q", f.name, f.action, f.note)
		}
	}
	return names
}

// TestEveryFieldOfTheTypesHasARow fails when a type gains a field, or a table keeps a row
// of a field that is gone.
func TestEveryFieldOfTheTypesHasARow(t *testing.T) {
	const block = "messages.content."
	for _, table := range []struct {
		rows    map[string]bool
		types   map[string]any
		unnamed []string // found among other members
	}{
		{rowNames(t, chatToMessagesFields), map[string]any{
			"": chat.Request{}, "messages.": chat.Message{}, "messages.tool_calls.": chat.ToolCall{},
			"messages.tool_calls.function.": chat.CalledFunction{}, block: chat.Part{}, block + "image_url.": chat.Link{}, "tools.function.": chat.Function{},
		}, []string{
			"parallel_tool_calls", "service_tier", "thinking", "top_k", "seed", "logprobs", "top_logprobs", "logit_bias", "metadata", "store", "modalities",
			"messages.reasoning_signature", block + "image_url.detail", block + "cache_control", "tools.function", "tools.cache_control",
		}},
		{rowNames(t, chatToResponsesFields), map[string]any{
			"": chat.Request{}, "messages.": chat.Message{}, "messages.tool_calls.": chat.ToolCall{},
			"messages.tool_calls.function.": chat.CalledFunction{}, block: chat.Part{}, block + "image_url.": chat.Link{}, "tools.function.": chat.Function{},
		}, []string{
			"parallel_tool_calls", "verbosity", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "thinking", "seed", "logprobs", "top_logprobs", "logit_bias", "metadata", "store", "modalities",
			"messages.refusal", "messages.reasoning_signature", block + "refusal", block + "image_url.detail", block + "cache_control", "tools.function",
		}},
		{rowNames(t, messagesToChatFields), map[string]any{
			"": messages.Request{}, "messages.": messages.Message{}, block: messages.Block{}, block + "source.": messages.MediaSource{}, "tools.": messages.Tool{}, "tool_choice.": messages.ToolChoice{},
			"thinking.": messages.Thinking{}, "output_config.": messages.OutputConfig{}, "output_config.format.": messages.OutputFormat{}, "metadata.": messages.Metadata{},
		}, []string{block + "context", "tools.strict"}},
	} {
		for path, v := range table.types {
			for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" || name == "-" { // Extra and what has no place on the wire
					continue
				}
				if !table.rows[path+name] {
					t.Errorf("%s%s has no row", path, name)
				}
				delete(table.rows, path+name)
			}
		}
		for name := range table.rows {
			if !slices.Contains(table.unnamed, name) {
				t.Errorf("the row %s is of no field", name)
			}
		}
	}
	everyRowIsTested(t, "chat_to_messages.txt", chatToMessagesFields)
	everyRowIsTested(t, "chat_to_responses.txt", chatToResponsesFields)
}

func everyRowIsTested[B any](t *testing.T, file string, rows []field[B]) {
	t.Helper()
	tested := paired(t, file, "case")
	for _, f := range rows {
		if !slices.Contains(tested, f.name) {
			t.Errorf("%s: no case for %s", file, f.name)
		}
	}
}

func TestWhatATableCarriesHasAWayToGo(t *testing.T) {
	for _, r := range messageBlocks {
		if (r.carry != nil) != (r.action == carried) || r.action == refused {
			t.Errorf("%s in a %s is %s", r.block, r.place, r.action)
		}
	}
	for _, r := range messageSources {
		if (r.parts != nil) != (r.action == carried) || r.action == leftOut {
			t.Errorf("%s %s is %s", r.block, r.source, r.action)
		}
	}
}

// printed are the lines of cells, in columns.
func printed(b *bytes.Buffer, lines [][]string) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, cells := range lines {
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush()
}

func TestTheTableOfChatFieldsReadsLikeThis(t *testing.T) {
	var b bytes.Buffer
	printFields(&b, "Messages", chatToMessagesFields)
	b.WriteString("\nfinish_reason\n\n")
	var lines [][]string
	for reason, word := range finishReasons {
		lines = append(lines, []string{reason, word})
	}
	slices.SortFunc(lines, slices.Compare)
	printed(&b, append(lines, []string{"another", finishReason(nil)}))
	goldenFates(t, "chat_to_messages_fates.golden", b.String())
}

func TestTheTableOfChatFieldsAtAnUpstreamOfResponsesReadsLikeThis(t *testing.T) {
	var b bytes.Buffer
	printFields(&b, "Responses", chatToResponsesFields)
	goldenFates(t, "chat_to_responses_fates.golden", b.String())
}

// printFields prints a table of the fields of a chat completion request.
func printFields[B any](b *bytes.Buffer, wire string, rows []field[B]) {
	fmt.Fprintf(b, "What becomes of the fields of a chat completion request at an upstream that speaks only %s.\n", wire)
	b.WriteString("A field that is not listed is dropped: left out, and reported in X-Gateway-Dropped.\n\n")
	var lines [][]string
	for _, f := range rows {
		how := f.note
		if f.noop != "" {
			how = strings.TrimPrefix(how+"; silently if it is "+f.noop, "; ")
		}
		lines = append(lines, []string{f.name, f.action, how})
	}
	printed(b, lines)
}

// goldenFates compares a printed table with a file, without the blanks that end lines.
func goldenFates(t *testing.T, file, table string) {
	t.Helper()
	text := strings.Split(table, "\n")
	for i := range text {
		text[i] = strings.TrimRight(text[i], " ")
	}
	capabilitytest.Golden(t, *update, file, []byte(strings.Join(text, "\n")))
}

func TestTheTableOfMessagesFieldsReadsLikeThis(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("What becomes of a Messages request at an upstream that speaks chat completions.\nA field that is not listed is dropped and reported; a block or source that is not listed is refused.\n\nFields\n")
	var fields, blocks, results, sources [][]string
	for _, f := range messagesToChatFields {
		fields = append(fields, []string{"  " + f.name, f.action, f.note})
	}
	for _, r := range messageBlocks {
		if role, ok := strings.CutSuffix(r.place, " turn"); ok {
			blocks = append(blocks, []string{"  " + role, r.block, r.action, r.note})
		} else {
			results = append(results, []string{"  user", r.block, r.action, r.note})
		}
	}
	for _, r := range messageSources {
		sources = append(sources, []string{"  " + r.block, r.source, r.action, r.note})
	}
	printed(&b, fields)
	b.WriteString("\nBlocks\n")
	printed(&b, blocks)
	b.WriteString("\nBlocks of a tool result\n")
	printed(&b, results)
	b.WriteString("\nSources\n")
	printed(&b, sources)
	capabilitytest.Golden(t, *update, "messages_to_chat_fates.golden", b.Bytes())
}
