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
	addAdminFlags(c.flags, "the server's admin address, HOST:PORT; off opens the store without a server", &a.admin, &a.data)
	c.bindEnv("config", "admin", "data")
}

// nothing reports whether no flag or variable says where the server and the store are.
func (a *adminFlags) nothing() bool { return a.config == "" && a.admin == "" && a.data == "" }

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
	admin    string // the admin API's address, or off
	explicit bool   // only this server is meant, never its store
	byFlag   bool   // its address was given, and is not the file's or the default
	recorded string // the address that a running server wrote in the data directory; empty for none
	data     string // the data directory, which holds the admin token
	store    string // the store's address
	fromFile bool   // a configuration file says which store it is
	here     bool   // it is that of this directory, which no flag or variable names
	file     config.Locations
}

// target combines the flags, the environment, the file and the defaults. Where nothing
// is given, and no server runs with the default data directory, a file in this directory
// under the name that init gives it says where its server and its store are, if [fileHere]
// trusts it.
func (a *adminFlags) target(ctx context.Context, p *program) (*adminTarget, error) {
	if err := a.readAdmin(); err != nil {
		return nil, err
	}
	name, here := a.config, false
	var file config.Locations
	switch {
	case name != "":
		data, err := os.ReadFile(name)
		if err == nil {
			file, err = config.ReadLocations(name, data, p.env)
		}
		if err != nil {
			return nil, p.fileError(name, err)
		}
	case a.nothing():
		found, there, err := fileHere(defaultFile)
		if !there {
			break
		}
		if running, _ := p.recordedServer(ctx, defaultData); running != "" {
			break
		}
		if err != nil {
			return nil, err
		}
		name, here, file = defaultFile, true, found
	}
	at := &adminTarget{
		admin: dialable(cmp.Or(a.admin, file.Admin, p.admin, defaultAdmin)), explicit: a.admin != "" && a.admin != adminOff, byFlag: a.admin != "",
		data: cmp.Or(a.data, file.Data, defaultData), fromFile: name != "", here: here, file: file,
	}
	at.store = config.StoreIn(at.data, file.Store)
	// The recorded address counts only where nothing names one. With port 0 the
	// system chose the port.
	if named := cmp.Or(a.admin, file.Admin); named == "" || strings.HasSuffix(named, ":0") {
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

// sayFileHere says that the file of this directory is used, which no flag or variable names.
// It is said on stderr: stdout is for what the command was called for.
func (p *program) sayFileHere() {
	fmt.Fprintf(p.stderr, "Using %s in this directory; --config names another file.\n", defaultFile)
}

// fileHere reads the locations of the file of this directory, which no flag or variable names: that of
// a cloned repository, or of another user's directory, must not have the admin token, or
// a secret of the environment, sent anywhere. A file that could is an error, and found
// tells one that is not there from it.
func fileHere(name string) (at config.Locations, found bool, err error) {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return at, false, nil
	}
	if err == nil {
		err = trustFile(name, info, os.Geteuid())
	}
	if err == nil {
		at, err = readLocationsHere(name)
	}
	if _, wrong := errors.AsType[*config.Error](err); wrong { // which it would be under its name too
		return config.Locations{}, true, err
	}
	if err != nil {
		return config.Locations{}, true, fmt.Errorf("%s in this directory is not used unless --config names it: %w; use --config %s if it is the right one", name, err, name)
	}
	return at, true, nil
}

// trustFile refuses a file that anybody but the user of that id and root can change or
// replace. A sticky directory, such as /tmp, has files of everybody.
func trustFile(name string, info fs.FileInfo, user int) error {
	dir := filepath.Dir(name)
	of, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is a link, or not a regular file")
	case ownedByNeither(info, user):
		return errors.New("it belongs to another user")
	case ownedByNeither(of, user):
		return errors.New("its directory belongs to another user")
	}
	if mode, open := accessByOthers(name, writeAccess); open {
		return fmt.Errorf("others can write to it (mode %04o)", mode)
	}
	if mode, open := accessByOthers(dir, writeAccess); open {
		return fmt.Errorf("others can write to its directory (mode %04o)", mode)
	}
	return nil
}

