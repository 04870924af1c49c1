package pgtest

import (
	"net"
	"net/url"

	"github.com/jackc/pgx/v5/pgconn"
)

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
