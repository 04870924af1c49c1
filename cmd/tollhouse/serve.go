package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
)

func serveCommand(p *program) *command {
	c := newCommand("serve", "serve the API")
	c.details = "Without --demo and --config, variables of the environment decide which vendors are served:\n" +
		"  " + strings.Join(presetVariables(), "\n  ") + "\n" +
		"Each vendor's address can be another one, by ..._BASE_URL; docs/vendors.md has the table.\n" +
		"The first signal lets running calls end; a second one cancels them."
	c.examples = []string{
		"tollhouse serve --demo",
		"OPENAI_API_KEY=... tollhouse serve",
		"tollhouse serve --config tollhouse.yaml --listen 0.0.0.0:8080",
	}
	var s settings
	f := c.flags
	s.addFlags(f, "info")
	f.StringVar(&s.listen, "listen", "", "the API's address; default "+defaultListen)
	addAdminFlags(f, &s.admin, &s.data)
	s.drain = 30 * time.Second
	f.Var(durationValue{&s.drain}, "drain", "how long running calls may go on after a signal")
	c.bindEnv("config", "demo", "listen", "admin", "data", "log-level", "log-format", "drain")
	c.run = func(ctx context.Context, _ []string) error {
		if err := s.chooseSource(f); err != nil {
			return err
		}
		return p.serve(ctx, &s)
	}
	return c
}

// serve runs the server until a signal or the end of ctx.
func (p *program) serve(ctx context.Context, s *settings) error {
	src, logger, err := p.load(s)
	if err != nil {
		return err
	}
	a, err := p.newApp(ctx, src, s.data, logger)
	if err != nil {
		return err
	}
	return errors.Join(p.listenAndServe(ctx, s, src, a), a.shutdown())
}

// listenAndServe serves the app until a signal or the end of ctx, and drains it.
func (p *program) listenAndServe(ctx context.Context, s *settings, src *source, a *app) error {
	token, err := adminTokenFor(s, src)
	if err != nil {
		return err
	}
	l, err := a.listen(s, token)
	if err != nil {
		return err
	}
	defer a.recordAddress(l)()
	signals, stop := p.notify()
	defer stop()
	defer a.startJobs(ctx)()
	l.start()
	a.awaitLists(ctx)
	if err = p.printBanner(ctx, src, a, l, s); err == nil {
		err = p.loop(ctx, a, l, signals)
	}
	return errors.Join(err, a.drain(l, signals, s.drain))
}

// adminTokenFor is the token of the admin API. Where the data directory cannot be
// written, the demo runs without an admin API, and any other server does not run.
func adminTokenFor(s *settings, src *source) (secret.String, error) {
	if s.admin == adminOff {
		return secret.String{}, nil
	}
	token, err := ensureToken(s.data)
	switch {
	case err == nil:
		return token, nil
	case !src.demo:
		return token, fmt.Errorf("the admin API needs a token in the data directory: name one that can be written with --data, or `--admin off` (%w)", err)
	}
	s.admin = adminOff
	src.notes = append(src.notes, fmt.Sprintf("the admin API is off, since its token cannot be kept: %v", err))
	return secret.String{}, nil
}

// recordAddress writes the address of the admin API to the data directory; forget
// removes it. Without the file commands need --admin, and all else works.
func (a *app) recordAddress(l *listeners) (forget func()) {
	if l.admin.Listener == nil {
		return func() {}
	}
	address := dialable(l.admin.Addr().String())
	if err := writeAddress(a.data, address); err != nil {
		a.logger.Warn("the admin address is not recorded in the data directory: commands may need --admin", "address", address, "error", err)
	}
	return func() { removeAddress(a.data, address) }
}

// notify delivers the signals that end a server or make it reload.
func (p *program) notify() (signals <-chan os.Signal, stop func()) {
	if p.signals != nil {
		return p.signals, func() {}
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// loop waits until the server is to end. Meanwhile the configuration is reloaded at
// a SIGHUP and when it changes.
func (p *program) loop(ctx context.Context, a *app, l *listeners, signals <-chan os.Signal) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	hangUps := make(chan struct{}, 1)
	go a.followConfig(following, hangUps, p.ticks)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.failed:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				return nil
			}
			select {
			case hangUps <- struct{}{}:
			default: // one is pending already
			}
		}
	}
}

