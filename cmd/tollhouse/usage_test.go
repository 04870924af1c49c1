package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestWrongUsageIsExitCode2AndSaysWhereHelpIs(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no command given"},
		{[]string{"sevre"}, `there is no command "sevre"`},
		{[]string{"chanel", "list"}, "there is no command \"chanel\"; did you mean `tollhouse channel`?"},
		{[]string{"sevre"}, "did you mean `tollhouse serve`?"},
		{[]string{"postgres"}, "there is no command \"postgres\" (see `tollhouse --help`)"},
		{[]string{"account"}, "`tollhouse account create`"},
		{[]string{"webhook", "lst"}, "webhook has no command \"lst\": its commands are `tollhouse webhook secret`, `tollhouse webhook list`, `tollhouse webhook resend` (see `tollhouse webhook --help`)"},
		{[]string{"serve", "--bogus"}, "serve: unknown flag: --bogus (see"},
		{[]string{"serve", "--lisen", "127.0.0.1:1"}, "serve: unknown flag: --lisen; did you mean --listen? (see"},
		{[]string{"serve", "-x"}, "serve: unknown flag: -x (see"},
		{[]string{"serve", "--demo=perhaps"}, `serve: --demo takes true or false, not "perhaps" (see`},
		{[]string{"serve", "here"}, "takes no arguments"},
		{[]string{"serve", "--demo", "--config", "x"}, "exclude each other"},
		{[]string{"serve", "--demo", "--log-level", "loud"}, "--log-level must be"},
		{[]string{"serve", "--demo", "--log-format", "xml"}, "--log-format must be"},
		{[]string{"serve", "--drain", "soon"}, `--drain takes a duration such as 90s, 24h or 30d, not "soon"`},
		{[]string{"check"}, "there is no tollhouse.yaml in this directory: name the file to check with --config, or `tollhouse init` makes one"},
		{[]string{"account", "create"}, "NAME is missing"},
		{[]string{"account", "create", "a", "b"}, `"b" is one argument too many`},
		{[]string{"account", "credit", "acme"}, "AMOUNT is missing"},
		{[]string{"account", "credit", "acme", "-2.50"}, "-2.50 takes money back, and stands after `--`, as in `tollhouse account credit -- NAME -2.50`; an amount above 0 adds money"},
		{[]string{"key", "create"}, "--account is missing"},
		{[]string{"key", "create", "--account", "a", "--rpm", "-1"}, `key create: --rpm takes a whole number, not "-1" (see`},
		{[]string{"key", "create", "--account", "a", "--rpm", "x"}, `key create: --rpm takes a whole number, not "x" (see`},
		{[]string{"webhook", "list", "--limit", "99999"}, "webhook list: --limit cannot be 99999: that is too much (see"},
		{[]string{"key", "create", "--account", "a", "--expires", "tomorrow"}, "--expires takes a duration"},
		{[]string{"key", "create", "--account", "a", "--models", `a"b`}, "--models takes names with commas between them, not"},
		{[]string{"usage", "--by", "week"}, "--by must be"},
		{[]string{"webhook"}, "webhook needs one of its commands: `tollhouse webhook secret`, `tollhouse webhook list`, `tollhouse webhook resend`"},
		{[]string{"webhook", "secret"}, "--account is missing"},
		{[]string{"archive"}, "--before and --out are missing"},
		{[]string{"archive", "--out", "."}, "--before is missing"},
		{[]string{"archive", "--before", "2020-01-01"}, "--out is missing"},
		{[]string{"archive", "--before", "yesterday", "--out", "."}, "--before must be a day"},
		{[]string{"archive", "--before", "2020-01-01", "--out", "NODIR"}, "archive: there is no directory NODIR (see"},
		{[]string{"archive", "--before", "2020-01-01", "--out", "usage_test.go"}, "there is no directory usage_test.go"},
		{[]string{"archive", "--admin", "127.0.0.1:1"}, "unknown flag: --admin"},
		{[]string{"webhook", "list", "--limit", "0"}, "--limit must be from 1 to 1000"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := tollhouse(t, nil, c.args...)
			if r.code != exitUsage || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
			}
			if !strings.Contains(r.stderr, "`tollhouse ") || r.stdout != "" {
				t.Errorf("it does not say what to do: %q %q", r.stderr, r.stdout)
			}
		})
	}
}

