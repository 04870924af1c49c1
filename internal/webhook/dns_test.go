package webhook

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// names is a DNS server on the loopback. It answers the nth question for the
// addresses of a name by what answer gives.
type names struct {
	answer func(name string, six bool, n int) []string

	mu    sync.Mutex
	asked map[string]int
}

// serve returns a resolver that asks the server alone.
func (s *names) serve(t *testing.T) *net.Resolver {
	t.Helper()
	s.asked = make(map[string]int)
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for packet := make([]byte, 1500); ; {
			n, from, err := socket.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := s.reply(packet[:n]); reply != nil {
				_, _ = socket.WriteTo(reply, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

// reply answers one question (RFC 1035, 4.1).
func (s *names) reply(question []byte) []byte {
	const a, aaaa = 1, 28
	var labels []string
	at := 12
	for at < len(question) && question[at] != 0 {
		end := at + 1 + int(question[at])
		labels, at = append(labels, string(question[at+1:end])), end
	}
	end := at + 5
	if end > len(question) {
		return nil
	}
	kind := binary.BigEndian.Uint16(question[at+1:])
	name := strings.ToLower(strings.Join(labels, "."))
	var found []string
	if kind == a || kind == aaaa {
		key := name + map[uint16]string{a: " A", aaaa: " AAAA"}[kind]
		s.mu.Lock()
		s.asked[key]++
		n := s.asked[key]
		s.mu.Unlock()
		found = s.answer(name, kind == aaaa, n)
	}
	reply := append([]byte{}, question[:2]...)
	reply = append(reply, 0x81, 0x80, 0, 1, 0, byte(len(found)), 0, 0, 0, 0)
	reply = append(reply, question[12:end]...)
	for _, text := range found {
		ip := netip.MustParseAddr(text).AsSlice()
		reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(ip)))
		reply = append(reply, ip...)
	}
	return reply
}

func (s *names) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[key]
}
