package postgres

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestTheHostsOfAnAddressAreTriedInTurn(t *testing.T) {
	for _, c := range []struct {
		address string
		n       int
		want    string
	}{
		{"postgres://u@a:1/x?sslmode=disable", 3, "[a:1]"},
		{"postgres://u@a:1,b:2,c:3/x?sslmode=disable", 0, "[a:1 b:2 c:3]"},
		{"postgres://u@a:1,b:2,c:3/x?sslmode=disable", 1, "[b:2 c:3 a:1]"},
		{"postgres://u@a:1,b:2,c:3/x?sslmode=disable", 5, "[c:3 a:1 b:2]"},
		{"postgres://u@a:1,b:2/x?sslmode=prefer", 1, "[b:2+TLS b:2 a:1+TLS a:1]"},
	} {
		config, err := pgx.ParseConfig(c.address)
		if err != nil {
			t.Fatal(err)
		}
		rotate(config, c.n)
		name := func(host string, port uint16, encrypted bool) string {
			if encrypted {
				return fmt.Sprintf("%s:%d+TLS", host, port)
			}
			return fmt.Sprintf("%s:%d", host, port)
		}
		got := []string{name(config.Host, config.Port, config.TLSConfig != nil)}
		for _, f := range config.Fallbacks {
			got = append(got, name(f.Host, f.Port, f.TLSConfig != nil))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s from %d: %v, want %s", c.address, c.n, got, c.want)
		}
	}
}

func TestManyAttemptsThatFailTogetherMoveTheFirstHostOnce(t *testing.T) {
	var first firstHost
	for range 8 {
		first.failed(0)
	}
	if n := first.moved.Load(); n != 1 {
		t.Errorf("the first host moved %d times", n)
	}
}
