package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/speech/lame"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

func doctorCommand(p *program) *command {
	c := newCommand("doctor", "check the configuration, the vendors, the store and the machine")
	c.details = "Each line names what was checked and, if something is wrong, what to do. doctor changes nothing and costs\n" +
		"nothing, unless --call is given. It asks each vendor for its list of models and, with --call, makes one call of\n" +
		"one token through each channel. It finds a running server as every other command does, and asks it for what only\n" +
		"the server knows. The vendors of a file are asked only if --config names the file. The exit code is 1 if there\n" +
		"are problems, and 0 if there are only warnings."
	c.examples = []string{"tollhouse doctor", "tollhouse doctor --config tollhouse.yaml --call", "tollhouse doctor --json"}
	d := &doctor{p: p}
	f := c.flags
	addConfigFlag(f, &d.at.config)
	f.StringVar(&d.listen, "listen", "", "the API's address `HOST:PORT`; default "+defaultListen)
	addAdminFlags(f, "the server's admin address `HOST:PORT`, or off", &d.at.admin, &d.at.data)
	f.BoolVar(&d.call, "call", false, "make one call of one token through each channel")
	asJSON := f.Bool("json", false, "print one JSON document")
	c.bindEnv("config", "listen", "admin", "data")
	c.run = func(ctx context.Context, _ []string) error {
		if err := d.at.readAdmin(); err != nil { // which several checks take
			return err
		}
		for _, check := range doctorChecks {
			if check.needs == nil || check.needs(d) {
				check.run(d, ctx)
			}
		}
		d.close()
		return d.report(*asJSON)
	}
	return c
}

// doctorChecks are all checks, in the order of the report. A check that finds a problem leaves
// the others to be made.
var doctorChecks = []struct {
	needs func(*doctor) bool // whether there is something to check; nil: always
	run   func(*doctor, context.Context)
}{
	{nil, (*doctor).findServer},
	{nil, (*doctor).checkConfiguration},
	{nil, (*doctor).checkVariables},
	{(*doctor).isBuilt, (*doctor).checkKeys},
	{(*doctor).isBuilt, (*doctor).checkTimeouts},
	{(*doctor).isBuilt, (*doctor).checkPrices},
	{(*doctor).isBuilt, (*doctor).checkVendors},
	{(*doctor).isBuilt, (*doctor).checkSpeech},
	{(*doctor).isBuilt, (*doctor).checkSecrets},
	{func(d *doctor) bool { return d.server != nil }, (*doctor).checkRunningChannels},
	{func(d *doctor) bool { return d.call }, (*doctor).checkCalls},
	{func(d *doctor) bool { return d.source != nil || d.server != nil }, (*doctor).checkStore},
	{nil, (*doctor).checkPorts},
	{nil, (*doctor).checkFiles},
	{nil, (*doctor).checkLimits},
}

// The results of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkProblem = "problem"
)

// finding is a line of the report.
type finding struct {
	Check   string `json:"check"`
	Result  string `json:"result"` // "ok", "warning" or "problem"
	Message string `json:"message"`
}

// The bounds below which the machine is reported.
const (
	spaceWarning = 1 << 30   // bytes free where the database is
	spaceProblem = 100 << 20 // a full disk refuses every request
	fewFiles     = 4096      // open files: half of them may be connections of clients
)

// doctor makes the checks. A check can use what an earlier one found out.
type doctor struct {
	p      *program
	at     adminFlags
	listen string
	call   bool

	findings []finding

	settings   settings
	unnamed    bool               // the file is that of this directory, and no flag or variable names it
	source     *source            // nil if there is nothing that could be served
	components *config.Components // of the source; nil if they cannot be built
	target     *adminTarget
	server     *adminClient    // nil if none runs
	about      adminapi.Server // of the server
	running    []string        // the names of its channels
}

func (d *doctor) isBuilt() bool { return d.components != nil }

func (d *doctor) close() {
	if d.server != nil {
		_ = d.server.close()
	}
	if d.components != nil {
		d.components.Close()
	}
}

func (d *doctor) add(check, result, format string, args ...any) {
	d.findings = append(d.findings, finding{check, result, fmt.Sprintf(format, args...)})
}

// outcome is a possible result of a check.
type outcome struct {
	when            bool
	result, message string
}

