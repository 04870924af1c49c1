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
	"github.com/tollhouse-ai/gateway/speech/lame"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

func doctorCommand(p *program) *command {
	c := newCommand("doctor", "check the configuration, the vendors, the store and the machine")
	c.details = "Each line says what was checked and, where something is wrong, what to do. It changes nothing and, without\n" +
		"--call, costs nothing. Vendors are asked for their lists of models and, with --call, for one token of each\n" +
		"channel. A running server is found as by every other command and asked for what only it knows; the rest is checked\n" +
		"from here. The vendors of a file are asked only where it is named. If there are problems, the exit code is 1;\n" +
		"warnings leave it at 0."
	c.examples = []string{"tollhouse doctor", "tollhouse doctor --config tollhouse.yaml --call", "tollhouse doctor --json"}
	d := &doctor{p: p}
	f := c.flags
	addConfigFlag(f, &d.at.config)
	f.StringVar(&d.listen, "listen", "", "the API's address; default "+defaultListen)
	addAdminFlags(f, "the server's admin address, HOST:PORT, or off", &d.at.admin, &d.at.data)
	f.BoolVar(&d.call, "call", false, "make one call of one token through each channel")
	asJSON := f.Bool("json", false, "print one JSON document")
	c.bindEnv("config", "listen", "admin", "data")
	c.run = func(ctx context.Context, _ []string) error {
		if err := d.at.readAdmin(); err != nil { // which several checks take
			return err
		}
		d.examine(ctx)
		return d.report(*asJSON)
	}
	return c
}

// What a check found.
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

// doctor makes the checks.
type doctor struct {
	p      *program
	at     adminFlags
	listen string
	call   bool

	findings []finding

	settings   settings
	unnamed    bool               // the file is that of this directory, and no flag or variable names it
	source     *source            // nil if there is nothing that could be served
	components *config.Components // of the source
	target     *adminTarget       // nil if it is not known
	server     *adminClient       // nil if none runs
	absent     error              // why no server was found
	about      adminapi.Server    // of the server
	running    []string           // the names of its channels
}

func (d *doctor) add(check, result, format string, args ...any) {
	d.findings = append(d.findings, finding{check, result, fmt.Sprintf(format, args...)})
}

