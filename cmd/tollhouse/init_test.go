package main

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
)

// environmentOf turns presets on, whose vendors are at an address.
func environmentOf(base string, rows ...preset) environment {
	env := environment{"AWS_REGION": "us-east-1", "AZURE_OPENAI_ENDPOINT": "https://example.openai.azure.com"}
	for _, v := range rows {
		env[v.Key] = "secret-of-" + v.Channel.Name
		if base != "" {
			for _, other := range presets() { // that the same key turns on
				if other.Key == v.Key {
					if env[other.URL] = base + "/v1"; other.Channel.Driver == "anthropic" {
						env[other.URL] = base // /v1 is a part of its driver's paths
					}
				}
			}
		} else if v.Local != "" {
			env[v.URL] = "http://127.0.0.1:9/v1"
		}
	}
	return env
}

func TestInitWritesAFileThatServesAsTheVariablesDo(t *testing.T) {
	cases := map[string][]preset{"all": presets(), "two that know all ids": {*presetNamed("openai"), *presetNamed("groq"), *presetNamed("anthropic")}}
	for _, v := range presets() {
		cases[v.Channel.Name] = []preset{v}
	}
	vendor := newFakeVendor(t, 200, `{"object":"list","data":[]}`)
	for name, rows := range cases {
		t.Run(name, func(t *testing.T) {
			for _, base := range []string{"", vendor.url} {
				env, path := environmentOf(base, rows...), filepath.Join(t.TempDir(), "t.yaml")
				r := tollhouse(t, env, "init", "--config", path)
				if r.code != exitOK {
					t.Fatalf("it ended with %d: %s", r.code, r.stderr)
				}
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(data)+r.stdout, "secret-of-") || strings.Contains(string(data), firstKey(t, r.stdout)) {
					t.Errorf("a key is written down:\n%s%s", data, r.stdout)
				}
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the mode is %v, %v", info.Mode(), err)
				}
				if r := tollhouse(t, env, "check", "--config", path); r.code != exitOK || strings.Contains(r.stdout, "Warning") {
					t.Errorf("check: %s%s", r.stdout, r.stderr)
				}
				checkSameChannels(t, env, path, data)
			}
			env, path := environmentOf(vendor.url, rows...), filepath.Join(t.TempDir(), "t.yaml")
			key := firstKey(t, tollhouse(t, env, "init", "--config", path).stdout)
			i := start(t, env, "--config", path)
			if status, answer := i.ask(http.MethodGet, "/v1/usage", key, ""); status != 200 {
				t.Errorf("the printed key got %d %s", status, answer)
			}
			if strings.Contains(i.stdout.String(), "there are no API keys") {
				t.Errorf("the banner says\n%s", i.stdout)
			}
		})
	}
}

func TestAFileOfInitListsWhatTheVendorHas(t *testing.T) {
	vendor := newFakeVendor(t, 200, vendorsModels)
	for want, env := range map[string]environment{
		`"id":"m"`:        {"OLLAMA_HOST": vendor.url},
		`"id":"ollama/m"`: {"OLLAMA_HOST": vendor.url, "OPENAI_API_KEY": "sk-0123456789", "OPENAI_BASE_URL": vendor.url},
	} {
		path := filepath.Join(t.TempDir(), "t.yaml")
		key := firstKey(t, tollhouse(t, env, "init", "--config", path).stdout)
		i := start(t, env, "--config", path)
		if _, body := i.ask(http.MethodGet, "/v1/models", key, ""); !strings.Contains(body, want) {
			t.Errorf("the models are %s, want %s", body, want)
		}
	}
}

// checkSameChannels compares the channels of a file with those that the variables make.
func checkSameChannels(t *testing.T, env environment, path string, data []byte) {
	t.Helper()
	src, err := (&program{env: env.lookup}).presets()
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Read(path, data, env.lookup)
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Options{ // without DefersToDiscovered, which no list changes: except keeps the ids of the others out of what passes all
		cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(config.Channel{}), cmpopts.IgnoreFields(config.Channel{}, "Pos", "DefersToDiscovered"),
		cmp.Comparer(func(a, b secret.String) bool { return a.Reveal() == b.Reveal() }),
	}
	if diff := cmp.Diff(src.config.Channels, got.Channels, same); diff != "" {
		t.Errorf("the file serves otherwise than the variables: %s", diff)
	}
	if got.Prepaid() != src.config.Prepaid() || len(got.Accounts) != 1 || got.Accounts[0].Name != defaultAccount {
		t.Errorf("billing %q, accounts %v", got.Billing, got.Accounts)
	}
}

