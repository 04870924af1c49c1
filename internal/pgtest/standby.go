package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Standby is the name under which a standby streams, for synchronous_standby_names.
const Standby = "standby"

// StartStandby starts a server that follows this one, until it is promoted.
func (s *Server) StartStandby() (*Server, error) {
	return start(func(standby *Server) error {
		from := fmt.Sprintf("host=%s user=test application_name=%s", s.dir, Standby)
		return standby.run("pg_basebackup", "-D", standby.data(), "-d", from, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	})
}

// NewStandby starts a standby that ends with the test.
func (s *Server) NewStandby(t testing.TB) *Server {
	t.Helper()
	standby, err := s.StartStandby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop("immediate") }) // it may be down
	return standby
}

// Promote makes a standby a primary.
func (s *Server) Promote() error { return s.run("pg_ctl", "-D", s.data(), "-w", "promote") }

// Require sets for which standbys commits wait, none with an empty text, and returns when
// they do.
func (s *Server) Require(t testing.TB, standbys string) {
	t.Helper()
	db := Open(t, s.URL)
	db.SetMaxIdleConns(0) // a new session has what the server has read
	execute := func(statement string) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	execute("ALTER SYSTEM SET synchronous_standby_names = '" + standbys + "'")
	execute("SELECT pg_reload_conf()")
	for read := "?"; read != standbys; {
		if err := db.QueryRowContext(t.Context(), "SHOW synchronous_standby_names").Scan(&read); err != nil {
			t.Fatal(err)
		}
	}
	execute("CHECKPOINT") // the process that makes it tells the others, and has read the settings before
}

// Kill ends all processes of the server at once, as a machine that loses its power.
func (s *Server) Kill() error {
	pidFile, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(pidFile), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	list, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return err
	}
	killed := kill(postmaster)
	for line := range strings.Lines(string(list)) {
		var pid, parent int
		if _, err := fmt.Sscan(line, &pid, &parent); err == nil && parent == postmaster {
			_ = kill(pid) // it may have ended
		}
	}
	return killed
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
