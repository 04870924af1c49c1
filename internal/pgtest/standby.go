package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Standby is the name under which a standby streams, for synchronous_standby_names.
const Standby = "standby"

// StartStandby starts a server that follows this one, until it is promoted.
func (s *Server) StartStandby() (*Server, error) {
	return start(s.durable, func(standby *Server) error {
		from := fmt.Sprintf("host=%s user=test application_name=%s", s.dir, Standby)
		return standby.run("pg_basebackup", "-D", standby.data(), "-d", from, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	})
}

// NewStandby starts a standby that ends with the test, and returns when it streams.
func (s *Server) NewStandby(t testing.TB) *Server {
	t.Helper()
	standby, err := s.StartStandby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop("immediate") }) // it may be down
	db := Open(t, s.URL)
	for streams := false; !streams; {
		const query = "SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE state = 'streaming')"
		if err := db.QueryRowContext(t.Context(), query).Scan(&streams); err != nil {
			t.Fatal(err)
		}
	}
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
	children := childrenOf(postmaster)
	killed := kill(postmaster)
	for _, pid := range children {
		_ = kill(pid) // it may have ended
	}
	return killed
}

// childrenOf are the processes that a process has started. Where there is no /proc it
// finds none: those of Postgres end by themselves a moment after their parent.
func childrenOf(parent int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, of int
		var state string
		_, after, _ := strings.Cut(string(stat), ") ") // behind the program's name
		if _, err := fmt.Sscan(after, &state, &of); err != nil || of != parent {
			continue
		}
		if pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