// drain lets running requests end, cancels those that have not ended in time, and
// stops the listeners. /readyz is 503 from its beginning.
func (a *app) drain(l *listeners, signals <-chan os.Signal, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		awaitSecondSignal(ctx, signals, cancel)
	}()
	a.logger.Info("shutting down; a second signal cuts running calls short", "drain", timeout.String())
	late := context.AfterFunc(ctx, func() {
		// A client that reads nothing blocks its request even after that is canceled.
		time.AfterFunc(closeTimeout, func() { _ = l.public.server.Close() })
	})
	err := a.gateway.Shutdown(ctx)
	late()
	if err != nil {
		a.logger.Warn("running calls were cut short; what they delivered is settled")
	}
	l.stop()
	cancel()
	<-stopped
	if n := a.gateway.Unsettled(); n > 0 {
		return fmt.Errorf("%d charges could not be recorded", n)
	}
	a.logger.Info("stopped")
	return nil
}

// awaitSecondSignal cancels at a signal other than SIGHUP.
func awaitSecondSignal(ctx context.Context, signals <-chan os.Signal, cancel func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				cancel()
				return
			}
		}
	}
}

// printBanner prints what is served and where, the first key if there is to be
// one, and the warnings.
func (p *program) printBanner(ctx context.Context, src *source, a *app, l *listeners, s *settings) error {
	var b strings.Builder
	base := "http://" + dialable(l.public.Addr().String())
	fmt.Fprintf(&b, "tollhouse %s\n\n", versionText())
	if src.demo {
		b.WriteString("  This is a demo: every answer is simulated, and nothing leaves this process.\n\n")
	}
	row := func(name, text string) { fmt.Fprintf(&b, "  %-10s%s\n", name, text) }
	row("API", base+"/v1")
	row("Admin", adminRow(l, s))
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
	if src.firstAccount != "" {
		token, err := a.createFirstKey(ctx, src.firstAccount)
		if err != nil {
			return err
		}
		writeFirstKey(&b, src, a.components.Load(), base, token)
	}
	unsafe, err := a.warnings(ctx, src, l, s)
	if err != nil {
		return err
	}
	for _, w := range unsafe {
		fmt.Fprintf(&b, "\nWarning: %s.", w)
	}
	_, err = fmt.Fprintln(p.stdout, strings.TrimRight(b.String(), "\n"))
	return err
}

func adminRow(l *listeners, s *settings) string {
	if l.admin.Listener == nil {
		return adminOff
	}
	return "http://" + dialable(l.admin.Addr().String()) + "  (token: `tollhouse admin token" + dataFlag(s) + "`)"
}

