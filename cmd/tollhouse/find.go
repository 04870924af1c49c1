package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// adminFlags are the flags that say where the admin API and the store are.
type adminFlags struct{ config, admin, data string }

func (a *adminFlags) register(c *command) {
	addConfigFlag(c.flags, &a.config)
	addAdminFlags(c.flags, "the server's admin address `HOST:PORT`; off opens the store without a server", &a.admin, &a.data)
	c.bindEnv("config", "admin", "data")
}

// readAdmin reads the admin address as it is typed or as a banner prints it, which is with
// http:// before it.
func (a *adminFlags) readAdmin() error {
	address, _ := strings.CutPrefix(a.admin, "http://")
	address = strings.TrimSuffix(address, "/")
	if strings.ContainsAny(address, "/?#") || address == "" && a.admin != "" {
		return noAddress("admin")
	}
	a.admin = address
	return nil
}

// adminTarget is where a command sends its requests.
type adminTarget struct {
	named     string // the address that --admin or its variable gives, or off; empty for none
	admin     string // the address of a server that has recorded none, or off
	recorded  string // the address that a running server wrote in the data directory; empty for none
	data      string // the data directory, which holds the admin token
	store     string // the store's address
	config    string // the configuration file that says so; empty for none
	here      bool   // it is that of this directory, which no flag or variable names
	locations config.Locations
	liveOnly  bool // only a server is meant, never its store
}

// onlyServer reports whether the store is not opened where no server answers.
func (at *adminTarget) onlyServer() bool {
	return at.liveOnly || at.named != "" && at.named != adminOff
}

// target combines the flags, the environment, the file and the defaults. Beside an error it
// is what is known so far.
func (a *adminFlags) target(ctx context.Context, p *program) (at *adminTarget, err error) {
	at = &adminTarget{config: a.config, data: cmp.Or(a.data, defaultData)}
	nothing := *a == adminFlags{}
	switch err = a.readAdmin(); {
	case err != nil:
	case nothing:
		err = p.useFileHere(ctx, at)
	case a.config != "":
		at.locations, err = readLocations(a.config, p.env)
		err = p.fileError(a.config, err)
	}
	if err != nil {
		return at, err
	}
	at.named, at.admin = a.admin, dialable(cmp.Or(a.admin, at.locations.Admin, p.admin, defaultAdmin))
	at.data = cmp.Or(a.data, at.locations.Data, defaultData)
	at.store = config.StoreIn(at.data, at.locations.Store)
	// The recorded address counts only where nothing names one. With port 0 the
	// system chose the port.
	if named := cmp.Or(a.admin, at.locations.Admin); named == "" || strings.HasSuffix(named, ":0") {
		at.recorded = recordedAddress(at.data)
	}
	return at, nil
}

// find is the target of a command. It says which file is used that nothing names.
func (a *adminFlags) find(ctx context.Context, p *program) (*adminTarget, error) {
	at, err := a.target(ctx, p)
	if err == nil && at.here {
		p.sayFileHere()
	}
	return at, err
}

// sayFileHere says on stderr that the file of this directory is used: stdout is for what the
// command was called for.
func (p *program) sayFileHere() {
	fmt.Fprintf(p.stderr, "Using %s in this directory; --config names another file.\n", defaultFile)
}

// readLocations reads the locations of a file.
func readLocations(name string, env config.Env) (at config.Locations, err error) {
	data, err := os.ReadFile(name)
	if err == nil {
		at, err = config.ReadLocations(name, data, env)
	}
	return at, err
}

