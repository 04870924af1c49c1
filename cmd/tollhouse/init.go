package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
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
	c.flags.StringVar(&file, "config", "", "the file to write; default "+defaultFile)
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
	text := newFile(c, "sha256:"+hex.EncodeToString(key.Hash[:]))
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

// fileDefault is a line of the file that is commented out, since it says what holds
// without it.
type fileDefault struct{ line, about string }

// The defaults, by the place in the file at which they stand.
var (
	placeDefaults = []fileDefault{
		{"listen: " + defaultListen, "the API"},
		{"admin: " + defaultAdmin, "the admin API and the metrics; or off"},
		{"data: " + defaultData, "holds the database, and the token of the admin API"},
		{"store: " + config.SQLite + defaultData + "/tollhouse.db", `or postgres://user:password@host/name, or "memory:"`},
	}
	moneyDefaults = []fileDefault{
		{"currency: " + billing.DefaultCurrency, "of all prices and balances"},
	}
	limitDefaults = []fileDefault{
		{"limits: {rpm: 0, tpm: 0, max_concurrent: 0, max_concurrent_videos: 0}", "of each key without its own; 0 is no limit"},
		{"affinity: session", "the requests of one conversation go to one channel and key; or prefix, or off"},
		{"responses: {store: off, retention: 30d}", "what is kept of responses; or native, or on"},
		{"secrets: []", "encrypt what is kept; for example [{env: TOLLHOUSE_SECRET}]"},
		{"video: {retention: 7d, poll: 5s, duplicate_window: 5s}", "how video tasks are asked for and kept"},
		{"webhooks: {allow_private: false}", "true lets webhooks go to private addresses"},
		{"mcp: {enabled: true, origins: []}", "tools for agents at /mcp"},
		{"cors: []", "origins of the web pages that may call from a browser, for example [https://app.example.com]"},
		{"metrics: {public: false}", "true shows /metrics of the admin address without its token"},
	}
)

// newFile is the text of the file.
func newFile(c *config.Config, hash string) string {
	var b strings.Builder
	b.WriteString("# The configuration of tollhouse, written by `tollhouse init`. Lines that are commented out show the\n" +
		"# defaults. Keys of vendors stay in the variables that are named here; they must be set where\n" +
		"# `tollhouse serve` runs. Check a change with `tollhouse check`; a server that runs notices it.\n\n")
	writeDefaults(&b, placeDefaults)
	b.WriteString("\n# count: usage is recorded and no money moves. To charge: write prepaid, give each model a price\n" +
		"# below, and the account credit with `tollhouse account credit`. It needs a restart.\nbilling: count\n")
	writeDefaults(&b, moneyDefaults)
	b.WriteString("\n# A channel is one way to a vendor. In models, a public id stands before the vendor's own; \"*\" passes\n" +
		"# every id through, and discover serves what the vendor lists.\nchannels:\n")
	for i := range c.Channels {
		writeChannel(&b, &c.Channels[i])
	}
	writePriceRows(&b, c)
	fmt.Fprintf(&b, "\naccounts:\n  - name: %s\n    # credit: \"25.00\"           # opening credit, where billing is prepaid\n    keys:\n"+
		"      # The key was printed once. `tollhouse key create --account %s` makes more.\n      - {name: first key, hash: %s}\n\n", defaultAccount, defaultAccount, quoted(hash))
	writeDefaults(&b, limitDefaults)
	return b.String()
}

// writeDefaults writes the lines with their comments aligned.
func writeDefaults(b *strings.Builder, rows []fileDefault) {
	for _, d := range rows {
		fmt.Fprintf(b, "# %-44s # %s\n", d.line, d.about)
	}
}

// writeChannel writes a channel with its key's variable.
func writeChannel(b *strings.Builder, c *config.Channel) {
	fmt.Fprintf(b, "  - name: %s\n    driver: %s\n", quoted(c.Name), quoted(c.Driver))
	member := func(name, value string) { fmt.Fprintf(b, "    %s: %s\n", name, value) }
	words := func(name string, list []string) {
		if len(list) > 0 {
			member(name, "["+strings.Join(quotedAll(list), ", ")+"]")
		}
	}
	if c.BaseURL != "" {
		member("base_url", quoted(c.BaseURL))
	}
	if v := presetNamed(c.Name); v != nil && len(c.Keys) > 0 {
		member("keys", "[{env: "+v.Key+"}]")
	}
	if c.Auth.By != "" {
		member("auth", quoted(c.Auth.String()))
	}
	var wire []string
	for _, op := range c.Wire {
		wire = append(wire, string(op))
	}
	words("wire", wire)
	if c.Messages.BaseURL != "" {
		member("messages", "{base_url: "+quoted(c.Messages.BaseURL)+"}")
	}
	if c.SessionHeader != "" {
		member("session_header", quoted(c.SessionHeader))
	}
	if c.DoneOptional {
		member("done", "optional")
	}
	if c.Usage.NoStreamOptions {
		member("usage", "{stream_options: no}")
	}
	if c.Priority != 0 {
		member("priority", strconv.Itoa(c.Priority))
	}
	words("drop", c.Drop)
	if len(c.Rename) > 0 {
		member("rename", mappingText(c.Rename))
	}
	models := mappingText(c.Models)
	if c.Discover != nil {
		prefix := ""
		if c.Discover.Prefix != "" {
			prefix = ", prefix: " + quoted(c.Discover.Prefix)
		}
		only := ""
		if len(c.Discover.Only) > 0 {
			only = ", only: [" + strings.Join(quotedAll(c.Discover.Only), ", ") + "]"
		}
		mapped := ""
		if len(c.Models) > 0 {
			mapped = ", map: " + models
		}
		models = "{discover: true" + only + prefix + mapped + "}"
	}
	member("models", models)
	words("begins", c.Begins)
	words("except", c.Except)
}

// writePriceRows writes a row to fill in for each model that the channels name.
func writePriceRows(b *strings.Builder, c *config.Config) {
	b.WriteString("\n# Prices are the vendor's own page's, or yours: decimal strings for a million tokens or characters, for\n" +
		"# a picture, for a second of video.\n# prices:\n")
	var ids []string
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
	for _, id := range ids {
		b.WriteString("# " + priceRow(id, cmp.Or(c.Kind(id), gateway.KindChat), nil))
	}
}

// priceRow is a line of prices with the units that a model's kind needs, of which some may
// have their amounts. One that is not filled in is refused, and so gives nothing away.
func priceRow(id string, kind gateway.Kind, amounts map[string]string) string {
	var cells []string
	for _, u := range kind.PriceUnits() {
		cells = append(cells, fmt.Sprintf("%s: %q", u, amounts[string(u)]))
	}
	return fmt.Sprintf("  %s: {%s}\n", quoted(id), strings.Join(cells, ", "))
}

// mappingText is a mapping of names, in order: on one line, unless it is long.
func mappingText(m map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, quoted(name)+": "+quoted(m[name]))
	}
	if len(pairs) > 3 {
		return "\n      " + strings.Join(pairs, "\n      ")
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

func quotedAll(words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = quoted(w)
	}
	return all
}

// quoted is a word as YAML has it: in quotes, unless it cannot be taken for anything but a
// word.
func quoted(word string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if len(word) > 3 && strings.Trim(word, letters+"0123456789_-./") == "" && strings.Contains(letters, word[:1]) && !slices.Contains([]string{"null", "true", "false"}, strings.ToLower(word)) {
		return word
	}
	return strconv.Quote(strings.ReplaceAll(word, "${", "$${"))
}
