package mcp_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/server/mcp"
)

// TestThePageHasEveryToolAndArgument compares the table of docs/mcp.md.
func TestThePageHasEveryToolAndArgument(t *testing.T) {
	page, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newFixture(t, fixtureOptions{})
	tools, err := mcp.Described(s.g, &auth.Principal{Account: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		_, row, ok := strings.Cut(string(page), "\n| `"+tool.Name+"` | ")
		row, _, _ = strings.Cut(row, "\n")
		if !ok {
			t.Errorf("the page has no row of %s", tool.Name)
			continue
		}
		in, _ := tool.InputSchema.(*jsonschema.Schema)
		for name := range in.Properties {
			if name != "task_label" && !strings.Contains(row, "`"+name+"`") {
				t.Errorf("the row of %s has no %s", tool.Name, name)
			}
		}
		for _, name := range in.Required {
			if !strings.Contains(row, "**`"+name+"`**") {
				t.Errorf("the row of %s does not say that %s is required", tool.Name, name)
			}
		}
		if paid := in.Properties["task_label"] != nil; paid == tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is both paid and free", tool.Name)
		}
	}
}
