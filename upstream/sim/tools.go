package sim

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// called are the functions that the answer calls. Where the model has the
// choice, these are the functions that the user's words name, one or, if
// parallel calls are allowed, all of them; a tool's result is answered in text.
func called(r *chat.Request) ([]chat.Function, error) {
	functions, err := r.Functions()
	if err != nil {
		return nil, wrong(400, fault.InvalidRequest, "tools", "The tools cannot be read: "+err.Error()+".")
	}
	choice, name := toolChoice(r)
	if len(functions) == 0 && (choice == "required" || choice == "function") {
		return nil, wrong(400, fault.InvalidRequest, "tool_choice", "tool_choice asks for a call, but tools has no function.")
	}
	switch choice {
	case "none":
		return nil, nil
	case "function":
		return byName(functions, name)
	}
	found := mentioned(r, functions)
	if choice == "required" && len(found) == 0 {
		found = functions[:1]
	}
	if len(found) > 1 && string(r.Field("parallel_tool_calls")) == "false" {
		found = found[:1]
	}
	return found, nil
}

// toolChoice is "auto", "none", "required", or "function" with a name.
func toolChoice(r *chat.Request) (choice, name string) {
	if word, ok := rawjson.String(r.ToolChoice); ok {
		return word, ""
	}
	o, err := rawjson.Index(r.ToolChoice, nil, nil)
	if err != nil {
		return "auto", ""
	}
	f, err := rawjson.Index(o.Raw("function"), nil, nil)
	if err != nil {
		return "auto", ""
	}
	name, _ = rawjson.String(f.Raw("name"))
	return "function", name
}

func byName(functions []chat.Function, name string) ([]chat.Function, error) {
	for i := range functions {
		if functions[i].Name == name {
			return functions[i : i+1], nil
		}
	}
	return nil, wrong(400, fault.InvalidRequest, "tool_choice", fmt.Sprintf("tool_choice names the function %q, which tools does not have.", name))
}

// mentioned are the functions whose name, or a word of it that no other
// function has, is a word of the user's last message.
func mentioned(r *chat.Request, functions []chat.Function) (found []chat.Function) {
	m := last(r)
	if m.Role != "user" {
		return nil
	}
	said := make(map[string]bool)
	for _, w := range words(m.Content.String()) {
		said[w] = true
	}
	owners := make(map[string]int)
	for _, f := range functions {
		for _, w := range words(f.Name) {
			owners[w]++
		}
	}
	for _, f := range functions {
		for _, w := range append(words(f.Name), strings.ToLower(f.Name)) {
			if said[w] && owners[w] <= 1 {
				found = append(found, f)
				break
			}
		}
	}
	return found
}

// words are the words of a text in lower case, without those of one or two
// letters. A name with underscores counts as a whole and by its parts.
func words(text string) (all []string) {
	const shortest = 3
	add := func(parts []string) {
		for _, p := range parts {
			if len(p) >= shortest {
				all = append(all, p)
			}
		}
	}
	whole := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for _, w := range whole {
		parts := strings.FieldsFunc(w, func(r rune) bool { return r == '_' || r == '-' })
		if len(parts) > 1 {
			add([]string{w})
		}
		add(parts)
	}
	return all
}

// call appends calls of the functions with the least arguments that they allow.
func (c *candidate) call(functions []chat.Function, seed string) {
	for i, f := range functions {
		n := int64(i)
		c.pieces = append(c.pieces, piece{kind: callBegin, call: n, text: f.Name, id: fmt.Sprintf("call_%s%d", seed, i)})
		for _, text := range pieces(arguments(f)) {
			c.pieces = append(c.pieces, piece{kind: callArguments, call: n, text: text})
		}
	}
}

func arguments(f chat.Function) string {
	if len(f.Parameters) == 0 {
		return "{}"
	}
	return string(instance(f.Parameters))
}
