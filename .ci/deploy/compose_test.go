package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const compose = root + "/deploy/compose"

// loadCompose does what `docker compose config` does.
func loadCompose(t *testing.T, env ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{compose + "/compose.yaml"}, cli.WithEnv(env))
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(context.Background())
}

func TestTheComposeFileIsWhole(t *testing.T) {
	t.Parallel()
	project, err := loadCompose(t, "POSTGRES_PASSWORD=p", "GRAFANA_PASSWORD=g")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range project.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s mounts what there is not: %v", name, err)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s is published at %q: only this machine is to reach it", name, p.HostIP)
			}
		}
		if s.Build == nil && (!strings.Contains(s.Image, ":") || strings.HasSuffix(s.Image, ":latest")) {
			t.Errorf("%s is whichever %s there is that day: name a version", name, s.Image)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.Restart != "unless-stopped" {
			t.Errorf("%s has more rights than it needs: read_only %v, cap_drop %v, security_opt %v", name, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
	}
	for _, row := range []struct {
		a, b string
		meet bool
	}{
		{"gateway", "database", true}, {"gateway", "prometheus", true}, {"prometheus", "grafana", true},
		{"gateway", "grafana", false}, {"database", "prometheus", false}, {"database", "grafana", false},
	} {
		meet := false
		for network := range project.Services[row.a].Networks {
			_, both := project.Services[row.b].Networks[network]
			meet = meet || both
		}
		if meet != row.meet {
			t.Errorf("%s and %s share a network: %v, want %v", row.a, row.b, meet, row.meet)
		}
	}
	if _, err := os.Stat(filepath.Join(project.Services["gateway"].Build.Context, "Dockerfile")); err != nil {
		t.Error(err)
	}
	check(t, build(t), compose+"/tollhouse.yaml")
}

func TestTheComposeFileAsksForItsPasswords(t *testing.T) {
	t.Parallel()
	if _, err := loadCompose(t, "GRAFANA_PASSWORD=g"); err == nil || !strings.Contains(err.Error(), "POSTGRES_PASSWORD") {
		t.Errorf("the error is %v, want one that names POSTGRES_PASSWORD", err)
	}
}

// TestTheDockerfileIsGood parses it as its builder does, with the builder's own linter. An
// image is built where there is an engine: .ci/deploy/run.
func TestTheDockerfileIsGood(t *testing.T) {
	t.Parallel()
	f, err := os.Open(root + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	parsed, err := parser.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, description, _, message string, at []parser.Range) {
		t.Errorf("line %v: %s: %s (%s)", at, rule, message, description)
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	image := stages[len(stages)-1]
	var user, entry, path string
	for _, c := range image.Commands {
		switch c := c.(type) {
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				if pair.Key == "PATH" {
					path = pair.Value
				}
			}
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			if entry = strings.Join(c.CmdLine, " "); c.PrependShell {
				t.Error("the entry point needs a shell, which the image has not, and gets no signals")
			}
		}
	}
	if !slices.Contains(strings.Split(path, ":"), filepath.Dir(entry)) {
		t.Errorf("the path %s does not find %s, so that docker exec needs its whole name", path, entry)
	}
	if image.BaseName != "scratch" || user != "65532:65532" || entry != "/tollhouse" {
		t.Errorf("the image is made from %q, and runs %q as %q", image.BaseName, entry, user)
	}
}

// TestTheUnitIsGood has systemd read the unit of the service, with the gateway where it
// would be.
func TestTheUnitIsGood(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze; CI installs systemd for it")
	}
	unit, err := os.ReadFile(root + "/deploy/systemd/tollhouse.service")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tollhouse.service")
	here := strings.ReplaceAll(string(unit), "/usr/local/bin/tollhouse", "/bin/true")
	if err := os.WriteFile(file, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(program, "verify", "--man=no", file).CombinedOutput(); err != nil || strings.Contains(string(said), "tollhouse.service:") {
		t.Errorf("%v: %s", err, said)
	}
}
