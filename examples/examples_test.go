package examples

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// expected is what a program's last comment, which begins with "Output:", says
// that it prints.
func expected(t *testing.T, program string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(program, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, comment, ok := strings.Cut(string(source), "\n// Output:\n")
	if !ok {
		t.Fatalf("%s/main.go does not end with a comment that says what it prints", program)
	}
	var out strings.Builder
	for line := range strings.Lines(comment) {
		out.WriteString(strings.TrimPrefix(line, "// "))
	}
	return trimmed(out.String())
}

// trimmed is text without white space at the ends of lines, which gofmt would
// not leave in a comment.
func trimmed(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

func programs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/main.go")
	if err != nil || len(files) < 8 {
		t.Fatalf("found only the examples %v (%v)", files, err)
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = filepath.Dir(f)
	}
	return names
}

// build makes all programs in one go, without debug information: they are linked
// faster.
func build(t *testing.T, names []string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	args := []string{"build", "-ldflags=-w", "-o", dir + string(filepath.Separator)}
	for _, n := range names {
		args = append(args, "./"+n)
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

// offline is the environment without what would lead a program to a vendor.
func offline() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "UPSTREAM_") {
			env = append(env, v)
		}
	}
	return env
}

func TestEveryExamplePrintsWhatItSays(t *testing.T) {
	names := programs(t)
	dir := build(t, names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			var out, complaints bytes.Buffer
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name))
			cmd.Env, cmd.Stdout, cmd.Stderr = offline(), &out, &complaints
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, complaints.Bytes())
			}
			if got, want := trimmed(out.String()), expected(t, name); got != want {
				t.Errorf("it printed\n%swant\n%s", got, want)
			}
		})
	}
}

func TestEveryExampleIsShort(t *testing.T) {
	const most = 80
	for _, name := range programs(t) {
		source, err := os.ReadFile(filepath.Join(name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(source, []byte("\n")); n >= most {
			t.Errorf("%s/main.go has %d lines; an example has fewer than %d", name, n, most)
		}
	}
}
