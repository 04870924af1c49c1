package translate

import (
	"fmt"
	"strings"
	"testing"
)

func TestToolNames(t *testing.T) {
	long := strings.Repeat("n", 60)
	tests := []struct {
		name  string
		tools []toolName // in this order
		want  []string
	}{
		{"a function keeps its name", []toolName{{"", "shell", functionTool}}, []string{"shell"}},
		{"even one that vendors refuse", []toolName{{"", "my tool", functionTool}}, []string{"my tool"}},
		{"a namespace is put before it", []toolName{{"mcp__probe", "echo_word", functionTool}}, []string{"mcp__probe__echo_word"}},
		{"64 bytes", []toolName{{"ab", long, functionTool}}, []string{"ab__" + long}},
		{"65 bytes", []toolName{{"abc", long, functionTool}}, []string{"abc__" + long[:47] + "_daeca17dad"}},
		{"bytes that vendors refuse", []toolName{{"a.b", "c d", functionTool}, {"a_b", "c_d", functionTool}},
			[]string{"a_b__c_d_822d6a8295", "a_b__c_d"}},
		{"a function has the name", []toolName{{"", "a__b", functionTool}, {"a", "b", functionTool}},
			[]string{"a__b", "a__b_59b271ae1b"}},
		{"two namespaces make one name", []toolName{{"a", "b__c", functionTool}, {"a__b", "c", functionTool}},
			[]string{"a__b__c", "a__b__c_a92700ced2"}},
		{"three kinds of one name", []toolName{{"", "x", functionTool}, {"", "x", customTool}, {"", "x", searchTool}},
			[]string{"x", "x_3c7e9bc930", "x_84f7397d1b"}},
		{"a function has the name with the hash", []toolName{{"", "x", functionTool}, {"", "x_3c7e9bc930", functionTool}, {"", "x", customTool}},
			[]string{"x", "x_3c7e9bc930", "x_84f7397d1b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var names toolNames
			for i, tool := range test.tools {
				if got, added := names.add(tool); got != test.want[i] || !added {
					t.Errorf("%v: %q, %v; want %q", tool, got, added, test.want[i])
				}
			}
			for i, tool := range test.tools {
				if got, added := names.add(tool); got != test.want[i] || added {
					t.Errorf("%v again: %q, %v", tool, got, added)
				}
				if got := names.called(tool); got != test.want[i] {
					t.Errorf("%v called: %q", tool, got)
				}
				if got, known := names.original(test.want[i]); got != tool || !known {
					t.Errorf("%q is %v, %v", test.want[i], got, known)
				}
			}
		})
	}
}

func TestToolNamesThatAreNotDeclared(t *testing.T) {
	var none *toolNames
	invented := toolName{name: "invented", kind: functionTool}
	if got, known := none.original("invented"); got != invented || known {
		t.Errorf("nil: %v, %v", got, known)
	}
	var names toolNames
	names.add(toolName{"a", "b", functionTool})
	if got, known := names.original("invented"); got != invented || known {
		t.Errorf("%v, %v", got, known)
	}
	for tool, want := range map[toolName]string{
		{"gone", "tool", functionTool}: "gone__tool",
		{"", "exec", customTool}:       "exec",
		{"", "a__b", functionTool}:     "a__b", // a call of what was once a function of its own
	} {
		if got := names.called(tool); got != want {
			t.Errorf("%v: %q, want %q", tool, got, want)
		}
	}
	if got, known := names.original("a__b"); got != (toolName{"a", "b", functionTool}) || !known {
		t.Errorf("what was called took the name of a tool: %v, %v", got, known)
	}
}

// Names that a hostile client chose so that they all begin alike cost no more than others.
func TestToolNamesOfAHostileRequest(t *testing.T) {
	const tools = 100_000
	var names toolNames
	space := strings.Repeat("s", 60)
	for i := range tools {
		if name, added := names.add(toolName{space, fmt.Sprint(i), functionTool}); !added || !isFunctionName(name) {
			t.Fatalf("tool %d is %q", i, name)
		}
	}
	if len(names.originals) != tools {
		t.Errorf("%d names for %d tools", len(names.originals), tools)
	}
	if name := names.called(toolName{"", strings.Repeat("x", 1<<20), customTool}); len(name) != 63 {
		t.Errorf("a name of %d bytes", len(name))
	}
}
