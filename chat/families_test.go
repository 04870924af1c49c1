package chat

import (
	"bytes"
	"flag"
	"fmt"
	"testing"
	"text/tabwriter"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/roomtest"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestTheTablesReadLikeTheAPI prints what the code checks, to be read by people.
func TestTheTablesReadLikeTheAPI(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("Fields of every chat model (api.md, Chat completion request).\nA field that is not listed passes unseen.\n\n")
	table(&b, fields)
	b.WriteString("\nmessages is a non-empty array of message objects.\n\n")
	fmt.Fprintf(&b, "Roles:          %s\n", rule.Words(roles))
	fmt.Fprintf(&b, "Content blocks: %s\n", rule.Words(blockTypes[:]))
	for _, f := range Families() {
		fmt.Fprintf(&b, "\nFamily %s\n\n", f.Name)
		w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		for _, m := range f.Models {
			fmt.Fprintf(w, "  model %s\tmost output tokens %d\n", m.ID, m.MaxOutput)
		}
		_ = w.Flush()
		b.WriteString("\n")
		table(&b, f.fields)
	}
	roomtest.Golden(t, *update, "families.golden", b.Bytes())
}

func table(b *bytes.Buffer, rows rule.Table) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, f := range rows {
		fmt.Fprintf(w, "  %s\t%s\n", f.Name, f.Check.Text)
	}
	_ = w.Flush()
}

func marshal(v any) ([]byte, error) { return json.Marshal(v) }
