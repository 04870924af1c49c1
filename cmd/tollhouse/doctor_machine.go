package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// The bounds below which the machine is reported.
const (
	spaceWarning = 1 << 30   // bytes free where the database is
	spaceProblem = 100 << 20 // a full disk refuses every request
	fewFiles     = 4096      // open files: half of them may be connections of clients
)

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
}

// openStore opens the store as it is, and changes nothing in it.
func (d *doctor) openStore(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
	defer cancel()
	o := store.Options{AsStored: true, Currency: billing.DefaultCurrency, Opening: 10 * time.Second}
	if d.source != nil {
		o.Count, o.Currency = !d.source.config.Prepaid(), d.source.config.Currency.Or(billing.DefaultCurrency)
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
			d.add(a.flag, checkOK, "%s is the running server's", a.address)
		case isAlive(ctx, a.address):
			d.add(a.flag, checkProblem, "another tollhouse listens on %s: choose another address with --%s, or name its data directory with --data", a.address, a.flag)
		default:
			d.add(a.flag, checkProblem, "%s cannot be listened on (%s): choose another address with --%s", a.address, oneLine(err.Error()), a.flag)
		}
	}
}

// isAlive reports whether what listens on an address answers as the API of this program
// does.
func isAlive(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+dialable(address)+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	var health struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&health) == nil && health.Status == "ok" && health.Checks != nil
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
		d.add("open files", checkWarning, "at most %d here, so that about %d clients can be connected: `ulimit -n 65536` before the start, or LimitNOFILE of its systemd unit", files, max((files-256)/2, 128))
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
