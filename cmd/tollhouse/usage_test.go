package main

import (
	"strings"
	"testing"
)

func TestWrongUsageIsExitCode2AndSaysWhereHelpIs(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no command given"},
		{[]string{"sevre"}, `there is no command "sevre"`},
		{[]string{"account"}, "`tollhouse account create`"},
		{[]string{"serve", "--bogus"}, "unknown flag: --bogus"},
		{[]string{"serve", "here"}, "takes no arguments"},
		{[]string{"serve", "--demo", "--config", "x"}, "exclude each other"},
		{[]string{"serve", "--demo", "--log-level", "loud"}, "--log-level must be"},
		{[]string{"serve", "--demo", "--log-format", "xml"}, "--log-format must be"},
		{[]string{"serve", "--drain", "soon"}, "write a duration"},
		{[]string{"check"}, "--config is missing"},
		{[]string{"account", "create"}, "NAME is missing"},
		{[]string{"account", "create", "a", "b"}, `"b" is one argument too many`},
		{[]string{"account", "credit", "acme"}, "AMOUNT is missing"},
		{[]string{"key", "create"}, "--account is missing"},
		{[]string{"key", "create", "--account", "a", "--rpm", "-1"}, "--rpm"},
		{[]string{"key", "create", "--account", "a", "--expires", "tomorrow"}, "write a duration"},
		{[]string{"usage", "--by", "week"}, "--by must be"},
		{[]string{"webhook"}, "webhook needs one of its commands: `tollhouse webhook secret`, `tollhouse webhook list`, `tollhouse webhook resend`"},
		{[]string{"webhook", "secret"}, "--account is missing"},
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
	if r := tollhouse(t, environment{"TOLLHOUSE_DEMO": "perhaps"}, "serve"); r.code != exitUsage || !strings.Contains(r.stderr, "TOLLHOUSE_DEMO") {
		t.Errorf("a variable that does not fit: exit code %d, stderr %q", r.code, r.stderr)
	}
	if r := tollhouse(t, nil, "--version"); r.code != exitOK || !strings.HasPrefix(r.stdout, "tollhouse ") || !strings.Contains(r.stdout, "go1.") {
		t.Errorf("the version: %d %q", r.code, r.stdout)
	}
	overview := tollhouse(t, nil, "--help")
	if overview.code != exitOK {
		t.Errorf("exit code %d", overview.code)
	}
	for _, make := range commands {
		name := make(&program{}).name
		if !strings.Contains(overview.stdout, "\n  "+name+" ") {
			t.Errorf("the overview lacks %s", name)
		}
		for _, args := range [][]string{append(strings.Fields(name), "--help"), append([]string{"help"}, strings.Fields(name)...)} {
			r := tollhouse(t, nil, args...)
			if r.code != exitOK || !strings.Contains(r.stdout, "Usage:\n  tollhouse "+name) || r.stderr != "" {
				t.Errorf("%v: %d %q %q", args, r.code, r.stdout, r.stderr)
			}
		}
	}
}

func TestEveryExampleOfTheHelpIsACommandWithFlagsThatExist(t *testing.T) {
	for _, make := range commands {
		for _, example := range make(&program{}).examples {
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
