package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

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
	if err != nil {
		return config.Locations{}, true, fmt.Errorf("%s in this directory is not used without being named: %w; name it with --config %s if it is the right one", name, err, name)
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
		return errors.New("it is a link, or no file")
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
		return at, fmt.Errorf("where its server and its store are depends on the variable %s", variable)
	case err != nil:
		return at, err
	case !onThisMachine(at.Admin.Or(defaultAdmin)):
		return at, errors.New("its admin is no loopback address such as " + defaultAdmin)
	case at.Store.Value != "" && at.Store.Value != config.Memory && !strings.HasPrefix(at.Store.Value, config.SQLite):
		return at, errors.New("its store is a database server")
	}
	return at, nil
}

// onThisMachine reports whether what is sent to an admin address stays here.
func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(dialable(address))
	ip := net.ParseIP(host)
	return address == adminOff || err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