// ownedByNeither reports whether a file belongs neither to the user nor to root.
func ownedByNeither(info fs.FileInfo, user int) bool {
	owner, _ := ownedByOther(info)
	return owner != 0 && owner != user
}

// readLocationsHere reads locations that are all on this machine, without variables: the
// values of those would go to a resolver, or to any server that answers.
func readLocationsHere(name string) (config.Locations, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return config.Locations{}, err
	}
	variable := ""
	at, err := config.ReadLocations(name, data, func(name string) (string, bool) { variable = name; return "", true })
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
	if _, late := errors.AsType[*timeoutError](absent); absent == nil || at.explicit || late {
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

// connectServer connects to the server at the recorded address, otherwise to that
// at the configured one. The recorded address may be of a server that was killed,
// so the error returned is that of the configured one, unless nothing is there, and the
// first attempt gets half of the time: what listens there now may never answer.
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
	if err == nil {
		return client, nil
	}
	_, late := errors.AsType[*timeoutError](first)
	_, empty := errors.AsType[*noServerError](first)
	none, absent := errors.AsType[*noServerError](err)
	switch recorded := readAddress(at.data); {
	case late:
		return nil, fmt.Errorf("the server at %s, which the data directory names, did not answer in time, and %w", at.recorded, err)
	case absent && first != nil && !empty:
		return nil, first
	case absent && at.byFlag && recorded != "" && recorded != at.admin:
		return nil, &noServerError{fmt.Sprintf("no server answers at %s; the data directory %s says that one runs at %s: leave --admin out", at.admin, at.data, recorded), none.cause}
	}
	return nil, err
}

// connectTo connects to the server at an address if it is the one that is meant:
// it takes the token of the data directory and has the file's store open.
func (p *program) connectTo(ctx context.Context, at *adminTarget, address string) (*adminClient, error) {
	client, about, err := p.askServer(ctx, at.data, address)
	if err != nil {
		return nil, err
	}
	if want := storeName(at.store); at.fromFile && about.Store != want {
		return nil, fmt.Errorf("the server at %s keeps its accounts in %s, and the configuration says %s: name the right admin address with --admin", address, about.Store, want)
	}
	return client, nil
}

// recordTimeout is how long a server may take to answer whether it has the record of its
// data directory. A program that has taken the port of one that was killed may never answer.
const recordTimeout = 2 * time.Second

// recordedAddress is the address that a data directory has recorded; empty for none. A server
// records an address of its own machine. The directory of a cloned repository may have any
// other, which must not get the token that was made there.
func recordedAddress(data string) string {
	if address := readAddress(data); isThisMachine(address) {
		return address
	}
	return ""
}

// recordedServer is the address that a data directory has recorded, if the server there
// runs, and what that server is; empty if none does.
func (p *program) recordedServer(ctx context.Context, data string) (address string, about adminapi.Server) {
	if address = recordedAddress(data); address == "" {
		return "", about
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	_, about, err := p.askServer(ctx, data, address)
	if err != nil {
		return "", about
	}
	return address, about
}

// askServer asks the server at an address what it is, with the token of a data directory.
func (p *program) askServer(ctx context.Context, data, address string) (*adminClient, adminapi.Server, error) {
	var about adminapi.Server
	if address == adminOff {
		return nil, about, &noServerError{"the admin API is off: name a running server's address with --admin", nil}
	}
	token, err := readToken(data)
	if err != nil {
		return nil, about, tokenError(data, err)
	}
	direct := &http.Transport{DisableKeepAlives: true} // no proxy: the token is for the server alone
	client := &adminClient{http: direct, host: address, token: token, timeout: p.adminTimeout(), close: func() error { return nil }}
	if err := client.do(ctx, http.MethodGet, "/admin/v1/server", nil, &about); err != nil {
		return nil, about, err
	}
	return client, about, nil
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
		Count: at.file.Billing == config.Count, Currency: cmp.Or(at.file.Currency, billing.DefaultCurrency), AsStored: true,
	})
}