// addFirst adds the first outcome that applies; none if none does.
func (d *doctor) addFirst(check string, outcomes ...outcome) {
	if i := slices.IndexFunc(outcomes, func(o outcome) bool { return o.when }); i >= 0 {
		d.add(check, outcomes[i].result, "%s", outcomes[i].message)
	}
}

// report prints the findings. The error counts the problems.
func (d *doctor) report(asJSON bool) error {
	count := func(result string) (n int) {
		for _, f := range d.findings {
			if f.Result == result {
				n++
			}
		}
		return n
	}
	problems, warnings := count(checkProblem), count(checkWarning)
	if asJSON {
		if err := writeJSON(d.p.stdout, map[string]any{"object": "list", "data": d.findings, "problems": problems, "warnings": warnings}); err != nil {
			return err
		}
	} else {
		width := 0
		for _, f := range d.findings {
			width = max(width, utf8.RuneCountInString(f.Check))
		}
		for _, f := range d.findings {
			if _, err := fmt.Fprintf(d.p.stdout, "%-8s %-*s  %s\n", f.Result, width, f.Check, safetext.Line(f.Message)); err != nil {
				return err
			}
		}
	}
	switch {
	case problems > 0:
		return fmt.Errorf("%s and %s", plural(problems, "problem"), plural(warnings, "warning"))
	case asJSON:
		return nil
	}
	_, err := fmt.Fprintf(d.p.stdout, "\nNo problems, %s.\n", plural(warnings, "warning"))
	return err
}

// findServer finds the running server, as every other command does.
func (d *doctor) findServer(ctx context.Context) {
	var err error
	if d.target, err = d.at.target(ctx, d.p); err != nil {
		_, wrong := errors.AsType[*config.Error](err)
		d.addFirst("server",
			outcome{d.at.config == "" && !wrong, checkProblem, err.Error()},                    // the file of this directory
			outcome{true, checkOK, "not looked for, because the configuration cannot be read"}) // checkConfiguration says why
		return
	}
	bounded, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
	defer cancel()
	server, err := d.p.connectServer(bounded, d.target)
	_, none := errors.AsType[*noServerError](err)
	switch {
	case err == nil:
		d.server, d.about = server, server.server
		d.add("server", checkOK, "one is running: its admin API is at %s, its store is %s", server.host, d.about.Store)
	case none && (!d.target.onlyServer() || recordedAddress(d.target.data) == ""):
		d.add("server", checkOK, "none is running with this configuration and data directory (%s)", d.target.data)
	default:
		d.add("server", checkProblem, "%v", err)
	}
}

// checkConfiguration reads the file as check does, or the vendors' variables.
func (d *doctor) checkConfiguration(context.Context) {
	d.settings = settings{config: d.target.config, listen: d.listen, admin: d.at.admin, data: d.at.data}
	d.unnamed = d.target.here
	src, err := d.p.source(&d.settings)
	if err != nil {
		if d.settings.data = cmp.Or(d.settings.data, defaultData); d.settings.config == "" { // no file says otherwise
			d.settings.applyFile(&config.Config{})
		}
		d.addRefusal(err)
		return
	}
	c := src.config
	d.source = src
	d.settings.applyFile(c)
	where := ""
	if d.unnamed {
		where = " in this directory"
	}
	d.addFirst("configuration",
		outcome{src.file != "", checkOK, fmt.Sprintf("%s%s is good: %s, billing %s", src.file, where, plural(len(c.Channels), "channel"), billingRow(c))},
		outcome{true, checkOK, fmt.Sprintf("no file: the environment variables make %s, and usage is only counted", plural(len(c.Channels), "channel"))})
	for _, note := range src.notes {
		d.add("configuration", checkWarning, "%s", note)
	}
	if d.components, err = c.Build(nil); err != nil {
		d.add("configuration", checkProblem, "%v", err)
	}
}

// addRefusal reports why there is no configuration. A running server can have variables that
// are not set here.
func (d *doctor) addRefusal(err error) {
	if wrong, refused := errors.AsType[*config.Error](err); refused {
		for _, line := range wrong.Lines() {
			unset := strings.Contains(line, "the environment variable ") && strings.HasSuffix(line, " is not set")
			d.addFirst("configuration",
				outcome{d.server != nil && unset, checkWarning, line + " here; the running server has its own environment, so its channels are not checked from here"},
				outcome{true, checkProblem, line})
		}
		return
	}
	d.addFirst("configuration",
		outcome{d.settings.config == "" && d.server != nil, checkWarning, "no file is named, and no vendor's variable is set here: name the server's file with --config to check it"},
		outcome{true, checkProblem, err.Error()})
}

