package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// printBanner prints what is served and where, the first key if there is to be
// one, and the warnings. owner is the address of another server that commands reach by the
// data directory; empty if they reach this one.
func (p *program) printBanner(ctx context.Context, src *source, a *app, l *listeners, s *settings, owner string) error {
	var b strings.Builder
	base := "http://" + dialable(l.public.Addr().String())
	fmt.Fprintf(&b, "tollhouse %s\n\n", versionText())
	if src.demo {
		b.WriteString("  This is a demo: every answer is simulated, and nothing leaves this process.\n\n")
	}
	row := func(name, text string) { fmt.Fprintf(&b, "  %-10s%s\n", name, text) }
	row("API", base+"/v1")
	row("Admin", adminRow(l, s, src.demo))
	if !src.config.MCP.Off {
		row("MCP", base+mcpPath)
	}
	row("Store", storeRow(a.storage))
	row("Billing", billingRow(src.config))
	for i, c := range src.config.Channels {
		name := ""
		if i == 0 {
			name = "Channels"
		}
		row(name, channelRow(&c))
	}
	if a.firstAccount != "" {
		token, err := a.createFirstKey(ctx, a.firstAccount)
		if err != nil {
			return err
		}
		writeFirstKey(&b, src, a.components.Load(), base, token)
	}
	unsafe, err := a.warnings(ctx, src, l, s, owner)
	if err != nil {
		return err
	}
	for _, w := range unsafe {
		fmt.Fprintf(&b, "\nWarning: %s.", w)
	}
	if src.demo && a.mp3.Ready() != nil {
		b.WriteString("\nNote: speech comes as WAV only (\"response_format\":\"wav\"); for MP3, the default, install lame (for instance apt-get install lame).")
	}
	_, err = fmt.Fprintln(p.stdout, strings.TrimRight(b.String(), "\n"))
	return err
}

// adminRow is where the admin API is, and where its token. A demo says that this file stays.
func adminRow(l *listeners, s *settings, demo bool) string {
	if l.admin.Listener == nil {
		return adminOff
	}
	stays := ""
	if demo {
		stays = ", a file that the demo leaves behind"
	}
	return "http://" + dialable(l.admin.Addr().String()) + "  (its token is in " + filepath.Join(s.data, tokenFile) + stays + ")"
}

// storeRow is the store without secrets, and what a store in memory loses.
func storeRow(s *storage) string {
	if s.db == nil {
		return "in memory: accounts, keys made at run time and balances are lost when this process ends"
	}
	return s.name
}

// billingRow says whether money moves, and in which currency.
func billingRow(c *config.Config) string {
	if !c.Prepaid() {
		return "count (usage is recorded, no money moves)"
	}
	return "prepaid in " + cmp.Or(c.Currency, billing.DefaultCurrency) + fmt.Sprintf(", %s with a price", plural(len(c.Prices), "model"))
}

// channelRow is a channel with its driver and the models that it serves: those that it
// maps, passes through and discovers.
func channelRow(c *config.Channel) string {
	_, every := c.Models["*"]
	n := len(c.Models)
	var patterns []string // of the ids that are passed through
	for _, id := range c.Shown() {
		if id != "*" && strings.HasSuffix(id, "*") {
			patterns = append(patterns, strings.TrimSuffix(id, "*"))
		}
	}
	switch {
	case len(patterns) > 0:
		return fmt.Sprintf("%s (%s): every model that begins with %s", c.Name, c.Driver, strings.Join(patterns, ", "))
	case c.Discover != nil && !every && n == 0:
		return fmt.Sprintf("%s (%s): the models that its vendor lists", c.Name, c.Driver)
	case c.Discover != nil && !every:
		return fmt.Sprintf("%s (%s): %s and those that its vendor lists", c.Name, c.Driver, plural(n, "model"))
	case every && n == 1:
		return fmt.Sprintf("%s (%s): every model", c.Name, c.Driver)
	case every:
		return fmt.Sprintf("%s (%s): %s and every other", c.Name, c.Driver, plural(n-1, "model"))
	}
	return fmt.Sprintf("%s (%s): %s", c.Name, c.Driver, plural(n, "model"))
}

