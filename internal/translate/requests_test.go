package translate

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
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
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/responses"
)

// requestTranslations are the translations of requests. testdata has two files of each: the
// pairs (name.txt), and the table that the docs link to (name_fates.golden). A pair is its
// name ("case"), the request ("from"), and either the result ("to") or the refusal ("400").
// With the result come the tools with other names ("name") and the fields that are dropped
// ("drop").
var requestTranslations = []struct {
	name      string
	translate func(body []byte) (out []byte, names *toolNames, dropped []string, err error)
	intro     string
	fields    []fate
	sections  []fateSection
	types     map[string]any // whose fields have a row each, by their paths
	unnamed   []string       // rows of what is found among other members
}{
	{
		"chat_to_messages",
		translated(chatop.Parse, func(c *chatop.Request) (*messagesop.Request, []string, error) {
			return chatToMessages(c.Request, 4096, "")
		}),
		"What becomes of a chat completion request at an upstream that speaks only Messages.\nA field that is not listed is dropped and reported.\n",
		fates(chatToMessagesFields), []fateSection{
			section("Stop reasons, as finish_reason", append(slices.Sorted(maps.Keys(finishReasons)), "another"), func(r string) []string { return []string{r, finishReason([]byte(quoted(r)))} }),
		}, chatTypes, []string{
			"parallel_tool_calls", "service_tier", "thinking", "top_k", "seed", "logprobs", "top_logprobs", "logit_bias", "metadata", "store", "modalities",
			"messages.refusal", "messages.reasoning_signature", "messages.content.refusal", "messages.content.image_url.detail", "messages.content.cache_control", "tools.function", "messages.tool_calls.custom", "tools.custom", "tools.custom.format", "tools.cache_control",
		},
	},
	{
		"messages_to_chat",
		translated(messagesop.Parse, func(r *messagesop.Request) (*chatop.Request, []string, error) { return messagesToChat(r.Request) }),
		"What becomes of a Messages request at an upstream that speaks only chat completions.\nA field that is not listed is dropped and reported; a block or source that is not listed is refused.\n",
		fates(messagesToChatFields), []fateSection{
			section("Blocks", messageBlocks, func(r blockRow) []string { return []string{r.place, r.block, r.action, r.note} }),
			section("Sources", messageSources, func(r sourceRow) []string { return []string{r.block, r.source, r.action, r.note} }),
		},
		map[string]any{
			"": messages.Request{}, "messages.": messages.Message{}, "messages.content.": messages.Block{}, "messages.content.source.": messages.MediaSource{},
			"tools.": messages.Tool{}, "tool_choice.": messages.ToolChoice{}, "thinking.": messages.Thinking{}, "output_config.": messages.OutputConfig{},
			"output_config.format.": messages.OutputFormat{}, "metadata.": messages.Metadata{},
		}, []string{"messages.content.context", "tools.strict"},
	},
	{
		"chat_to_responses",
		translated(chatop.Parse, func(c *chatop.Request) (*responsesop.Request, []string, error) {
			return chatToResponses(c.Request, false)
		}),
		"What becomes of a chat completion request at an upstream that speaks only Responses.\nA field that is not listed is dropped and reported.\n",
		fates(chatToResponsesFields), nil, chatTypes, []string{
			"parallel_tool_calls", "verbosity", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "thinking", "seed", "logprobs", "top_logprobs", "logit_bias", "metadata", "store", "modalities",
			"messages.refusal", "messages.reasoning_signature", "messages.content.refusal", "messages.content.image_url.detail", "messages.content.cache_control", "tools.function", "messages.tool_calls.custom", "tools.custom", "tools.custom.format",
		},
	},
	{
		"responses_to_chat",
		fromResponse,
		"What becomes of a request for a response at an upstream that speaks only chat completions.\nA field that is not listed is dropped and reported, as is a tool; an item or part that is not listed is refused.\n",
		fates(responsesToChatFields), []fateSection{
			section("Items", inputItems, func(r itemRow) []string { return []string{r.item, r.action, r.note} }),
			section("Parts", itemParts, func(r partRow) []string { return []string{r.place, r.part, r.action, r.note} }),
			section("Tools", responsesTools, func(r toolRow) []string { return []string{r.tool, r.action, r.note} }),
		},
		map[string]any{
			"": responses.Request{}, "reasoning.": responses.Reasoning{}, "text.": responses.TextConfig{}, "text.format.": responses.TextFormat{},
			"input.": responses.Item{}, "input.content.": responses.Part{}, "tools.": responses.Tool{},
		}, []string{
			"stream_options", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "prompt_cache_retention", "safety_identifier", "client_metadata",
			"max_tool_calls", "background", "conversation", "prompt", "context_management", "moderation", "reasoning.generate_summary", "reasoning.context",
			"input.phase", "input.action", "input.operation", "input.max_output_length", "input.author", "input.recipient",
		},
	},
}