// examine makes all checks. One that fails leaves the others to be made.
func (d *doctor) examine(ctx context.Context) {
	d.findServer(ctx)
	if d.server != nil {
		defer func() { _ = d.server.close() }()
	}
	d.checkConfiguration()
	d.checkVariables()
	if d.components != nil {
		defer d.components.Close()
		d.checkKeys()
		d.checkTimeouts()
		d.checkPrices()
		d.checkVendors(ctx)
		d.checkSpeech()
		d.checkSecrets()
	}
	d.checkRunningChannels(ctx)
	if d.call {
		d.checkCalls(ctx)
	}
	d.checkStore(ctx)
	d.checkPorts(ctx)
	d.checkFiles()
	d.checkLimits()
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

// findServer finds the running server, as the commands do that need one.
func (d *doctor) findServer(ctx context.Context) {
	var err error
	if d.target, err = d.at.target(ctx, d.p); err != nil {
		d.target = &adminTarget{data: cmp.Or(d.at.data, defaultData)} // checkConfiguration tells why
		d.absent = err
		if _, wrong := errors.AsType[*config.Error](err); d.at.config == "" && !wrong { // the file of this directory
			d.add("server", checkProblem, "%v", err)
			return
		}
		d.add("server", checkOK, "not looked for, since the configuration cannot be read")
		return
	}
	bounded, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
	defer cancel()
	d.server, d.absent = d.p.connectServer(bounded, d.target)
	if d.server != nil {
		d.absent = d.server.do(bounded, http.MethodGet, "/admin/v1/server", nil, &d.about)
	}
	_, none := errors.AsType[*noServerError](d.absent)
	switch {
	case d.server != nil && d.absent == nil:
		d.add("server", checkOK, "one runs: its admin API is at %s, its store is %s", d.server.host, d.about.Store)
	case none && (!d.target.explicit || readAddress(d.target.data) == ""):
		d.server = nil
		d.add("server", checkOK, "none runs with this configuration and data directory (%s)", d.target.data)
	default:
		d.server = nil
		d.add("server", checkProblem, "%v", d.absent)
	}
}

// checkConfiguration reads the file as check does, or the vendors' variables.
func (d *doctor) checkConfiguration() {
	d.settings = settings{config: d.at.config, listen: d.listen, admin: d.at.admin, data: d.at.data}
	if d.at.nothing() {
		_, there, err := fileHere(defaultFile)
		if _, wrong := errors.AsType[*config.Error](err); there && (err == nil || wrong) {
			d.settings.config, d.unnamed = defaultFile, true
		}
	}
	src, err := d.p.source(&d.settings)
	wrong, refused := errors.AsType[*config.Error](err)
	if err != nil {
		d.settings.applyFile(&config.Config{})
	}
	switch {
	case refused:
		for _, line := range wrong.Lines() {
			// What a server that runs was started with need not be set here.
			if d.server != nil && strings.Contains(line, "the environment variable ") && strings.HasSuffix(line, " is not set") {
				d.add("configuration", checkWarning, "%s here, and the server that runs has an environment of its own: its channels are not checked from here", line)
				continue
			}
			d.add("configuration", checkProblem, "%s", line)
		}
		return
	case err != nil && d.settings.config == "" && d.server != nil:
		d.add("configuration", checkWarning, "no file is named, and no vendor's variable is set here: name the server's file with --config to have it checked")
		return
	case err != nil:
		d.add("configuration", checkProblem, "%v", err)
		return
	}
	d.source = src
	d.settings.applyFile(src.config)
	if src.file != "" {
		where := ""
		if d.unnamed {
			where = " in this directory"
		}
		d.add("configuration", checkOK, "%s%s is good: %s, billing %s", src.file, where, plural(len(src.config.Channels), "channel"), billingRow(src.config))
	} else {
		d.add("configuration", checkOK, "no file: the variables make %s, and usage is counted", plural(len(src.config.Channels), "channel"))
	}
	for _, note := range src.notes {
		d.add("configuration", checkWarning, "%s", note)
	}
	if d.components, err = src.config.Build(nil); err != nil {
		d.add("configuration", checkProblem, "%v", err)
	}
}

// checkVariables says which of the vendors' variables are set, and whether they are used.
func (d *doctor) checkVariables() {
	var used, unused []string
	for i := range presets() {
		name := presets()[i].turnedOnBy()
		value, _ := config.Env(d.p.env).Trimmed()(name)
		if value == "" || slices.Contains(used, name) || slices.Contains(unused, name) {
			continue
		}
		if d.source == nil || d.uses(value) {
			used = append(used, name)
		} else {
			unused = append(unused, name)
		}
	}
	switch {
	case len(used) > 0 && d.source == nil:
		d.add("variables", checkOK, "set: %s", strings.Join(used, ", "))
	case len(used) > 0:
		d.add("variables", checkOK, "used: %s", strings.Join(used, ", "))
	case len(unused) == 0:
		d.add("variables", checkOK, "none of the vendors' variables is set")
	}
	if len(unused) > 0 {
		d.add("variables", checkWarning, "set, and used by no channel of the file: %s", strings.Join(unused, ", "))
	}
}

// uses reports whether a channel has the value as its key, or in its address.
func (d *doctor) uses(value string) bool {
	return slices.ContainsFunc(d.source.config.Channels, func(c config.Channel) bool {
		for _, key := range c.Keys {
			if key.Reveal() == value {
				return true
			}
		}
		return strings.Contains(c.BaseURL, strings.TrimSuffix(value, "/"))
	})
}

// checkPrices looks for prices that are for nothing, and for models that prepaid billing
// does not sell.
func (d *doctor) checkPrices() {
	c := d.source.config
	var idle []string
	for _, id := range slices.Sorted(maps.Keys(c.Prices)) {
		if !c.MayServe(id) {
			idle = append(idle, id)
		}
	}
	switch {
	case len(idle) > 0:
		d.add("prices", checkWarning, "no channel serves %s: add the model to a channel, or take its price out", strings.Join(idle, ", "))
	case !c.Prepaid():
		d.add("prices", checkOK, "none is needed: usage is counted, and no money moves")
	default:
		d.add("prices", checkOK, "every model that is named has one, %d in all", len(c.Prices))
	}
}

// checkSpeech looks for the program without which speech has no MP3.
func (d *doctor) checkSpeech() {
	if !speaks(d.source.config) {
		return
	}
	if (&lame.Encoder{Look: d.p.lookPath}).Ready() != nil {
		d.add("speech", checkWarning, "%s", withoutMP3)
		return
	}
	d.add("speech", checkOK, "the program lame is there")
}

// checkSecrets looks at what protects responses that are kept.
func (d *doctor) checkSecrets() {
	c := d.source.config
	kept := c.Responses.Store != "" && c.Responses.Store != gateway.ResponsesOff
	switch {
	case !kept:
		d.add("secrets", checkOK, "none is needed: no responses are kept")
	case len(c.Secrets) == 0:
		d.add("secrets", checkWarning, "responses are kept under a secret of the database itself, so that a copy of it can be read: make one with `openssl rand -base64 32`, put it into a variable, and name that under secrets")
	default:
		d.add("secrets", checkOK, "responses are kept under the file's %s", plural(len(c.Secrets), "secret"))
	}
}

// checkStore looks whether the store can be opened, and where its file is.
func (d *doctor) checkStore(ctx context.Context) {
	if d.target == nil || d.source == nil && d.server == nil {
		return
	}
	address := d.target.store
	if d.source != nil {
		address = d.source.store(d.settings.data)
	}
	if d.about.Store != "" && d.source == nil {
		address = d.about.Store
	}
	path, isFile := strings.CutPrefix(address, config.SQLite)
	if isFile {
		d.checkSpace(filepath.Dir(path))
		if info, err := os.Stat(path); err == nil {
			if uid, other := ownedByOther(info); other {
				d.add("store", checkWarning, "%s belongs to the user %d: run the server, and the commands that work without one, as that user", path, uid)
			}
		}
	}
	switch {
	case d.server != nil:
		d.add("store", checkOK, "the server that runs has %s open, billing %s in %s", d.about.Store, d.about.Billing, d.about.Currency)
		if d.source != nil && storeName(address) == d.about.Store { // which has no password
			d.checkFailOver(ctx, address)
		}
		return
	case address == config.Memory:
		d.add("store", checkWarning, "it is in memory: accounts, keys made at run time and balances end with the server")
		return
	}
	if isFile {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			d.add("store", checkOK, "%s is not there yet: the first start makes it", path)
			return
		}
	}
	d.openStore(ctx, address)
	d.checkFailOver(ctx, address) // which may say why it does not open
}