func TestInitWithoutAVendorsVariableWritesASimulatedChannelThatCanBeSold(t *testing.T) {
	t.Chdir(t.TempDir())
	r := tollhouse(t, nil, "init")
	if r.code != exitOK || !strings.Contains(r.stdout, "every answer will be simulated") {
		t.Fatalf("%d: %s%s", r.code, r.stdout, r.stderr)
	}
	i := start(t, nil, "--config", defaultFile)
	if status, answer := i.ask(http.MethodPost, "/v1/chat/completions", firstKey(t, r.stdout), chatBody("sim-chat", false)); status != 200 || strings.Contains(i.stdout.String(), "Warning: ") {
		t.Errorf("a chat got %d %s, and the banner is\n%s", status, answer, i.stdout)
	}
	text, err := os.ReadFile(defaultFile)
	if err != nil {
		t.Fatal(err)
	}
	prepaid := strings.NewReplacer("billing: count", "billing: prepaid", "# prices:", "prices:", "#   sim-chat: {input: \"\", output: \"\"}", "  sim-chat: {input: \"1\", output: \"2\"}").Replace(string(text))
	if r := tollhouse(t, nil, "check", "--config", file(t, prepaid)); r.code != exitOK || strings.Contains(r.stdout, "Warning: ") {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
}

func TestInitReplacesAFileOnlyWithForceAndWritesNoneThatIsRefused(t *testing.T) {
	path := file(t, "mine: true\n")
	read := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if r := tollhouse(t, nil, "init", "--config", path); r.code != exitFailed || !strings.Contains(r.stderr, "exists already") || !strings.Contains(r.stderr, "--force") || read() != "mine: true\n" {
		t.Errorf("%d %q, and the file is\n%s", r.code, r.stderr, read())
	}
	for name, c := range map[string]struct {
		env  environment
		want string
	}{
		"a key with a space":           {environment{"OPENAI_API_KEY": "sk- secret"}, "nothing was written"},
		"a password in an address":     {environment{"OPENAI_API_KEY": "sk-secret12", "OPENAI_BASE_URL": "https://me:secret@example.com/v1"}, "belongs in no file"},
		"an address that cannot be":    {environment{"OLLAMA_HOST": "ftp://example.com"}, "OLLAMA_HOST"},
		"a folder that does not exist": {nil, "no such file"},
	} {
		args := []string{"init", "--force", "--config", path}
		if name == "a folder that does not exist" {
			args[3] = filepath.Join(t.TempDir(), "none", "t.yaml")
		}
		if r := tollhouse(t, c.env, args...); r.code != exitFailed || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr, "secret") || read() != "mine: true\n" {
			t.Errorf("%s: %d %q", name, r.code, r.stderr)
		}
	}
	if r := tollhouse(t, nil, "init", "--config", path, "--force"); r.code != exitOK || !strings.Contains(read(), "billing: count") {
		t.Errorf("%d %q, and the file is\n%s", r.code, r.stderr, read())
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}

// TestTheDefaultsInTheFileAreTrue reads the file as it is and with every default written
// out: both must be the same configuration.
func TestTheDefaultsInTheFileAreTrue(t *testing.T) {
	c := &config.Config{Channels: []config.Channel{{Name: "sim", Driver: "sim", Models: map[string]string{"sim-chat": "sim-chat"}}}}
	text, err := newFile(c, "sha256:"+strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`(?m)^# (\w+: .* # )`) // a default with what it means
	full := comment.ReplaceAllString(text, "$1")
	if n := len(comment.FindAllString(text, -1)); n != 14 {
		t.Errorf("the file has %d defaults:\n%s", n, text)
	}
	read := func(text string) *config.Config {
		c, err := config.Read("t.yaml", []byte(text), environment{}.lookup)
		if err != nil {
			t.Fatal(err)
		}
		for s, otherwise := range map[*string]string{
			&c.Listen: defaultListen, &c.Admin: defaultAdmin, &c.Data: defaultData, &c.Currency: billing.DefaultCurrency,
		} {
			if *s == "" {
				*s = otherwise
			}
		}
		c.Store = filepath.Clean(strings.TrimPrefix(config.StoreIn(defaultData, c.Store), config.SQLite))
		if c.Affinity == "" {
			c.Affinity = gateway.AffinitySession
		}
		c.Positions, c.Channels, c.Accounts = nil, nil, nil
		return c
	}
	short, long := reflect.ValueOf(*read(text)), reflect.ValueOf(*read(full))
	for i := range short.NumField() {
		if !short.Type().Field(i).IsExported() {
			continue
		}
		if diff := cmp.Diff(short.Field(i).Interface(), long.Field(i).Interface(), cmpopts.EquateEmpty(), cmpopts.EquateComparable()); diff != "" {
			t.Errorf("%s: %s", short.Type().Field(i).Name, diff)
		}
	}
}
