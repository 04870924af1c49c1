package pgtest

import (
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Network is a way to a database over TCP. While it is silent it swallows all that is sent
// and closes no connection.
type Network struct{ Silent atomic.Bool }

// Through returns the address at which the database of a URL is reached through n, until the
// test ends.
func (n *Network) Through(t testing.TB, address string) string {
	t.Helper()
	return Through(t, address, n.carry)
}

func (n *Network) carry(to, from net.Conn, _ bool) {
	buffer := make([]byte, 64<<10)
	for {
		read, err := from.Read(buffer)
		if err != nil {
			return
		}
		out := io.Writer(to)
		if n.Silent.Load() {
			out = io.Discard
		}
		if _, err := out.Write(buffer[:read]); err != nil {
			return
		}
	}
}

// Through is [Between] until the test ends.
func Through(t testing.TB, address string, carry func(to, from net.Conn, answers bool)) string {
	t.Helper()
	between, stop, err := Between(address, carry)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	return between
}

// Between listens on a TCP port until stop, and returns the address there of the database
// that a URL names. Of each connection carry moves what one side sends to the other, until
// it ends; answers says that the database is the one that sends.
func Between(address string, carry func(to, from net.Conn, answers bool)) (between string, stop func() error, err error) {
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return "", nil, err
	}
	network, server := pgconn.NetworkAddress(config.Host, config.Port)
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			database, err := net.Dial(network, server)
			if err != nil {
				_ = client.Close()
				continue
			}
			both := func(to, from net.Conn, answers bool) {
				defer func() { _, _ = to.Close(), from.Close() }()
				carry(to, from, answers)
			}
			go both(database, client, false)
			go both(client, database, true)
		}
	}()
	q := u.Query()
	q.Del("host")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = listener.Addr().String(), q.Encode()
	return u.String(), listener.Close, nil
}