// checkVariables reports which of the vendors' variables are set, and whether they are used.
func (d *doctor) checkVariables(context.Context) {
	var used, unused []string
	for _, v := range presets() {
		name := v.turnedOnBy()
		value, _ := config.Env(d.p.env).Trimmed()(name)
		switch {
		case value == "" || slices.Contains(used, name) || slices.Contains(unused, name):
		case d.source == nil || d.uses(value):
			used = append(used, name)
		default:
			unused = append(unused, name)
		}
	}
	d.addFirst("variables",
		outcome{len(used) > 0 && d.source == nil, checkOK, "set: " + strings.Join(used, ", ")},
		outcome{len(used) > 0, checkOK, "used: " + strings.Join(used, ", ")},
		outcome{len(unused) == 0, checkOK, "none of the vendors' variables is set"})
	if len(unused) > 0 {
		d.add("variables", checkWarning, "set, but no channel of the file uses them: %s", strings.Join(unused, ", "))
	}
}

// uses reports whether a channel has the value as its key, or in its address.
func (d *doctor) uses(value string) bool {
	return slices.ContainsFunc(d.source.config.Channels, func(c config.Channel) bool {
		isKey := slices.ContainsFunc(c.Keys, func(key secret.String) bool { return key.Reveal() == value })
		return isKey || strings.Contains(c.BaseURL, strings.TrimSuffix(value, "/"))
	})
}

// checkPrices looks for prices of models that no channel serves.
func (d *doctor) checkPrices(context.Context) {
	c := d.source.config
	idle := slices.DeleteFunc(slices.Sorted(maps.Keys(c.Prices)), c.MayServe)
	d.addFirst("prices",
		outcome{len(idle) > 0, checkWarning, "no channel serves " + strings.Join(idle, ", ") + ": add the model to a channel, or remove its price"},
		outcome{!c.Prepaid(), checkOK, "none is needed: usage is counted, and no money moves"},
		outcome{true, checkOK, fmt.Sprintf("every named model has one, %d in all", len(c.Prices))})
}

// checkSpeech looks for the program without which speech has no MP3.
func (d *doctor) checkSpeech(context.Context) {
	if speaks(d.source.config) {
		missing := (&lame.Encoder{Look: d.p.lookPath}).Ready() != nil
		d.addFirst("speech", outcome{missing, checkWarning, withoutMP3}, outcome{true, checkOK, "the program lame is installed"})
	}
}

// checkSecrets looks at what protects stored responses.
func (d *doctor) checkSecrets(context.Context) {
	c := d.source.config
	d.addFirst("secrets",
		outcome{c.Responses.Store == "" || c.Responses.Store == gateway.ResponsesOff, checkOK, "none is needed: no responses are stored"},
		outcome{len(c.Secrets) == 0, checkWarning, "responses are encrypted with a secret that the database itself holds, so a copy of it can be read: make one with `openssl rand -base64 32`, put it into a variable, and name that variable under secrets"},
		outcome{true, checkOK, "responses are encrypted with the file's " + plural(len(c.Secrets), "secret")})
}

// checkStore looks whether the store can be opened, and where its file is.
func (d *doctor) checkStore(ctx context.Context) {
	address := cmp.Or(d.about.Store, d.target.store)
	if d.source != nil {
		address = d.source.store(d.settings.data)
	}
	path, isFile := strings.CutPrefix(address, config.SQLite)
	missing := false
	if isFile {
		d.checkSpace(filepath.Dir(path))
		info, err := os.Stat(path)
		missing = errors.Is(err, fs.ErrNotExist)
		if err == nil {
			if uid, other := ownedByOther(info); other {
				d.add("store", checkWarning, "%s belongs to the user %d: run the server, and commands that work without a server, as that user", path, uid)
			}
		}
	}
	switch {
	case d.server != nil:
		d.add("store", checkOK, "the running server has %s open, billing %s in %s", d.about.Store, d.about.Billing, d.about.Currency)
		if d.source == nil || storeName(address) != d.about.Store { // the address has the password
			return
		}
	case address == config.Memory:
		d.add("store", checkWarning, "it is in memory: accounts, keys made at run time and balances are lost when the server stops")
		return
	case missing:
		d.add("store", checkOK, "%s does not exist yet: the first start makes it", path)
		return
	default:
		d.openStore(ctx, address)
	}
	if !isFile && address != config.Memory { // which may say why it does not open
		ctx, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
		defer cancel()
		for _, advice := range postgres.Advice(ctx, address) {
			d.add("store", checkWarning, "%s", advice)
		}
	}
}

