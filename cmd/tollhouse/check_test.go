package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestCheckSumsAGoodFileUp(t *testing.T) {
	r := tollhouse(t, acme, "check", "--config", file(t, simConfig("m")+"webhooks: {allow_private: false}\nvideo: {poll: 5s}\n"))
	if r.code != exitOK || !strings.Contains(r.stdout, "is good: 1 channel, 1 price, 1 account, billing prepaid in USD") || r.stderr != "" {
		t.Errorf("%d %q %q", r.code, r.stdout, r.stderr)
	}
	if strings.Contains(r.stdout, "Warning") {
		t.Errorf("a warning for nothing: %q", r.stdout)
	}
}

func TestCheckListsEveryProblemAndServeTheFirst(t *testing.T) {
	name := file(t, simConfig("m")+"currency: usd\nlimits: {rpm: -1}\n")
	r := tollhouse(t, acme, "check", "--config", name)
	want := name + ":8:11: currency: it must be three capital letters such as USD\n" +
		name + ":9:15: rpm: it must be a whole number, 0 or more\n" +
		"tollhouse check: " + name + " has 2 problems\n"
	if r.code != exitFailed || r.stderr != want {
		t.Errorf("check: %d %q", r.code, r.stderr)
	}
	r = tollhouse(t, acme, "serve", "--config", name)
	if r.code != exitFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, ":8:11: ") || !strings.Contains(r.stderr, "and 1 more") {
		t.Errorf("serve: %d %q", r.code, r.stderr)
	}
}

func TestModelsShowsKindsPricesAndChannels(t *testing.T) {
	for _, c := range []struct {
		env  environment
		args []string
		want string
	}{
		{acme, []string{"--config", file(t, simConfig("m"))}, `\nm +any +input 1, output 1 +main\n`},
		{nil, []string{"--demo"}, `\ndelta-k3 +chat +cached_input 0.15, input 0.60, output 2.50 +demo\n`},
		{environment{"TOLLHOUSE_CONFIG": "nowhere.yaml"}, []string{"--demo"}, `\ndelta-k3 `},
		{environment{"MOONSHOT_API_KEY": "sk-x", "OPENAI_API_KEY": "sk-y"}, nil, `\n\* +any +- +openai\ndelta-k3 +chat +- +moonshot\n`},
		{environment{"ANTHROPIC_API_KEY": "sk-x", "OPENAI_API_KEY": "sk-y"}, nil, `\n\* +any +- +openai\nclaude-\* +any +- +anthropic\n`},
		{nil, []string{"--demo"}, `\nalpha3-tts-flash +speech +character 10.00 +demo\n`},
		{nil, []string{"--demo"}, `\ntext-embedding-v4 +embeddings +input 0.07 +demo\n`},
		{
			environment{"GEMINI_API_KEY": "k", "VOYAGE_API_KEY": "k", "DASHSCOPE_API_KEY": "k", "TOLLHOUSE_CONFIG": ""}, nil,
			`\nembx-001 +embeddings +- +gemini\nembx-2-preview +embeddings +- +gemini\ntext-embedding-v4 +embeddings +- +dashscope-compatible\nvox-4 +embeddings +- +voyage\nvox-4-large .*\nvox-4-lite `,
		},
	} {
		r := tollhouse(t, c.env, append([]string{"models"}, c.args...)...)
		if r.code != exitOK || !regexp.MustCompile(c.want).MatchString(r.stdout) {
			t.Errorf("%v: %d %s%s", c.args, r.code, r.stdout, r.stderr)
		}
	}
	var doc struct{ Data []modelRow }
	r := tollhouse(t, nil, "models", "--demo", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || len(doc.Data) < 5 || !slices.ContainsFunc(doc.Data, func(r modelRow) bool { return r.ID == "delta-k3" && r.Price["output"] == "2.50" }) {
		t.Errorf("%v %s", err, r.stdout)
	}
}
