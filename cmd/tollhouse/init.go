package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"github.com/goccy/go-yaml"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// defaultFile is the configuration file that init writes.
const defaultFile = "tollhouse.yaml"

func initCommand(p *program) *command {
	c := newCommand("init", "write a configuration file from the vendors' variables")
	c.details = "The file has a channel for each vendor whose variable is set; `tollhouse serve --help` lists the variables. It\n" +
		"names the variables and holds no vendor's key. If none is set, its one channel is simulated. init also makes an\n" +
		"account with a key, prints the key once, and writes only its hash into the file. Every other setting is a comment\n" +
		"that shows the default."
	c.examples = []string{"tollhouse init", "OPENAI_API_KEY=... tollhouse init --config gateway.yaml"}
	var file string
	c.flags.StringVar(&file, "config", "", "the `FILE` to write; default "+defaultFile)
	force := c.flags.Bool("force", false, "replace an existing file")
	c.bindEnv("config")
	c.run = func(context.Context, []string) error { return p.writeConfig(cmp.Or(file, defaultFile), *force) }
	return c
}

// writeConfig writes the file, and prints the first key and what to run next.
func (p *program) writeConfig(file string, force bool) error {
	src, err := p.presets()
	if err != nil {
		return err
	}
	c := src.config
	simulated := len(c.Channels) == 0
	if simulated {
		c.Channels = []config.Channel{{Name: "sim", Driver: "sim", Models: map[string]string{"sim-chat": "sim-chat"}}}
	}
	if err := refuseCredentials(c.Channels); err != nil {
		return err
	}
	key, token, err := auth.NewKey(auth.KeyOptions{Account: defaultAccount, Name: "first key", Now: p.now})
	if err != nil {
		return err
	}
	text, err := newFile(c, "sha256:"+hex.EncodeToString(key.Hash[:]))
	if err != nil {
		return err
	}
	// A variable may hold what no file may, such as a key with spaces.
	read, err := config.Read(file, []byte(text), p.env)
	if err != nil {
		return fmt.Errorf("nothing was written, because the file would be refused: correct the variable (%w)", err)
	}
	components, err := read.Build(nil)
	if err != nil {
		return err
	}
	defer components.Close()
	if err = writeFile(file, text, force); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already: name another file with --config, or replace it with --force", file)
	} else if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Wrote %s. Usage is counted, and no money moves.\n\n", file)
	for i := range read.Channels {
		fmt.Fprintf(&b, "  %s\n", channelRow(&read.Channels[i]))
	}
	if simulated {
		b.WriteString("\nNo vendor's variable is set, so every answer will be simulated. Set one such as OPENAI_API_KEY, and\nrun `tollhouse init --force` again.\n")
	}
	for _, note := range src.notes {
		fmt.Fprintf(&b, "\nWarning: %s.\n", note)
	}
	flag := " --config " + shellQuoted(file)
	path, body := firstCall(components)
	fmt.Fprintf(&b, "\nThe API key of the account %s, shown only once:\n\n  %s\n\nNext:\n\n", defaultAccount, token.Reveal())
	fmt.Fprintf(&b, "  tollhouse doctor%s\n  tollhouse serve%s\n\n", flag, flag)
	writeCurl(&b, "http://"+cmp.Or(read.Listen, defaultListen), path, body, token.Reveal())
	_, err = fmt.Fprint(p.stdout, b.String())
	return err
}

// refuseCredentials refuses base URLs that would bring a password into the file.
func refuseCredentials(channels []config.Channel) error {
	for i := range channels {
		if u, err := url.Parse(channels[i].BaseURL); err == nil && u.User != nil {
			return fmt.Errorf("the base URL of %s has a user or a password, which belongs in no file: put it into the variable of the key", channels[i].Name)
		}
	}
	return nil
}

//go:embed init.yaml.tmpl
var fileTemplate string

// newFile is the text of the file. hash is that of the account's key.
func newFile(c *config.Config, hash string) (string, error) {
	functions := template.FuncMap{"settings": channelSettings, "yaml": yamlText, "price": func(id string) string { return priceRow(id, cmp.Or(c.Kind(id), gateway.KindChat), nil) }}
	t, err := template.New(defaultFile).Funcs(functions).Parse(fileTemplate)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = t.Execute(&text, map[string]any{"Channels": c.Channels, "Models": namedModels(c), "Account": defaultAccount, "Hash": hash})
	return text.String(), err
}

// channelSettings are the settings of a channel that a preset can have, in the order of the file.
func channelSettings(c config.Channel) yaml.MapSlice {
	var keys []map[string]string
	if v := presetNamed(c.Name); v != nil && len(c.Keys) > 0 {
		keys = append(keys, map[string]string{"env": v.Key})
	}
	var models any = c.Models
	if d := c.Discover; d != nil {
		models = given("discover", true, "only", d.Only, "prefix", d.Prefix, "map", c.Models)
	}
	var done, usage any
	if c.DoneOptional {
		done = "optional"
	}
	if c.Usage.NoStreamOptions {
		usage = map[string]bool{"stream_options": false}
	}
	return given(
		"name", c.Name, "driver", c.Driver, "base_url", c.BaseURL, "keys", keys, "auth", c.Auth.String(), "wire", c.Wire,
		"messages", given("base_url", c.Messages.BaseURL), "session_header", c.SessionHeader, "done", done, "usage", usage,
		"priority", c.Priority, "drop", c.Drop, "rename", c.Rename, "models", models, "begins", c.Begins, "except", c.Except,
	)
}

// given are those of the names with their values that have a value.
func given(pairs ...any) (settings yaml.MapSlice) {
	for pair := range slices.Chunk(pairs, 2) {
		v := reflect.ValueOf(pair[1])
		if empty := !v.IsValid() || v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0; !empty {
			settings = append(settings, yaml.MapItem{Key: pair[0], Value: pair[1]})
		}
	}
	return settings
}

// yamlText is a value as it stands behind its key: on one line, unless it is a long mapping.
func yamlText(value any) (string, error) {
	m, _ := value.(map[string]string)
	text, err := yaml.MarshalWithOptions(value, yaml.Flow(len(m) <= 3))
	lines := strings.TrimSpace(strings.ReplaceAll(string(text), "${", "$${"))
	if len(m) > 3 {
		return "\n      " + strings.ReplaceAll(lines, "\n", "\n      "), err
	}
	return " " + lines, err
}

// namedModels are the models that the channels name, sorted, or an example of each channel if
// they name none.
func namedModels(c *config.Config) (ids []string) {
	for i := range c.Channels {
		for id := range c.Channels[i].Models {
			if !strings.Contains(id, "*") {
				ids = append(ids, id)
			}
		}
	}
	for i := range c.Channels {
		if id := exampleOf(&c.Channels[i]); ids == nil && id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// priceRow is a line of prices with the units that a model's kind needs. Some may have their
// amounts. One that is not filled in is refused, and so gives nothing away.
func priceRow(id string, kind gateway.Kind, amounts map[string]string) string {
	var cells []string
	for _, u := range kind.PriceUnits() {
		cells = append(cells, fmt.Sprintf("%s: %q", u, amounts[string(u)]))
	}
	name, _ := yamlText(id) // an id of any letters can be written
	return fmt.Sprintf(" %s: {%s}\n", name, strings.Join(cells, ", "))
}