// writeFirstKey prints the key and commands to paste.
func writeFirstKey(b *strings.Builder, src *source, serves *config.Components, base string, token secret.String) {
	key := token.Reveal()
	path, body := firstCall(serves)
	if credit := src.config.Accounts[0].Credit; credit > 0 {
		fmt.Fprintf(b, "\nThe account %s holds %s %s. ", src.firstAccount, credit, cmp.Or(src.config.Currency, billing.DefaultCurrency))
	} else {
		fmt.Fprintf(b, "\nThe account is %s. ", src.firstAccount)
	}
	fmt.Fprintf(b, "Its API key, shown only once:\n\n  %s\n\nPaste this:\n\n", key)
	writeCurl(b, base, path, body, key)
	where := "balance"
	if !src.config.Prepaid() {
		where = "usage"
	}
	b.WriteString("\nThen see the " + where + ". What one call cost is at /v1/receipts/ID; ID is the X-Request-Id of its answer:\n\n")
	fmt.Fprintf(b, "  curl %s/v1/%s -H \"Authorization: Bearer %s\"\n", base, where, key)
}

// writeCurl writes a command that makes a call; without a body it is a GET.
func writeCurl(b *strings.Builder, base, path, body, key string) {
	fmt.Fprintf(b, "  curl -iN %s%s \\\n    -H \"Authorization: Bearer %s\"", base, path, key)
	if body != "" {
		fmt.Fprintf(b, " \\\n    -H \"Content-Type: application/json\" \\\n    -d '%s'", body)
	}
	b.WriteString("\n")
}

// The models that a first call may be of, the best ones first: those of which most is
// known, and of chats before whatever shows less or costs more.
const (
	mappedChat   = iota // named by the configuration
	knownChat           // the preset's example, which its vendor lists
	listedChat          // on a vendor's list, which may have models of any kind
	unlikelyChat        // the same, and its name speaks against chats
	passedChat          // the preset's example, which its channel passes through
	firstOther          // from here on a model of each endpoint, in the order of their list
	noModel      = -1
)

// firstCall is a request to begin with: for the best model of those that are served, or
// for the list of models where none of them has an example.
func firstCall(c *config.Components) (path, body string) {
	models := make([]string, firstOther+len(all.Specs()))
	for i := range c.Config.Channels {
		ch := &c.Config.Channels[i]
		for _, id := range c.ModelsOf(ch.Name) {
			rank := firstCallRank(c, ch, id)
			if rank == noModel {
				continue
			}
			if strings.HasSuffix(id, "*") {
				id = exampleOf(ch)
			}
			models[rank] = cmp.Or(models[rank], id)
		}
	}
	for rank, model := range models {
		if model == "" {
			continue
		}
		endpoint := all.Find(upstream.ChatCompletion)
		if rank >= firstOther {
			endpoint = all.Specs()[rank-firstOther]
		}
		return endpoint.Path, `{"model":"` + model + `",` + endpoint.Example(model) + `}`
	}
	return "/v1/models", ""
}

// otherRank is the rank of a kind of models that make no text.
func otherRank(kind gateway.Kind) int {
	i := slices.IndexFunc(all.Specs(), func(s *operation.Spec) bool { return s.Example != nil && slices.Contains(s.Kinds, string(kind)) })
	if i < 0 {
		return noModel
	}
	return firstOther + i
}

// firstCallRank says what a channel's model is to a first call.
func firstCallRank(c *config.Components, ch *config.Channel, id string) int {
	v, kind, listed := presetNamed(ch.Name), c.Kind(id), ch.Models[id] == ""
	_, noChat := config.KindByName(id)
	switch {
	case strings.HasSuffix(id, "*"):
		return passedChat
	case listed && v != nil && id == ch.Discover.Prefix+v.Example:
		return knownChat
	case shellQuoted(id) != id: // a vendor may have named it to be pasted
		return noModel
	case kind != gateway.KindChat && kind != gateway.KindMessages && kind != "":
		return otherRank(kind)
	case !listed:
		return mappedChat
	case noChat:
		return unlikelyChat
	}
	return listedChat
}

