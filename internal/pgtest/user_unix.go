//go:build unix

package pgtest

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// runAs is the user of programs that refuse to run as root; nil for the user of
// this process.
type runAs struct{ uid, gid int }

// unprivileged is another user where this process runs as root.
func unprivileged() (*runAs, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	return &runAs{uid, gid}, err
}

// own makes r the owner of a directory.
func (r *runAs) own(dir string) error {
	if r == nil {
		return nil
	}
	return os.Chown(dir, r.uid, r.gid)
}

// of makes a command run as r, in a process group of its own, so that an interrupt
// of the tests does not reach it.
func (r *runAs) of(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.gid)}
	}
}