func TestHelpIsThereForEveryCommand(t *testing.T) {
	if r := tollhouse(t, environment{"TOLLHOUSE_DEMO": "perhaps"}, "serve"); r.code != exitUsage || !strings.Contains(r.stderr, "TOLLHOUSE_DEMO does not fit: --demo takes true or false") {
		t.Errorf("a variable that does not fit: exit code %d, stderr %q", r.code, r.stderr)
	}
	if r := tollhouse(t, nil, "--version"); r.code != exitOK || !strings.HasPrefix(r.stdout, "tollhouse ") || !strings.Contains(r.stdout, "go1.") {
		t.Errorf("the version: %d %q", r.code, r.stdout)
	}
	overview := tollhouse(t, nil, "--help")
	if overview.code != exitOK {
		t.Errorf("exit code %d", overview.code)
	}
	for _, c := range new(program).commands() {
		name := c.name
		if !strings.Contains(overview.stdout, "\n  "+name+" ") {
			t.Errorf("the overview lacks %s", name)
		}
		if group, _, ok := strings.Cut(name, " "); ok {
			for _, args := range [][]string{{group, "--help"}, {group, "-h"}, {"help", group}} {
				if r := tollhouse(t, nil, args...); r.code != exitOK || !strings.Contains(r.stdout, "\n  "+name+" ") || r.stderr != "" {
					t.Errorf("%v: %d %q %q", args, r.code, r.stdout, r.stderr)
				}
			}
		}
		for _, args := range [][]string{append(strings.Fields(name), "--help"), append([]string{"help"}, strings.Fields(name)...)} {
			r := tollhouse(t, nil, args...)
			if r.code != exitOK || !strings.Contains(r.stdout, "Usage:\n  tollhouse "+name) || r.stderr != "" {
				t.Errorf("%v: %d %q %q", args, r.code, r.stdout, r.stderr)
			}
		}
	}
}

func TestTheHelpSaysWhatItsWordsMean(t *testing.T) {
	for command, wants := range map[string][]string{
		"archive":      {"--before DATE ", "--out DIR "},
		"doctor":       {"doctor changes nothing and costs\nnothing, unless --call is given."},
		"channel list": {"\n  " + router.StateClosed + " ", "\n  " + router.StateOpen + " ", "\n  " + router.StateHalfOpen + " ", "\n  " + router.StatePaused + " "},
		"account list": {"the server's admin address HOST:PORT; off opens the store"},
	} {
		help := tollhouse(t, nil, append(strings.Fields(command), "-h")...).stdout
		for _, want := range wants {
			if !strings.Contains(help, want) {
				t.Errorf("%s lacks %q:\n%s", command, want, help)
			}
		}
	}
}

func TestEveryExampleOfTheHelpIsACommandWithFlagsThatExist(t *testing.T) {
	for _, c := range new(program).commands() {
		for _, example := range c.examples {
			words := strings.Fields(example)
			for len(words) > 0 && words[0] != "tollhouse" {
				words = words[1:]
			}
			if len(words) == 0 || strings.Contains(example, "$(") {
				continue
			}
			p := &program{env: environment{}.lookup}
			c, rest, err := p.findCommand(words[1:])
			if err == nil {
				err = c.parse(p, rest)
			}
			if err != nil {
				t.Errorf("%s: %v", example, err)
			}
		}
	}
}

func TestCheckWarnsOfWhatIsGoodAndCannotBeMeant(t *testing.T) {
	const local = "billing: count\nchannels: [{name: main, driver: openai, base_url: 'http://127.0.0.1:9', models: {m: m}}]\n"
	messages := func(driver, price string) string {
		return "currency: USD\nchannels: [{name: main, driver: " + driver + ", keys: [sk-0123456789], models: {m: m}}]\nprices: {m: {" + price + "}}\naccounts: [{name: a, credit: '1'}]\n"
	}
	for _, c := range []struct{ name, text, want string }{ // no warning where want is empty
		{"a model that no channel serves", local + "models: {mm: {kind: chat}}\n", "no channel serves mm, which models describes: correct the name, or add the model to a channel"},
		{"a model that is served", local + "models: {m: {kind: chat}}\n", ""},
		{"a model that a vendor may list", strings.Replace(local, "models: {m: m}", "models: {discover: true}", 1) + "models: {mm: {kind: chat}}\n", ""},
		{"a model that is passed through", strings.Replace(local, "m: m", "'*': '*'", 1) + "models: {mm: {kind: chat}}\n", ""},
		{"a vendor without keys", "billing: count\nchannels: [{name: main, driver: openai, models: {m: m}}]\n", "channel main has no keys, and https://api.openai.com/v1 refuses calls without one: add `keys: [{env: NAME}]`"},
		{"a vendor by its address", "billing: count\nchannels: [{name: main, driver: anthropic, base_url: 'https://api.anthropic.com/', models: {m: m}}]\n", "channel main has no keys, and https://api.anthropic.com/ refuses"},
		{"a vendor with keys", "billing: count\nchannels: [{name: main, driver: openai, keys: [sk-0123456789], models: {m: m}}]\n", ""},
		{"a channel that sells what has a price", "channels: [{name: main, driver: openai, keys: [sk-0123456789], models: {'*': '*'}}]\nprices: {m: {input: '1', output: '2'}}\n", ""},
		{"a channel that sells nothing", "channels: [{name: main, driver: anthropic, keys: [sk-0123456789], models: {'*': '*'}, begins: [claude-]}, {name: b, driver: sim, models: {m: m}}]\nprices: {m: {input: '1', output: '2'}}\n", "channel main sells nothing: prepaid billing serves only models that have a price"},
		{"the address of an endpoint", strings.Replace(local, ":9'", ":9/v1/chat/completions'", 1), "channel main: the gateway adds /chat/completions to the base_url by itself: write http://127.0.0.1:9/v1."},
		{"with a slash behind it", strings.Replace(local, ":9'", ":9/v1/embeddings/'", 1), "adds /embeddings to the base_url by itself: write http://127.0.0.1:9/v1."},
		{"of messages", "billing: count\nchannels: [{name: main, driver: anthropic, keys: [k], base_url: 'https://vendor.example/claude/v1/messages', models: {m: m}}]\n", "adds /v1/messages to the base_url by itself: write https://vendor.example/claude."},
		{"of all of Anthropic's endpoints", "billing: count\nchannels: [{name: main, driver: anthropic, keys: [k], base_url: 'https://vendor.example/v1', models: {m: m}}]\n", "adds /v1 to the base_url by itself: write https://vendor.example."},
		{"of messages beside chats", "billing: count\nchannels: [{name: main, driver: openai, keys: [k], base_url: 'https://vendor.example/v1', wire: [chat, messages], messages: {base_url: 'https://vendor.example/v1/messages'}, models: {m: m}}]\n", "adds /v1/messages to the base_url of messages by itself: write https://vendor.example."},
		{"of rankings", "billing: count\nchannels: [{name: main, driver: tei, base_url: 'http://127.0.0.1:9/rerank', models: {m: m}}]\n", "adds /rerank to the base_url by itself: write http://127.0.0.1:9."},
		{"what a vendor writes to its cache for the price of input", messages("anthropic", "input: '3', output: '15'"), "the price of m has no cache_write, so what a vendor writes to its cache costs what input does"},
		{"what a vendor writes to its cache, priced", messages("anthropic", "input: '3', cache_write: '3.75', output: '15'"), ""},
		{"a vendor of another wire", messages("openai", "input: '3', output: '15'"), ""},
		{"a vendor of both wires", strings.Replace(messages("openai", "input: '3', output: '15'"), "keys:", "wire: [chat, messages], base_url: 'https://vendor.example/v1', keys:", 1), "the price of m has no cache_write"},
		{"a server that takes calls without keys", "billing: count\nchannels: [{name: main, driver: tei, models: {m: m}}]\n", ""},
	} {
		r := tollhouse(t, nil, "check", "--config", file(t, c.text))
		if r.code != exitOK || !strings.Contains(r.stdout, c.want) || strings.Contains(r.stdout, "Warning: ") != (c.want != "") {
			t.Errorf("%s: %d %q %q, want %q", c.name, r.code, r.stdout, r.stderr, c.want)
		}
	}
}

