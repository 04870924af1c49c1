package messages

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/tollhouse-ai/gateway/internal/roomtest"
)

// TestEveryFieldHasItsFate fails when a type gains a field, or a table keeps a
// row of a field that is gone.
func TestEveryFieldHasItsFate(t *testing.T) {
	const message, block = "messages.", "messages.content."
	unnamed := map[string]bool{block + "context": true, "tools.strict": true} // found in Extra
	rows := map[string]bool{}
	for _, f := range toChatFields {
		if rows[f.field] {
			t.Errorf("%s has two rows", f.field)
		}
		rows[f.field] = true
		if f.note == "" || f.action != carried && f.action != leftOut && f.action != refused {
			t.Errorf("%s: %q, %q", f.field, f.action, f.note)
		}
	}
	seen := map[string]bool{}
	for path, v := range map[string]any{
		"": Request{}, message: Message{}, block: Block{}, block + "source.": MediaSource{}, "tools.": Tool{}, "tool_choice.": ToolChoice{},
		"thinking.": Thinking{}, "output_config.": OutputConfig{}, "output_config.format.": OutputFormat{}, "metadata.": Metadata{},
	} {
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if name == "" { // Extra and what has no place on the wire
				continue
			}
			seen[path+name] = true
			if !rows[path+name] {
				t.Errorf("%s%s has no row", path, name)
			}
		}
	}
	for field := range rows {
		if !seen[field] && !unnamed[field] {
			t.Errorf("the row %s is of no field", field)
		}
	}
}

func TestTheFatesReadAsATable(t *testing.T) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	b.WriteString("What becomes of a Messages request at an upstream that speaks chat completions.\nA field that is not listed is dropped and reported; a block or source that is not listed is refused.\n\nFields\n")
	for _, f := range toChatFields {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.field, f.action, f.note)
	}
	_ = w.Flush()
	for _, table := range []struct {
		title string
		rows  []blockMapping
	}{{"Blocks", toChatBlocks}, {"Blocks of a tool result", toChatResultBlocks}} {
		fmt.Fprintf(&b, "\n%s\n", table.title)
		for _, f := range table.rows {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", f.role, f.block, f.action, f.note)
		}
		_ = w.Flush()
	}
	b.WriteString("\nSources\n")
	for _, f := range toChatSources {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", f.block, f.source, f.action, f.note)
	}
	_ = w.Flush()
	roomtest.Golden(t, *update, "tochat_fates.golden", b.Bytes())
}

func TestWhatATableCarriesHasAWayToGo(t *testing.T) {
	for _, f := range append(append([]blockMapping{}, toChatBlocks...), toChatResultBlocks...) {
		if (f.carry != nil) != (f.action == carried) || f.action == refused {
			t.Errorf("%s %s is %s", f.role, f.block, f.action)
		}
	}
	for _, f := range toChatSources {
		if (f.parts != nil) != (f.action == carried) || f.action == leftOut {
			t.Errorf("%s %s is %s", f.block, f.source, f.action)
		}
	}
}