// translated is a translation of what a package parses, as the body of what it becomes.
func translated[P any, R interface{ Source() []byte }](parse func([]byte) (P, error), translate func(P) (R, []string, error)) func(body []byte) ([]byte, *toolNames, []string, error) {
	return func(body []byte) ([]byte, *toolNames, []string, error) {
		p, err := parse(body)
		if err != nil {
			return nil, nil, nil, err
		}
		r, dropped, err := translate(p)
		if err != nil {
			return nil, nil, nil, err
		}
		return r.Source(), nil, dropped, nil
	}
}

var chatTypes = map[string]any{
	"": chat.Request{}, "messages.": chat.Message{}, "messages.tool_calls.": chat.ToolCall{}, "messages.tool_calls.function.": chat.CalledFunction{},
	"messages.content.": chat.Part{}, "messages.content.image_url.": chat.Link{}, "tools.function.": chat.Function{},
}

// fate is a row of a table of fields.
type fate struct {
	name, action, note string
	carries            bool
}

func fates[B any](fields []field[B]) (all []fate) {
	for _, f := range fields {
		how := f.note
		if f.noop != "" {
			how = strings.TrimPrefix(how+"; silently if it is "+f.noop, "; ")
		}
		all = append(all, fate{f.name, f.action, how, f.carry != nil})
	}
	return all
}

// fateSection is a table of what fields hold.
type fateSection struct {
	title string
	lines [][]string
}

func section[R any](title string, rows []R, cells func(R) []string) fateSection {
	s := fateSection{title: title}
	for _, r := range rows {
		s.lines = append(s.lines, cells(r))
	}
	return s
}

// paired are the lines of a file of pairs that begin with key.
func paired(t testing.TB, name, key string) (values []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
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
	for _, way := range requestTranslations {
		t.Run(way.name, func(t *testing.T) {
			var got bytes.Buffer
			names := paired(t, way.name, "case")
			for i, from := range paired(t, way.name, "from") {
				fmt.Fprintf(&got, "case %s\nfrom %s\n", names[i], from)
				out, tools, dropped, err := way.translate([]byte(from))
				var f *fault.Error
				switch {
				case errors.As(err, &f) && f.HTTPStatus() == 400 && err == f: // those of the endpoint are wrapped
					fmt.Fprintf(&got, "400  %s, %s: %s\n\n", f.Code, f.Param, f.Message)
					continue
				case err != nil:
					t.Errorf("%s: %s: %v", names[i], from, err)
					continue
				}
				fmt.Fprintf(&got, "to   %s\n%s", out, shownNames(tools))
				if len(dropped) > 0 {
					fmt.Fprintf(&got, "drop %s\n", strings.Join(dropped, " "))
				}
				got.WriteByte('\n')
			}
			capabilitytest.Golden(t, *update, way.name+".txt", got.Bytes())
		})
	}
}

func TestTheTablesOfRequestsReadLikeThis(t *testing.T) {
	for _, way := range requestTranslations {
		t.Run(way.name, func(t *testing.T) {
			var rows [][]string
			for _, f := range way.fields {
				rows = append(rows, []string{f.name, f.action, f.note})
			}
			b := bytes.NewBufferString(way.intro)
			for _, s := range append([]fateSection{{"Fields", rows}}, way.sections...) {
				fmt.Fprintf(b, "\n%s\n", s.title)
				w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
				for _, cells := range s.lines {
					_, _ = fmt.Fprintln(w, strings.TrimRight("  "+strings.Join(cells, "\t"), "\t"))
				}
				_ = w.Flush()
			}
			capabilitytest.Golden(t, *update, way.name+"_fates.golden", b.Bytes())
		})
	}
}