// openStore opens the store as it is, and changes nothing in it.
func (d *doctor) openStore(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
	defer cancel()
	o := store.Options{AsStored: true, Currency: billing.DefaultCurrency, Opening: 10 * time.Second}
	if d.source != nil {
		o.Count, o.Currency = !d.source.config.Prepaid(), cmp.Or(d.source.config.Currency, billing.DefaultCurrency)
	}
	db, err := openDatabase(ctx, address, o)
	switch {
	case errors.Is(err, sqlite.ErrLocked):
		d.add("store", checkProblem, "another process has %s open, and no server answers for it: end it, or name its admin address with --admin", storeName(address))
		return
	case err != nil:
		d.add("store", checkProblem, "%v", &storeError{storeName(address), err})
		return
	}
	defer func() { _ = db.Close() }()
	keys, err := db.Keys().Page(ctx, "", "", 1)
	switch {
	case err != nil:
		d.add("store", checkProblem, "%s: %s", storeName(address), messageOf(err))
	case len(keys) == 0 && (d.source == nil || d.source.file != "" && len(d.components.Keys) == 0):
		d.add("store", checkWarning, "%s opens, and has no API keys: `tollhouse key create` makes one", storeName(address))
	default:
		d.add("store", checkOK, "%s opens, and this program knows its schema", storeName(address))
	}
}

// checkFailOver looks whether a Postgres and its address are ready for a fail-over.
func (d *doctor) checkFailOver(ctx context.Context, address string) {
	if address == config.Memory || strings.HasPrefix(address, config.SQLite) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
	defer cancel()
	for _, advice := range postgres.Advice(ctx, address) {
		d.add("store", checkWarning, "%s", advice)
	}
}

// checkSpace looks at the file system of a directory, or of the one in which it will be
// made.
func (d *doctor) checkSpace(dir string) {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, known := freeSpace(dir)
	switch {
	case !known:
	case free < spaceProblem:
		d.add("disk", checkProblem, "%d MiB are free in %s: make room, a full disk refuses every request", free>>20, dir)
	case free < spaceWarning:
		d.add("disk", checkWarning, "%d MiB are free in %s: make room, or move old receipts out with `tollhouse archive`", free>>20, dir)
	default:
		d.add("disk", checkOK, "%d GiB are free in %s", free>>30, dir)
	}
}