func storeRow(s *storage) string {
	if s.db == nil {
		return config.Memory + " (accounts, keys made at run time and balances end with this process)"
	}
	return s.name
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

func billingRow(c *config.Config) string {
	if !c.Prepaid() {
		return "count (usage is recorded, no money moves)"
	}
	return "prepaid in " + c.Currency.Or(billing.DefaultCurrency) + fmt.Sprintf(", %s with a price", plural(len(c.Prices), "model"))
}

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

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// writeFirstKey prints the key and commands to paste.
func writeFirstKey(b *strings.Builder, src *source, serves *config.Components, base string, token secret.String) {
	key := token.Reveal()
	path, body := exampleCall(serves)
	if credit := src.config.Accounts[0].Credit; credit > 0 {
		fmt.Fprintf(b, "\nThe account %s holds %s %s. ", src.firstAccount, credit, src.config.Currency.Or(billing.DefaultCurrency))
	} else {
		fmt.Fprintf(b, "\nThe account is %s. ", src.firstAccount)
	}
	fmt.Fprintf(b, "Its API key, shown only now:\n\n  %s\n\nPaste this:\n\n", key)
	writeCurl(b, base, path, body, key)
	where := "balance"
	if !src.config.Prepaid() {
		where = "usage"
	}
	b.WriteString("\nThen see the result (GET /v1/receipts/ID shows what the call with that X-Request-Id cost):\n\n")
	fmt.Fprintf(b, "  curl %s/v1/%s -H \"Authorization: Bearer %s\"\n", base, where, key)
}

// writeCurl writes a command that makes a call.
func writeCurl(b *strings.Builder, base, path, body, key string) {
	fmt.Fprintf(b, "  curl -iN %s%s \\\n    -H \"Authorization: Bearer %s\" \\\n    -H \"Content-Type: application/json\" \\\n", base, path, key)
	fmt.Fprintf(b, "    -d '%s'\n", body)
}

// isNamedForAnotherUse reports whether a model, by its name, answers no chat: a list such
// as Ollama's says nothing else of it.
func isNamedForAnotherUse(id string) bool {
	return slices.ContainsFunc([]string{"embed", "minilm", "bge-", "rerank", "whisper", "tts"}, func(word string) bool {
		return strings.Contains(strings.ToLower(id), word)
	})
}

// exampleCall is a request to begin with: for a chat, or for embeddings or a ranking
// where nothing else is served.
func exampleCall(c *config.Components) (path, body string) {
	var chats, known, listed, unlikely, wild, embeds, ranks string
	for _, ch := range c.Config.Channels {
		v := presetNamed(ch.Name)
		for _, id := range c.ModelsOf(ch.Name) {
			switch kind := c.Kind(id); {
			case strings.HasSuffix(id, "*"):
				wild = cmp.Or(wild, exampleOf(&ch))
			case ch.Models[id] == "" && v != nil && id == ch.Discover.Prefix+v.example:
				known = cmp.Or(known, id)
			case shellQuoted(id) != id: // a vendor may have named it to be pasted
			case kind == gateway.KindEmbeddings:
				embeds = cmp.Or(embeds, id)
			case kind == gateway.KindRerank:
				ranks = cmp.Or(ranks, id)
			case kind == gateway.KindChat || kind == gateway.KindMessages || kind == "":
				if ch.Models[id] == "" && isNamedForAnotherUse(id) {
					unlikely = cmp.Or(unlikely, id)
				} else if ch.Models[id] == "" { // the first of what its vendor lists, which may make something else
					listed = cmp.Or(listed, id)
				} else {
					chats = cmp.Or(chats, id)
				}
			}
		}
	}
	switch chats = cmp.Or(chats, known, listed, unlikely, wild); {
	case chats != "":
	case embeds != "":
		return "/v1/embeddings", fmt.Sprintf(`{"model":"%s","input":"Hello!"}`, embeds)
	case ranks != "":
		return "/v1/rerank", fmt.Sprintf(`{"model":"%s","query":"Hello!","documents":["Goodbye.","Hello."]}`, ranks)
	}
	return "/v1/chat/completions", fmt.Sprintf(`{"model":"%s","stream":true,"messages":[{"role":"user","content":"Hello!"}]}`, cmp.Or(chats, presets[0].example))
}

// warnings are what is unsafe or incomplete about this start.
func (a *app) warnings(ctx context.Context, src *source, l *listeners, s *settings) (w []string, err error) {
	if !src.config.Prepaid() && !src.demo {
		w = append(w, "money is off: every key can be used without bound, and the vendors charge you")
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
		w = append(w, a.noKeys(first, s))
	}
	if isPublic(l.public.Addr()) {
		w = append(w, "keys and prompts travel in plain HTTP on "+l.public.Addr().String()+": put a TLS proxy in front, or listen on 127.0.0.1")
	}
	if l.admin.Listener != nil && isPublic(l.admin.Addr()) {
		w = append(w, "the admin token travels in plain HTTP on "+l.admin.Addr().String()+": keep --admin on 127.0.0.1")
	}
	if src.config.Webhooks.AllowPrivate && !src.demo {
		w = append(w, "webhooks.allow_private lets every key make this server post to the network behind it: for development only")
	}
	if err := a.mp3.Ready(); err != nil && speaks(src.config) {
		w = append(w, "speech in MP3, the default, is refused where the vendor gives WAV only: install the program lame (apt-get install lame)")
	}
	if slices.Contains(src.config.CORS, "*") {
		w = append(w, `cors: ["*"] lets every web page call with a key that it has: name the pages' origins where you know them`)
	}
	w = append(w, a.storage.exposed...)
	if l.admin.Listener != nil { // its token is in the data directory
		if warning, found := writableByOthers(s.data); found && !slices.Contains(w, warning) {
			w = append(w, warning)
		}
	}
	return append(w, src.notes...), nil
}

// speaks reports whether a model of speech is served.
func speaks(c *config.Config) bool {
	return slices.ContainsFunc(modelRows(c), func(r modelRow) bool { return r.Kind == gateway.KindSpeech })
}

// noKeys is the warning that there are no keys, with the commands that make one.
func (a *app) noKeys(accounts []billing.Balance, s *settings) string {
	if s.admin == adminOff && !a.storage.shared() {
		return "there are no API keys, and the admin API is off: write accounts with keys into the config file"
	}
	text, where := "there are no API keys yet: ", dataFlag(s)
	if a.file != "" {
		where = " --config " + shellQuoted(a.file)
	}
	if len(accounts) == 0 {
		return text + "`tollhouse account create NAME" + where + "`, then `tollhouse key create --account NAME" + where + "`"
	}
	return text + "`tollhouse key create --account " + shellQuoted(accounts[0].Account) + where + "`"
}

// isPublic reports whether other machines can connect.
func isPublic(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || !tcp.IP.IsLoopback()
}

// listsAtStart is for how long a start waits for the lists of vendors.
const listsAtStart = 2 * time.Second

// awaitLists waits until each vendor was asked for its list once, so that what a server
// prints at its start can be called. It does not wait long: a vendor may be away.
func (a *app) awaitLists(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listsAtStart)
	defer cancel()
	a.lists.Await(ctx)
}
