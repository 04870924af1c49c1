// Package programs checks the example programs of a folder.
package programs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Check builds and runs every program in a subfolder of the working directory, at
// least so many of them. A program is one file of fewer than 80 lines, runs offline,
// and prints what its last comment, which begins with "Output:", says.
func Check(t *testing.T, least int) {
	t.Helper()
	const lines = 80
	files, err := filepath.Glob("*/main.go")
	if err != nil || len(files) < least {
		t.Fatalf("found only the examples %v (%v)", files, err)
	}
	dir := build(t, files)
	for _, file := range files {
		name := filepath.Dir(file)
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(source, []byte("\n")); n >= lines {
				t.Errorf("%s has %d lines; an example has fewer than %d", file, n, lines)
			}
			want := expected(t, file, string(source))
			var out, complaints bytes.Buffer
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name))
			cmd.Env, cmd.Stdout, cmd.Stderr = offline(), &out, &complaints
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, complaints.Bytes())
			}
			if got := trimmed(out.String()); got != want {
				t.Errorf("it printed\n%swant\n%s", got, want)
			}
		})
	}
}

// build makes all programs in one go, without debug information: they are linked
// faster.
func build(t *testing.T, files []string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	args := []string{"build", "-ldflags=-w", "-o", dir + string(filepath.Separator)}
	for _, file := range files {
		args = append(args, "./"+filepath.Dir(file))
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

// expected is what the program's last comment says that it prints.
func expected(t *testing.T, file, source string) string {
	t.Helper()
	_, comment, ok := strings.Cut(source, "\n// Output:\n")
	if !ok {
		t.Fatalf("%s does not end with a comment that says what it prints", file)
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