func TestCheckSumsAGoodFileUpAndListsTheProblemsOfAnother(t *testing.T) {
	good := file(t, simConfig("m")+"webhooks: {allow_private: false}\nvideo: {poll: 5s}\n")
	if r := tollhouse(t, acme, "check", "--config", good); r.code != exitOK || r.stdout != good+" is good: 1 channel, 1 price, 1 account, billing prepaid in USD, 1 model with a price.\n" || r.stderr != "" {
		t.Errorf("check of a good file: %d %q %q", r.code, r.stdout, r.stderr)
	}
	name := file(t, simConfig("m")+"currency: usd\nlimits: {rpm: -1}\n")
	r := tollhouse(t, acme, "check", "--config", name)
	want := name + ":8:11: currency: it must be three capital letters such as USD\n" +
		name + ":9:15: rpm: it must be a whole number, 0 or more\n" +
		"tollhouse check: " + name + " has 2 problems\n"
	if r.code != exitFailed || r.stderr != want {
		t.Errorf("check: %d %q", r.code, r.stderr)
	}
	single := file(t, simConfig("m")+"currencys: USD\n")
	if r = tollhouse(t, acme, "check", "--config", single); r.stderr != single+":8:1: the file has no field \"currencys\"; did you mean currency?\n"+
		"tollhouse check: "+single+" has 1 problem\n" {
		t.Errorf("check of a file with one problem: %q", r.stderr)
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
		{nil, []string{"--config", file(t, "channels: [{name: main, driver: openai, keys: [k], models: {'*': '*'}}]\nprices: {m: {input: '1', output: '2'}}\n")},
			`\n\* +any +none: only models with a price are sold +main\nm +any +input 1, output 2 +main\n`},
		{nil, []string{"--demo"}, `\nalpha3-tts-flash +speech +character 10.00 +demo\n`},
		{nil, []string{"--demo"}, `\ntext-embedding-v4 +embeddings +input 0.07 +demo\n`},
		{
			environment{"GEMINI_API_KEY": "k", "VOYAGE_API_KEY": "k", "DASHSCOPE_API_KEY": "k", "TOLLHOUSE_CONFIG": ""}, nil,
			`(?s)\nembx-001 +embeddings +- +gemini\nembx-2-preview +embeddings +- +gemini\ngemini-\* +any +- +gemini\ngte-rerank-v2 +rerank +- +dashscope\n.*\nrerank-2 +rerank +- +voyage\n.*\ntext-embedding-v4 +embeddings +- +dashscope-compatible\nvox-4 +embeddings +- +voyage\nvox-4-large [^\n]*\nvox-4-lite `,
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