// openStore opens the store as it is, and changes nothing in it.
func (d *doctor) openStore(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
	defer cancel()
	o := store.Options{AsStored: true, Currency: billing.DefaultCurrency, Opening: 10 * time.Second}
	if d.source != nil {
		o.Count, o.Currency = !d.source.config.Prepaid(), cmp.Or(d.source.config.Currency, billing.DefaultCurrency)
	}
	name := storeName(address)
	db, err := openDatabase(ctx, address, o)
	if err != nil {
		d.addFirst("store",
			outcome{errors.Is(err, sqlite.ErrLocked), checkProblem, "another process has " + name + " open, but no server answers: end that process, or name its admin address with --admin"},
			outcome{true, checkProblem, (&storeError{name, err}).Error()})
		return
	}
	defer func() { _ = db.Close() }()
	keys, err := db.Keys().Page(ctx, "", "", 1)
	if err != nil {
		d.add("store", checkProblem, "%s: %s", name, messageOf(err))
		return
	}
	keyless := len(keys) == 0 && (d.source == nil || d.source.file != "" && len(d.components.Keys) == 0)
	d.addFirst("store",
		outcome{keyless, checkWarning, name + " opens, but has no API keys: create one with `tollhouse key create`"},
		outcome{true, checkOK, name + " opens, and this version knows its schema"})
}

// checkSpace looks at the file system of a directory, or of the one in which it will be
// made.
func (d *doctor) checkSpace(dir string) {
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	free, known := freeSpace(dir)
	if !known {
		return
	}
	d.addFirst("disk",
		outcome{free < spaceProblem, checkProblem, fmt.Sprintf("%d MiB are free in %s: free some space, a full disk refuses every request", free>>20, dir)},
		outcome{free < spaceWarning, checkWarning, fmt.Sprintf("%d MiB are free in %s: free some space, or move old receipts out with `tollhouse archive`", free>>20, dir)},
		outcome{true, checkOK, fmt.Sprintf("%d GiB are free in %s", free>>30, dir)})
}

// checkPorts looks whether the addresses are free, or the running server's own, and who can
// reach them.
func (d *doctor) checkPorts(ctx context.Context) {
	if err := d.settings.checkAddresses(); err != nil {
		d.add("admin", checkProblem, "%v", err)
		return
	}
	for _, a := range []struct{ flag, address, what string }{
		{"listen", d.settings.listen, "keys and prompts travel in plain HTTP: put a TLS proxy in front, or listen on 127.0.0.1"},
		{"admin", d.settings.admin, "its token travels in plain HTTP, and gives access to all accounts: listen on 127.0.0.1"},
	} {
		if a.address == "" {
			d.add(a.flag, checkWarning, "not checked, because the configuration cannot be read: correct the configuration first")
			continue
		}
		if a.address == adminOff {
			d.add(a.flag, checkOK, "off")
			continue
		}
		if d.unnamed && d.listen == "" && !isLoopback(dialable(a.address)) {
			d.add(a.flag, checkWarning, "skipped: the address in %s is not a loopback address such as 127.0.0.1; run `tollhouse doctor --config %[1]s` to check it", defaultFile)
			continue
		}
		if _, _, err := net.SplitHostPort(a.address); err == nil && !isLoopback(a.address) {
			d.add(a.flag, checkWarning, "other machines can reach %s, and %s", a.address, a.what)
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.address)
		if err == nil {
			_ = l.Close()
			d.addFirst(a.flag,
				outcome{d.server != nil && !strings.HasSuffix(a.address, ":0"), checkOK, a.address + " is free; the running server was started on another address"},
				outcome{true, checkOK, a.address + " is free"})
			continue
		}
		alive := isAlive(ctx, a.address)
		own := d.server != nil && (a.flag == "admin" && dialable(a.address) == d.server.host || a.flag == "listen" && alive)
		d.addFirst(a.flag,
			outcome{own, checkOK, a.address + " is in use by the running server"},
			outcome{alive, checkProblem, "another tollhouse listens on " + a.address + ": choose another address with --" + a.flag + ", or name its data directory with --data"},
			outcome{true, checkProblem, "cannot listen on " + a.address + " (" + oneLine(err.Error()) + "): choose another address with --" + a.flag})
		if own && a.flag == "listen" {
			d.checkReady(ctx, a.address)
		}
	}
}