// checkPorts looks whether the addresses are free, or the running server's own, and who
// reaches them.
func (d *doctor) checkPorts(ctx context.Context) {
	for _, a := range []struct{ flag, address, what string }{
		{"listen", d.settings.listen, "keys and prompts travel in plain HTTP: put a TLS proxy in front, or listen on 127.0.0.1"},
		{"admin", d.settings.admin, "its token travels in plain HTTP, and with it all accounts: listen on 127.0.0.1"},
	} {
		if a.address == adminOff {
			d.add(a.flag, checkOK, "off")
			continue
		}
		if d.unnamed && d.listen == "" && !isLoopback(dialable(a.address)) {
			d.add(a.flag, checkWarning, "not tried: the address in %s is none such as 127.0.0.1, and is tried only where the file is named, as in `tollhouse doctor --config %[1]s`", defaultFile)
			continue
		}
		if _, _, err := net.SplitHostPort(a.address); err == nil && !isLoopback(a.address) {
			d.add(a.flag, checkWarning, "%s can be reached from other machines, where %s", a.address, a.what)
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.address)
		switch {
		case err == nil:
			_ = l.Close()
			if d.server != nil && !strings.HasSuffix(a.address, ":0") {
				d.add(a.flag, checkOK, "%s is free; the server that runs was started on another address", a.address)
				continue
			}
			d.add(a.flag, checkOK, "%s is free", a.address)
		case d.server != nil && (a.flag == "admin" && dialable(a.address) == d.server.host || a.flag == "listen" && isAlive(ctx, a.address)):
			d.add(a.flag, checkOK, "%s is in use by the running server", a.address)
			if a.flag == "listen" {
				d.checkReady(ctx, a.address)
			}
		case isAlive(ctx, a.address):
			d.add(a.flag, checkProblem, "another tollhouse listens on %s: choose another address with --%s, or name its data directory with --data", a.address, a.flag)
		default:
			d.add(a.flag, checkProblem, "%s cannot be listened on (%s): choose another address with --%s", a.address, oneLine(err.Error()), a.flag)
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
		d.add("ready", checkWarning, "the running server does not say whether it is ready: %s", oneLine(err.Error()))
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
				d.add("ready", checkWarning, "the running server says of %s: %s", name, message)
			default:
				d.add("ready", of.result, "the running server says of %s: %s", name, message)
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
func (d *doctor) checkFiles() {
	before := len(d.findings)
	readable := func(name, what string) {
		if mode, open := accessByOthers(name, anyAccess); open {
			d.add("files", checkWarning, "others can open %s (mode %04o), %s: `chmod 600 %s`", name, mode, what, shellQuoted(name))
		}
	}
	if d.source != nil && d.source.file != "" {
		if _, open := accessByOthers(d.source.file, writeAccess); open {
			d.add("files", checkProblem, "others can write to %s, and so lead the keys elsewhere: `chmod 600 %s`", d.source.file, shellQuoted(d.source.file))
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
		d.add("files", checkOK, "only their owner can open or replace them")
	}
}

// checkLimits looks at what the system lets the process have. A server that was started
// elsewhere may have other limits.
func (d *doctor) checkLimits() {
	switch files := openFiles(); {
	case files == 0:
	case files < fewFiles:
		d.add("open files", checkWarning, "at most %d here, so that about %d clients can be connected: `ulimit -n 65536` before the start, or LimitNOFILE of its systemd unit", files, connectionsFor(files))
	default:
		d.add("open files", checkOK, "at most %d", files)
	}
	limit := containerMemory(os.ReadFile)
	var configured int64
	if d.source != nil {
		configured = d.source.config.Server.Memory
	}
	mib := func(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
	switch {
	case configured > 0 && limit > 0 && configured > limit:
		d.add("memory", checkProblem, "server.memory is %s, and the container has %s: the system would kill the server, write at most nine tenths of it", mib(configured), mib(limit))
	case configured > 0:
		d.add("memory", checkOK, "%s by the configuration", mib(configured))
	case limit > 0:
		d.add("memory", checkOK, "nine tenths of the container's %s", mib(limit))
	default:
		d.add("memory", checkOK, "not limited: `server: {memory: 2GiB}` would have new calls refused before it is short")
	}
}