// useFileHere takes the locations of the file of this directory, under the name that init gives
// it, unless a server runs with the default data directory. Nothing names that file: one of a
// cloned repository, or of another user's directory, must not have the admin token, or a secret
// of the environment, sent anywhere. A file that could is an error.
func (p *program) useFileHere(ctx context.Context, at *adminTarget) error {
	info, err := os.Lstat(defaultFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if running, _ := p.recordedServer(ctx, defaultData); running != "" {
		return nil
	}
	if err == nil {
		err = trustFile(defaultFile, info, os.Geteuid())
	}
	var found config.Locations
	if err == nil {
		found, err = readLocationsHere(defaultFile)
	}
	_, wrong := errors.AsType[*config.Error](err)
	if err != nil && !wrong {
		return fmt.Errorf("%s in this directory is not used unless --config names it: %w; use --config %[1]s if it is the right one", defaultFile, err)
	}
	at.config, at.here, at.locations = defaultFile, true, found
	return err // of a file that would be wrong under its name too
}

// readLocationsHere reads locations that are all on this machine, without variables: the
// values of those would go to a resolver, or to any server that answers.
func readLocationsHere(name string) (config.Locations, error) {
	variable := ""
	at, err := readLocations(name, func(name string) (string, bool) { variable = name; return "", true })
	switch {
	case variable != "":
		return at, fmt.Errorf("the location of its server or store depends on the variable %s", variable)
	case err != nil:
		return at, err
	case at.Admin != adminOff && !isLoopback(dialable(cmp.Or(at.Admin, defaultAdmin))):
		return at, errors.New("its admin address is not a loopback address such as " + defaultAdmin)
	case at.Store != "" && at.Store != config.Memory && !strings.HasPrefix(at.Store, config.SQLite):
		return at, errors.New("its store is a database server")
	}
	return at, nil
}

// noServerError says that no server was found: nothing answers, or nothing of it is here.
// Another error of connectTo is of something that is there and is not the server meant.
type noServerError struct {
	message string
	cause   error // nil for none
}

func (e *noServerError) Error() string {
	if e.cause == nil {
		return e.message
	}
	return fmt.Sprintf("%s (%v)", e.message, e.cause)
}

func (e *noServerError) Unwrap() error { return e.cause }

// connect finds the server that has the store open, and opens the store itself if
// there is none. It changes nothing before it has found one of them. With readOnly
// no store is created.
func (p *program) connect(ctx context.Context, at *adminTarget, readOnly bool) (*adminClient, error) {
	client, absent := p.connectServer(ctx, at)
	if _, late := errors.AsType[*timeoutError](absent); absent == nil || at.onlyServer() || late {
		return client, absent
	}
	if at.store == config.Memory {
		return nil, fmt.Errorf("%w; a store in memory exists only in its server", absent)
	}
	if path, missing := at.missingFile(); missing && readOnly {
		return nil, fmt.Errorf("there is no database at %s yet (`tollhouse serve` or `tollhouse account create` creates it), and %w", path, absent)
	}
	return p.openStoreDirectly(ctx, at, absent)
}

// missingFile reports whether the store is a file that is not there.
func (at *adminTarget) missingFile() (path string, missing bool) {
	path, isFile := strings.CutPrefix(at.store, config.SQLite)
	_, err := os.Stat(path)
	return path, isFile && errors.Is(err, fs.ErrNotExist)
}

// connectServer connects to the server at the recorded address, otherwise to that at the
// configured one. The recorded address may be of a server that was killed, so the first attempt
// gets half of the time, and its error counts only if something is there.
func (p *program) connectServer(ctx context.Context, at *adminTarget) (*adminClient, error) {
	var first error // of the recorded address
	if at.recorded != "" {
		bounded, cancel := context.WithTimeout(ctx, p.adminTimeout()/2)
		defer cancel()
		var client *adminClient
		if client, first = p.connectTo(bounded, at, at.recorded); first == nil {
			return client, nil
		}
	}
	client, err := p.connectTo(ctx, at, at.admin)
	none, absent := errors.AsType[*noServerError](err)
	if !absent {
		return client, err
	}
	if _, empty := errors.AsType[*noServerError](first); first != nil && !empty {
		return nil, fmt.Errorf("the data directory %s names a server that cannot be used: %v; and %v", at.data, first, err)
	}
	if recorded := recordedAddress(at.data); at.named != "" && recorded != "" && recorded != at.admin {
		return nil, &noServerError{fmt.Sprintf("no server answers at %s; the data directory %s says that one runs at %s: leave --admin out", at.admin, at.data, recorded), none.cause}
	}
	return nil, err
}

// connectTo connects to the server at an address if it is the one that is meant:
// it takes the token of the data directory and has the file's store open.
func (p *program) connectTo(ctx context.Context, at *adminTarget, address string) (*adminClient, error) {
	client, err := p.askServer(ctx, at.data, address)
	if err != nil {
		return nil, err
	}
	if has, want := client.server.Store, storeName(at.store); at.config != "" && has != want {
		return nil, fmt.Errorf("the server at %s keeps its accounts in %s, and the configuration says %s: name the right admin address with --admin", address, has, want)
	}
	return client, nil
}

// askServer asks the server at an address what it is, with the token of a data directory.
func (p *program) askServer(ctx context.Context, data, address string) (*adminClient, error) {
	if address == adminOff {
		return nil, &noServerError{"the admin API is off: name a running server's address with --admin", nil}
	}
	token, err := readToken(data)
	if err != nil {
		return nil, tokenError(data, err)
	}
	direct := &http.Transport{DisableKeepAlives: true} // no proxy: the token is for the server alone
	client := &adminClient{http: direct, host: address, token: token, timeout: p.adminTimeout(), close: func() error { return nil }}
	return client, client.do(ctx, http.MethodGet, "/admin/v1/server", nil, &client.server)
}

// openStoreDirectly opens the store and serves its admin API to this process
// alone, without a socket.
func (p *program) openStoreDirectly(ctx context.Context, at *adminTarget, absent error) (*adminClient, error) {
	s, err := p.openStored(ctx, at)
	if errors.Is(err, sqlite.ErrLocked) {
		return nil, fmt.Errorf("a server has %s open but cannot be reached, as with `--admin off` or another --data: restart it with an admin address, or stop it and repeat the command; %w", storeName(at.store), absent)
	}
	if err != nil {
		return nil, err
	}
	token := secret.New(rand.Text())
	admin := server.NewAdmin(server.AdminOptions{Token: token, Accounts: s.ledger, Keys: s.keys, Webhooks: s.webhooks, Store: s.name, Now: p.now})
	return &adminClient{http: server.Client(admin).Transport, host: "the.store", token: token, timeout: p.adminTimeout(), close: s.close}, nil
}

// openStored opens a store as the last server left it.
func (p *program) openStored(ctx context.Context, at *adminTarget) (*storage, error) {
	return p.openStorage(ctx, at.store, store.Options{
		Count: at.locations.Billing == config.Count, Currency: cmp.Or(at.locations.Currency, billing.DefaultCurrency), AsStored: true,
	})
}

// The files that a server keeps in its data directory beside the database: the token of its
// admin API and, while it runs, the address.
const (
	tokenFile   = "admin-token"
	addressFile = "admin-address"
)

// readToken reads the admin token of a data directory.
func readToken(dir string) (secret.String, error) {
	name := filepath.Join(dir, tokenFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return secret.String{}, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return secret.String{}, err
	}
	token := strings.TrimSpace(string(data))
	switch {
	case info.Mode().Perm()&anyAccess != 0 && runtime.GOOS != "windows":
		return secret.String{}, fmt.Errorf("others can read %s: `chmod 600 %s`, or delete it to have a new one made", name, name)
	case len(token) < 20:
		return secret.String{}, fmt.Errorf("%s holds no token: delete it to have a new one made", name)
	}
	return secret.New(token), nil
}

// ensureToken reads the admin token, or makes one that only its owner can read.
func ensureToken(dir string) (secret.String, error) {
	token, err := readToken(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return token, err
	}
	f, err := os.OpenFile(filepath.Join(dir, tokenFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) { // another process was first
		return readToken(dir)
	}
	if err != nil {
		return token, err
	}
	made := "admin-" + rand.Text() + rand.Text()
	_, err = f.WriteString(made + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return token, err
	}
	return secret.New(made), nil
}

// tokenError says how to come to the token of a server that this process cannot read.
func tokenError(data string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &noServerError{fmt.Sprintf("there is no admin token in %s: name the running server's data directory with --data, or its file with --config; for a server in a container, run the command there (`docker exec NAME tollhouse ...`)", data), nil}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin token in %s belongs to another user: run the command as the server's user, for example with `sudo -u USER` (%w)", data, err)
	}
	return err
}

// adminToken is `admin token`, for programs that call the admin API themselves.
func adminToken(p *program) *command {
	c := newCommand("admin token", "print the token of the admin API; create it if there is none")
	c.examples = []string{
		"tollhouse admin token",
		`curl -H "Authorization: Bearer $(tollhouse admin token)" http://127.0.0.1:8081/admin/v1/accounts`,
	}
	var at adminFlags
	at.register(c)
	c.run = func(ctx context.Context, _ []string) error {
		found, err := at.find(ctx, p)
		if err != nil {
			return err
		}
		token, err := ensureToken(found.data)
		if err == nil {
			_, err = fmt.Fprintln(p.stdout, token.Reveal())
		}
		return err
	}
	return c
}

// writeAddress records where the admin API of the running server is, so that a
// command that is given the data directory alone finds it.
func writeAddress(dir, address string) error {
	return writeFile(filepath.Join(dir, addressFile), address+"\n", true)
}

// writeFile writes a file that only its owner can read, in one step: nobody reads half of
// it. Without replace an existing file is an [fs.ErrExist].
func writeFile(name, text string, replace bool) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	switch err = errors.Join(err, f.Close()); {
	case err != nil:
	case replace:
		if err = os.Rename(f.Name(), name); err == nil {
			return nil
		}
	default:
		err = os.Link(f.Name(), name) // which does not replace
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// recordedAddress is the address that a server recorded, which may have been killed since;
// empty for none. The directory may be that of a cloned repository, which must not have the
// token that was made there, or one that its token is a link to, sent anywhere: a server records
// an address of its own machine, and nobody else can write the record.
func recordedAddress(dir string) string {
	name := filepath.Join(dir, addressFile)
	if _, open := accessByOthers(name, writeAccess); open {
		return ""
	}
	if token, err := os.Lstat(filepath.Join(dir, tokenFile)); err == nil && !token.Mode().IsRegular() {
		return ""
	}
	data, err := os.ReadFile(name)
	if address := strings.TrimSpace(string(data)); err == nil && isThisMachine(address) {
		return address
	}
	return ""
}

// recordedServer is the address that a data directory has recorded, if the server there
// runs, and what that server is; empty if none does. A program that has taken the port of a
// server that was killed may never answer.
func (p *program) recordedServer(ctx context.Context, data string) (address string, about adminapi.Server) {
	if address = recordedAddress(data); address == "" {
		return "", about
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := p.askServer(ctx, data, address)
	if err != nil {
		return "", about
	}
	return address, client.server
}

// removeAddress removes what writeAddress recorded, unless another server has
// recorded its own since: its commands would no longer find it. One that stays, as that of
// a server that was killed, does no harm: a command asks who is there.
func removeAddress(dir, address string) {
	if recordedAddress(dir) == address {
		_ = os.Remove(filepath.Join(dir, addressFile))
	}
}