// warnings are what is unsafe or incomplete about this start.
func (a *app) warnings(ctx context.Context, src *source, l *listeners, s *settings, owner string) (w []string, err error) {
	adminFlag := ""
	if owner != "" {
		adminFlag = " --admin " + dialable(l.admin.Addr().String())
		w = append(w, "commands reach the server at "+owner+", which runs with the data directory "+s.data+" too: give them"+adminFlag+" for this one, or start it with another --data")
	}
	if !src.config.Prepaid() && !src.demo && src.file == "" { // a file says so itself
		w = append(w, "no money moves: keys have no spending limit, and the vendors charge you")
	}
	keys, err := a.storage.keys.Page(ctx, "", "", 1)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		first, err := a.storage.ledger.Balances(ctx, "", 1)
		if err != nil {
			return nil, err
		}
		w = append(w, a.noKeys(first, s, adminFlag))
	}
	if !isLoopback(l.public.Addr().String()) {
		w = append(w, "keys and prompts travel in plain HTTP on "+l.public.Addr().String()+": put a TLS proxy in front, or listen on 127.0.0.1")
	}
	if l.admin.Listener != nil && !isLoopback(l.admin.Addr().String()) {
		w = append(w, "the admin token travels in plain HTTP on "+l.admin.Addr().String()+": keep --admin on 127.0.0.1")
	}
	if src.config.Webhooks.AllowPrivate && !src.demo {
		w = append(w, "webhooks.allow_private lets every key make this server send requests into its private network: use it for development only")
	}
	if !src.demo && a.mp3.Ready() != nil && speaks(src.config) {
		w = append(w, withoutMP3)
	}
	if slices.Contains(src.config.CORS, "*") {
		w = append(w, `cors: ["*"] lets every web page call with a key that it has: list the pages' origins if you know them`)
	}
	for _, s := range a.components.Load().Sources() {
		if status := refusedKey(a.lists.Of(s).Err); status != 0 {
			w = append(w, fmt.Sprintf("the vendor of channel %s refuses its key (status %d), so calls through it fail: %s", s.Channel, status, replaceKey(src, s.Channel)))
		}
	}
	w = append(w, a.storage.exposed...)
	if l.admin.Listener != nil { // its token is in the data directory
		if warning, found := writableByOthers(s.data); found && !slices.Contains(w, warning) {
			w = append(w, warning)
		}
	}
	return append(w, src.notes...), nil
}

// withoutMP3 is the warning of a machine that cannot encode MP3.
const withoutMP3 = "speech in MP3, the default, fails if the vendor only makes WAV: install the program lame (apt-get install lame)"

// speaks reports whether a model of speech is served.
func speaks(c *config.Config) bool {
	return slices.ContainsFunc(modelRows(c), func(r modelRow) bool { return r.Kind == gateway.KindSpeech })
}

// noKeys is the warning that there are no keys, with the commands that make one.
func (a *app) noKeys(accounts []billing.Balance, s *settings, adminFlag string) string {
	if s.admin == adminOff && !a.storage.shared() {
		return "there are no API keys, and the admin API is off: add accounts with keys to the configuration file"
	}
	text, where := "there are no API keys yet: ", dataFlag(s)
	if a.file != "" {
		where = " --config " + shellQuoted(a.file)
	}
	where += adminFlag
	if len(accounts) == 0 {
		return text + "`tollhouse account create NAME" + where + "`, then `tollhouse key create --account NAME" + where + "`"
	}
	return text + "`tollhouse key create --account " + shellQuoted(accounts[0].Account) + where + "`"
}

// dataFlag is what a command needs to find the server's data directory.
func dataFlag(s *settings) string {
	if s.data == defaultData {
		return ""
	}
	return " --data " + shellQuoted(s.data)
}

// shellQuoted quotes a word for a shell where that is needed.
func shellQuoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+="
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// plural is a number of things, of which all but one have an s.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
