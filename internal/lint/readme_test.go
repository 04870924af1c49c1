package lint

import (
	"slices"
	"strings"
	"testing"
)

// The commands that set everything up on a machine with only Go on it.
var commands = []string{"go run ./cmd/tollhouse serve --demo", "go test ./..."}

func TestTheReadmeHasExactlyTwoCommands(t *testing.T) {
	var found []string
	for _, f := range readPage("README.md", read(t, "README.md")).fence {
		if f.language != "go" && f.language != "" {
			found = append(found, strings.Split(strings.TrimSpace(f.text), "\n")...)
		}
	}
	if !slices.Equal(found, commands) {
		t.Errorf("the commands are %q, want %q", found, commands)
	}
}

func TestTheProgramInTheReadmeIsTheExample(t *testing.T) {
	program := read(t, "examples/embed/main.go")
	for _, f := range readPage("README.md", read(t, "README.md")).fence {
		if f.language == "go" && f.text != program {
			t.Errorf("the README shows\n%s\nwant examples/embed/main.go:\n%s", f.text, program)
		}
	}
	_, main, _ := strings.Cut(program, "func main() {\n")
	main, _, _ = strings.Cut(main, "\n}\n")
	if n := strings.Count(main, "\n") + 3; n != 12 {
		t.Errorf("the program's main has %d lines, not twelve", n)
	}
}