// checkReady reports what the running server says of itself. Of its channels, which have
// checks of their own, it only warns.
func (d *doctor) checkReady(ctx context.Context, address string) {
	var said struct {
		Checks   map[string]string `json:"checks"`
		Warnings map[string]string `json:"warnings"`
	}
	if err := readHealth(ctx, address, "/readyz", &said); err != nil {
		d.add("ready", checkWarning, "the running server did not report whether it is ready: %s", oneLine(err.Error()))
		return
	}
	const channels = "channels"
	delete(said.Warnings, channels)
	before := len(d.findings)
	for _, of := range []struct {
		messages map[string]string
		result   string
	}{{said.Checks, checkProblem}, {said.Warnings, checkWarning}} {
		for _, name := range slices.Sorted(maps.Keys(of.messages)) {
			switch message := of.messages[name]; {
			case message == "ok":
			case name == channels:
				d.add("ready", checkWarning, "the running server reports about %s: %s", name, message)
			default:
				d.add("ready", of.result, "the running server reports about %s: %s", name, message)
			}
		}
	}
	if len(d.findings) == before {
		d.add("ready", checkOK, "the running server takes calls")
	}
}

// isAlive reports whether what listens on an address answers as the API of this program
// does.
func isAlive(ctx context.Context, address string) bool {
	var health struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}
	return readHealth(ctx, address, "/healthz", &health) == nil && health.Status == "ok" && health.Checks != nil
}

// readHealth reads /healthz or /readyz of what listens on an address.
func readHealth(ctx context.Context, address, path string, health any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+dialable(address)+path, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(health)
}

// checkFiles looks at who else can read or replace the server's files.
func (d *doctor) checkFiles(context.Context) {
	before := len(d.findings)
	readable := func(name, what string) {
		if mode, open := accessByOthers(name, anyAccess); open {
			d.add("files", checkWarning, "others can read %s (mode %04o), %s: `chmod 600 %s`", name, mode, what, shellQuoted(name))
		}
	}
	if d.source != nil && d.source.file != "" {
		if _, open := accessByOthers(d.source.file, writeAccess); open {
			d.add("files", checkProblem, "others can write to %s, and could have the keys sent elsewhere: `chmod 600 %s`", d.source.file, shellQuoted(d.source.file))
		}
		for _, f := range d.source.config.KeyFiles {
			readable(f.Path, "which holds keys of a vendor")
		}
	}
	data := d.settings.data
	if warning, open := writableByOthers(data); open {
		d.add("files", checkProblem, "%s", warning)
	}
	if _, err := readToken(data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.add("files", checkProblem, "%v", err)
	}
	if d.target != nil {
		if path, isFile := strings.CutPrefix(d.target.store, config.SQLite); isFile {
			readable(path, "where accounts and balances are kept")
		}
	}
	if len(d.findings) == before {
		d.add("files", checkOK, "only their owner can read or replace them")
	}
}

// checkLimits looks at the system's limits of this process. A running server can have others.
func (d *doctor) checkLimits(context.Context) {
	files, limit, configured := openFiles(), containerMemory(os.ReadFile), int64(0)
	if d.source != nil {
		configured = d.source.config.Server.Memory
	}
	mib := func(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
	if files > 0 {
		d.addFirst("open files",
			outcome{files < fewFiles, checkWarning, fmt.Sprintf("at most %d, enough for about %d clients: run `ulimit -n 65536` before the start, or set LimitNOFILE in its systemd unit", files, connectionsFor(files))},
			outcome{true, checkOK, fmt.Sprintf("at most %d", files)})
	}
	d.addFirst("memory",
		outcome{limit > 0 && configured > limit, checkProblem, "server.memory is " + mib(configured) + ", but the container has " + mib(limit) + " and the system would kill the server: set it to at most nine tenths of that"},
		outcome{configured > 0, checkOK, mib(configured) + " by the configuration"},
		outcome{limit > 0, checkOK, "nine tenths of the container's " + mib(limit)},
		outcome{true, checkOK, "not limited: with `server: {memory: 2GiB}` the server would refuse new calls before memory runs short"})
}
