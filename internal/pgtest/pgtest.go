// Package pgtest starts a Postgres for tests, from the installed programs.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that makes schemas
)

// Schema is the address of an empty schema of a Postgres database, dropped
// when the test ends. The server is the one that TOLLHOUSE_TEST_POSTGRES names,
// or one that is started from the installed programs and serves all tests of
// the process. Where there is neither, the test fails if CI is "true" and is
// skipped otherwise.
func Schema(t testing.TB) string {
	t.Helper()
	server, err := postgresServer()
	require(t, err)
	return newSchema(t, server.URL)
}

// NewServer starts a server of the test's own, which it may stop and start again, and
// ends it with the test. Where that is not possible it does as Schema does.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := start(false, (*Server).initialize)
	require(t, err)
	t.Cleanup(func() { _ = s.Stop("immediate") }) // it may be down
	return s
}

// require ends the test if no server could be started.
func require(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("no Postgres to test with: %v", err)
	default:
		t.Skipf("NOT TESTED, no Postgres: %v", err)
	}
}

// Open opens a database until the test ends, to read and write it beside what is tested.
func Open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// postgresServer is the one Postgres of the process, started if need be.
var postgresServer = sync.OnceValues(func() (*Server, error) {
	if named := os.Getenv("TOLLHOUSE_TEST_POSTGRES"); named != "" {
		return &Server{URL: named}, nil
	}
	return start(false, (*Server).initialize)
})

// newSchema makes a schema and the address at which it is the default.
func newSchema(t testing.TB, server string) string {
	t.Helper()
	db, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.schemata").Scan(&n); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), n)
	if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		db, err := sql.Open("pgx", server)
		if err != nil {
			return
		}
		defer func() { _ = db.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = db.ExecContext(ctx, "DROP SCHEMA "+name+" CASCADE") // the next test has its own
	})
	return withParameter(server, "search_path", name)
}

// withParameter adds a setting to an address, a URL or a list of words.
func withParameter(address, name, value string) string {
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return address + " " + name + "=" + value
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// Server is a Postgres that was started for tests.
type Server struct {
	// URL is its address, on a socket in its own directory.
	URL     string
	durable bool // it waits for its disk
	bin     string
	dir     string
	user    *runAs
	hold    *os.File // closed when the process ends: that ends the server
}

// Start makes a database in a temporary directory and starts a server on it. The server runs
// until Stop, or until this process ends. The directory then goes too, even if only the
// address was kept.
func Start() (*Server, error) { return start(true, (*Server).initialize) }

func (s *Server) initialize() error {
	return s.run("initdb", "-D", s.data(), "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
}

// start starts a server on the data that fill makes. One that is not durable does not wait
// for its disk: what it has written outlives its processes all the same.
func start(durable bool, fill func(*Server) error) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, durable: durable}
	if s.user, err = unprivileged(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "tollhouse-postgres-"); err != nil {
		return nil, err
	}
	if err := s.user.own(s.dir); err != nil {
		return nil, err
	}
	if err := fill(s); err != nil {
		return nil, err
	}
	if err := s.watch(); err != nil {
		return nil, err
	}
	s.URL = "postgres://test@/postgres?host=" + url.QueryEscape(s.dir)
	return s, s.Start()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Start starts the server and waits until it answers.
func (s *Server) Start() error {
	options := "-c listen_addresses='' -c max_connections=200 -c unix_socket_directories=" + s.dir
	if !s.durable {
		options += " -c fsync=off -c full_page_writes=off"
	}
	return s.run("pg_ctl", "-D", s.data(), "-w", "-t", "60", "-l", filepath.Join(s.dir, "log"), "-o", options, "start")
}

// Stop ends the server: "fast" ends its connections, "immediate" is a crash.
func (s *Server) Stop(mode string) error {
	return s.run("pg_ctl", "-D", s.data(), "-w", "-m", mode, "stop")
}

func (s *Server) run(program string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	s.user.of(cmd)
	out, err := os.Create(filepath.Join(s.dir, program+".out"))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out // a pipe would be kept open by the server
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w\n%s", program, err, said)
	}
	return nil
}

// watch starts a shell that ends the server when this process has ended,
// however it does.
func (s *Server) watch() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command("/bin/sh", "-c", `cat; "$0" -D "$1/data" -m immediate stop; rm -rf "$1"`, filepath.Join(s.bin, "pg_ctl"), s.dir)
	cmd.Stdin = r
	s.user.of(cmd)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, w.Close())
	}
	s.hold = w
	go func() {
		_ = cmd.Wait()
		_ = w.Close() // only here: a file that nothing refers to is closed when memory is cleared
	}()
	return nil
}

// programs is the directory of Postgres's programs.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path) // the others lie beside the program, not beside its link
		return filepath.Dir(path), err
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("initdb is neither on PATH nor in /usr/lib/postgresql; install Postgres or set TOLLHOUSE_TEST_POSTGRES")
	}
	return filepath.Dir(found[len(found)-1]), nil
}
