package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryCommandFindsItsServer starts servers in several ways, each beside one of
// another data directory, and runs a command in the same directory. Where a server is
// found its account is listed; where none is, the error says what to do.
func TestEveryCommandFindsItsServer(t *testing.T) {
	const sim = "billing: count\nchannels: [{name: main, driver: sim, models: {m: m}}]\naccounts: [{name: found}]\n"
	for _, c := range []struct {
		name    string
		files   map[string]string // in the directory
		serve   []string          // nil: no server runs
		env     environment       // of the command
		args    []string          // of the command; nil for account list
		want    string            // on stdout, or on stderr for a failure
		failure bool
	}{
		{name: "the default data directory", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data"}, want: "found"},
		{name: "a data directory by flag", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "here"}, args: []string{"account", "list", "--data", "here"}, want: "found"},
		{name: "a data directory by the environment", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "here"}, env: environment{"TOLLHOUSE_DATA": "here"}, want: "found"},
		{name: "a file by flag", files: map[string]string{"other.yaml": sim + "data: there\n"}, serve: []string{"--config", "other.yaml", "--data", "there"}, args: []string{"account", "list", "--config", "other.yaml"}, want: "found"},
		{name: "a file by the environment", files: map[string]string{"other.yaml": sim + "data: there\n"}, serve: []string{"--config", "other.yaml", "--data", "there"}, env: environment{"TOLLHOUSE_CONFIG": "other.yaml"}, want: "found"},
		{name: "the file in this directory", files: map[string]string{defaultFile: sim + "data: there\n"}, serve: []string{"--config", defaultFile, "--data", "there"}, want: "found"},
		{name: "a demo", serve: []string{"--demo", "--data", "tollhouse-data"}, want: "demo"},
		{name: "a demo, and the file in this directory", files: map[string]string{defaultFile: sim + "data: there\n"}, serve: []string{"--demo", "--data", "tollhouse-data"}, want: "demo"},
		{name: "no server, and the store of the file in this directory", files: map[string]string{defaultFile: sim + "data: there\n"}, args: []string{"account", "create", "made"}, want: "made"},
		{
			name: "a wrong port", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data"},
			args: []string{"account", "list", "--admin", "127.0.0.1:1"}, want: "no server answers at 127.0.0.1:1; the data directory ./tollhouse-data says that one runs at ADMIN: leave --admin out", failure: true,
		},
		{
			name: "another server's data directory", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "here"},
			args: []string{"account", "list", "--admin", "ADMIN", "--data", "beside"}, want: "does not take this token: name the server's own data directory with --data", failure: true,
		},
		{
			name: "without an admin API", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data", "--admin", "off"},
			want: "cannot be asked, as with `--admin off` or another --data: restart it with an admin address, or stop it", failure: true,
		},
		{
			name: "a demo without an admin API", serve: []string{"--demo", "--data", "tollhouse-data", "--admin", "off"},
			want: "there is no database at tollhouse-data/tollhouse.db yet", failure: true,
		},
		{
			name: "a store in memory, and no server", files: map[string]string{defaultFile: sim + "store: 'memory:'\n"},
			want: "a store in memory is in its server only", failure: true,
		},
		{
			name: "nothing here, as for a server in a container", args: []string{"channel", "list"},
			want: "there is no admin token in ./tollhouse-data: name the running server's data directory with --data, or its file with --config; for a server in a container, run the command there", failure: true,
		},
		{
			name: "a file that is another server's", files: map[string]string{"other.yaml": sim, "mine.yaml": sim + "store: sqlite:mine.db\n"}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data"},
			args: []string{"channel", "list", "--config", "mine.yaml"}, want: "name the right admin address with --admin", failure: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for name, text := range c.files {
				write(t, name, text)
			}
			beside := file(t, strings.ReplaceAll(sim, "found", "beside"))
			start(t, nil, "--config", beside, "--data", "beside")
			admin := ""
			if c.serve != nil {
				admin = start(t, nil, c.serve...).admin
			}
			args := c.args
			if args == nil {
				args = []string{"account", "list"}
			}
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "ADMIN", admin)
			}
			r := tollhouse(t, c.env, args...)
			text, want := r.stdout, strings.ReplaceAll(c.want, "ADMIN", admin)
			if c.failure {
				text = r.stderr
			}
			if !strings.Contains(text, want) || (r.code != exitOK) != c.failure || strings.Contains(r.stdout, "beside") || c.failure && strings.Count(text, "\n") != 1 {
				t.Errorf("%d: %q %q, want %q", r.code, r.stdout, r.stderr, want)
			}
		})
	}
}

// TestATokenOfAnotherUserIsReported has the error alone, since root may read everything.
func TestATokenOfAnotherUserIsReported(t *testing.T) {
	err := tokenError("data", &fs.PathError{Op: "open", Path: filepath.Join("data", tokenFile), Err: os.ErrPermission})
	if want := "the admin token in data belongs to another user: run the command as the server's user"; !strings.Contains(err.Error(), want) {
		t.Errorf("it says %q, want %q", err, want)
	}
}
