package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// addressFile is the name, in the data directory, of the file in which a running
// server writes the address of its admin API.
const addressFile = "admin-address"

// writeAddress records where the admin API of the running server is, so that a
// command that is given the data directory alone finds it. The file is replaced
// in one step: no command reads half of an address.
func writeAddress(dir, address string) error {
	f, err := os.CreateTemp(dir, addressFile+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(address + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, addressFile))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readAddress is the address that a server recorded, which may have been killed
// since; empty if there is none. A file that others can write is not read: they
// could have the admin token sent to an address of their own.
func readAddress(dir string) string {
	name := filepath.Join(dir, addressFile)
	if _, open := accessByOthers(name, writeAccess); open {
		return ""
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	address := strings.TrimSpace(string(data))
	if _, _, err := net.SplitHostPort(address); err != nil {
		return ""
	}
	return address
}

// removeAddress takes back what writeAddress recorded, unless another server has
// recorded its own since. The file is no more than a hint, so one that stays does
// no harm.
func removeAddress(dir, address string) {
	if readAddress(dir) == address {
		_ = os.Remove(filepath.Join(dir, addressFile))
	}
}
