//go:build unix

package pgtest

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// runAs is whom programs run as that refuse to run as root; nil for whoever
// this process is.
type runAs struct{ uid, gid int }

// unprivileged is somebody else where this process is root.
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

// own gives a directory away.
func (r *runAs) own(dir string) error {
	if r == nil {
		return nil
	}
	return os.Chown(dir, r.uid, r.gid)
}

// of makes a command run as r, in a process group of its own: an interrupt of
// the tests is not the server's.
func (r *runAs) of(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.gid)}
	}
}