// TestEveryFieldOfTheTypesHasARow fails when a type gains a field, a table keeps a row of a
// field that is gone, and when no pair has the field.
func TestEveryFieldOfTheTypesHasARow(t *testing.T) {
	for _, way := range requestTranslations {
		t.Run(way.name, func(t *testing.T) {
			cases, requests := paired(t, way.name, "case"), strings.Join(paired(t, way.name, "from"), "\n")
			namesFields := slices.Contains(cases, "model") // each case is named for the field that it has
			rows := make(map[string]bool)
			for _, f := range way.fields {
				if rows[f.name] {
					t.Errorf("%s has two rows", f.name)
				}
				rows[f.name] = true
				if f.note == "" && f.action == carried || f.carries && (f.action == leftOut || strings.Contains(f.name, ".")) {
					t.Errorf("%s: %q, %q", f.name, f.action, f.note)
				}
				member := f.name[strings.LastIndexByte(f.name, '.')+1:]
				if !slices.Contains(cases, f.name) && (namesFields || !strings.Contains(requests, `"`+member+`":`)) {
					t.Errorf("no case has the field %s", f.name)
				}
			}
			for path, v := range way.types {
				for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
					name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
					if name == "" || name == "-" { // Extra and what has no place on the wire
						continue
					}
					if !rows[path+name] {
						t.Errorf("%s%s has no row", path, name)
					}
					delete(rows, path+name)
				}
			}
			for name := range rows {
				if !slices.Contains(way.unnamed, name) {
					t.Errorf("the row %s is of no field", name)
				}
			}
		})
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
	all := strings.Join(paired(t, "responses_to_chat", "from"), "\n")
	for _, r := range inputItems {
		ways := 0
		for _, has := range []bool{r.carry != nil, r.call != nil, r.output != nil, r.item == "additional_tools"} {
			if has {
				ways++
			}
		}
		if (ways == 1) != (r.action == carried) || ways > 1 || !strings.Contains(all, `"type":"`+r.item+`"`) {
			t.Errorf("the item %s is %s, and has %d ways to go, or no case", r.item, r.action, ways)
		}
	}
	for _, r := range itemParts {
		if !strings.Contains(all, `"type":"`+r.part+`"`) {
			t.Errorf("no case has the part %s", r.part)
		}
	}
}

func TestARequestMadeInGoIsTranslatedLikeOneFromTheWire(t *testing.T) {
	half, three, no := 0.5, int64(3), false
	r, dropped, err := chatToMessages(&chat.Request{
		Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}},
		PresencePenalty: &half, Extra: jsontext.Value(`{"seed":1,"top_k":3}`),
	}, 4096, "")
	if err != nil || r.TopK == nil || *r.TopK != 3 || !slices.Equal(dropped, []string{"presence_penalty", "seed"}) {
		t.Errorf("%+v, dropped %q, %v", r, dropped, err)
	}
	c, dropped, err := messagesToChat(&messages.Request{
		Model: "m", MaxTokens: 9, TopK: &three, Extra: jsontext.Value(`{"speed":"fast"}`),
		Messages: []messages.Message{{Role: "user", Content: messages.Text("Hi"), Extra: jsontext.Value(`{"name":"n"}`)}},
	})
	if err != nil || c.MaxTokens != 9 || !slices.Equal(dropped, []string{"top_k", "speed", "messages.name"}) {
		t.Errorf("%+v, dropped %q, %v", c, dropped, err)
	}
	c, _, dropped, err = responsesToChat(&responses.Request{
		Model: "m", Input: responses.Items(responses.Item{Role: "user", Content: responses.ContentText("Hi"), Extra: jsontext.Value(`{"x":1}`)}),
		Tools: jsontext.Value(`[{"type":"function","name":"f"}]`), ParallelToolCalls: &no, MaxOutputTokens: 9, Extra: jsontext.Value(`{"seed":1,"top_k":3}`),
	}, nil)
	const want = `{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":9,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"seed":1,"parallel_tool_calls":false}`
	if err != nil || string(c.Source()) != want || !slices.Equal(dropped, []string{"top_k", "input.x"}) {
		t.Errorf("%s, dropped %q, %v", c.Source(), dropped, err)
	}
}

func TestTheMediaTypesOfPicturesAreThoseOfTheRules(t *testing.T) {
	for _, kind := range append([]string{"image/tiff"}, imageTypes...) {
		r := &messages.Request{Model: "m", MaxTokens: 9, Messages: []messages.Message{{Role: "user", Content: messages.Blocks(
			messages.Block{Type: "image", Source: &messages.MediaSource{Type: "base64", MediaType: kind, Data: "aaaa"}},
		)}}}
		if _, err := checked(r, messagesop.Encode); (err == nil) != slices.Contains(imageTypes, kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
