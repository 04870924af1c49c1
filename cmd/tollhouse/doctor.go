package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/speech/lame"
)

func doctorCommand(p *program) *command {
	c := newCommand("doctor", "check the configuration, the vendors, the store and the machine")
	c.details = "Each line says what was checked and, where something is wrong, what to do. It changes nothing and costs nothing:\n" +
		"vendors are asked for their lists of models, and with --call for one token of each channel. A running server is\n" +
		"found as by every other command and asked for what only it knows; the rest is checked from here. If there are\n" +
		"problems, the exit code is 1; warnings leave it at 0."
	c.examples = []string{"tollhouse doctor", "tollhouse doctor --config tollhouse.yaml --call", "tollhouse doctor --json"}
	d := &doctor{p: p}
	f := c.flags
	addConfigFlag(f, &d.at.config)
	f.StringVar(&d.listen, "listen", "", "the API's address; default "+defaultListen)
	addAdminFlags(f, &d.at.admin, &d.at.data)
	f.BoolVar(&d.call, "call", false, "make one call of one token through each channel")
	asJSON := f.Bool("json", false, "print one JSON document")
	c.bindEnv("config", "listen", "admin", "data")
	c.run = func(ctx context.Context, _ []string) error {
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

// doctor makes the checks.
type doctor struct {
	p      *program
	at     adminFlags
	listen string
	call   bool

	findings []finding

	settings   settings
	source     *source            // nil if there is nothing that could be served
	components *config.Components // of the source
	target     *adminTarget       // nil if it is not known
	server     *adminClient       // nil if none runs
	absent     error              // why no server was found
	about      adminapi.Server    // of the server
}

func (d *doctor) add(check, result, format string, args ...any) {
	d.findings = append(d.findings, finding{check, result, fmt.Sprintf(format, args...)})
}

// addAll adds the rows of a check that was made beside others.
func (d *doctor) addAll(rows []finding) { d.findings = append(d.findings, rows...) }

// examine makes all checks. One that fails leaves the others to be made.
func (d *doctor) examine(ctx context.Context) {
	d.findServer(ctx)
	if d.server != nil {
		defer func() { _ = d.server.close() }()
	}
	d.checkConfiguration()
	d.checkVariables()
	if d.components != nil {
		defer func() { _ = d.components.Close() }()
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
			if _, err := fmt.Fprintf(d.p.stdout, "%-8s %-*s  %s\n", f.Result, width, f.Check, printable(f.Message, ' ')); err != nil {
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
	if d.target, err = d.at.target(d.p); err != nil {
		d.target = &adminTarget{data: d.at.data} // checkConfiguration tells why
		if d.target.data == "" {
			d.target.data = defaultData
		}
		d.absent = err
		if d.at.config == "" { // the file of this directory
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
	var none *noServerError
	switch {
	case d.server != nil && d.absent == nil:
		d.add("server", checkOK, "one runs: its admin API is at %s, its store is %s", d.server.host, d.about.Store)
	case errors.As(d.absent, &none) && (!d.target.explicit || readAddress(d.target.data) == ""):
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
	src, err := d.p.source(&d.settings)
	var wrong *config.Error
	switch {
	case errors.As(err, &wrong):
		for _, line := range wrong.Lines() {
			// What a server that runs was started with need not be set here.
			if d.server != nil && strings.Contains(line, "the environment variable ") && strings.HasSuffix(line, " is not set") {
				d.add("configuration", checkWarning, "%s here, and the server that runs has an environment of its own: its channels are not checked from here", line)
				continue
			}
			d.add("configuration", checkProblem, "%s", line)
		}
		d.settings.applyFile(&config.Config{})
		return
	case err != nil && d.at.config == "" && d.server != nil:
		d.add("configuration", checkWarning, "no file is named, and no vendor's variable is set here: name the server's file with --config to have it checked")
		d.settings.applyFile(&config.Config{})
		return
	case err != nil:
		d.add("configuration", checkProblem, "%v%s", err, d.initHint(err))
		d.settings.applyFile(&config.Config{})
		return
	}
	d.source = src
	d.settings.applyFile(src.config)
	switch {
	case src.file != "":
		d.add("configuration", checkOK, "%s is good: %s, billing %s", src.file, plural(len(src.config.Channels), "channel"), billingRow(src.config))
	default:
		d.add("configuration", checkOK, "no file: the variables make %s, and usage is counted", plural(len(src.config.Channels), "channel"))
	}
	for _, note := range src.notes {
		d.add("configuration", checkWarning, "%s", note)
	}
	if d.components, err = src.config.Build(nil); err != nil {
		d.add("configuration", checkProblem, "%v", err)
	}
}

// initHint says how a file is made that is not there.
func (d *doctor) initHint(err error) string {
	if errors.Is(err, fs.ErrNotExist) && d.at.config != "" {
		return ": `tollhouse init --config " + shellQuoted(d.at.config) + "` makes it"
	}
	return ""
}

// checkVariables says which of the vendors' variables are set, and whether they are used.
func (d *doctor) checkVariables() {
	var used, unused []string
	for i := range presets {
		name := presets[i].turnedOnBy()
		value, _ := d.p.env(name)
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
		if !slices.ContainsFunc(c.Channels, func(ch config.Channel) bool { return ch.Serves(id) || ch.Discover != nil }) {
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
