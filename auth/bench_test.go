package auth_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/store/memory"
)

func BenchmarkAuthenticate(b *testing.B) {
	m := new(memory.Keys)
	var token string
	var owned []auth.Key
	for range 1000 {
		k, s, err := auth.NewKey(auth.KeyOptions{Account: "acme", Models: []string{"delta-k3"}, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			b.Fatal(err)
		}
		owned, token = append(owned, k), s.Reveal()
	}
	if err := m.Replace(b.Context(), owned); err != nil {
		b.Fatal(err)
	}
	a := &auth.Keys{Store: m}
	a.SetDefaults(auth.Limits{RPM: 100})
	for name, token := range map[string]string{"known": token, "unknown": token[:len(token)-1] + "!"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = a.Authenticate(context.Background(), token)
			}
		})
	}
}

func BenchmarkLimiter(b *testing.B) {
	all := auth.Limits{RPM: 1 << 60, TPM: 1 << 60, MaxConcurrent: 1 << 60}
	for _, c := range []struct {
		name         string
		own, account auth.Limits
	}{
		{"without limits", auth.Limits{}, auth.Limits{}},
		{"key", all, auth.Limits{}},
		{"key and account", all, all},
	} {
		var l auth.MemoryLimiter
		l.SetAccountLimits(map[string]auth.Limits{"acme": c.account})
		p := limited(c.own)
		run := func(p *auth.Principal) {
			_, _ = l.Request(context.Background(), p)
			if lease, _, err := l.Acquire(context.Background(), p, "req_1", 100); err == nil {
				lease.Release(50)
			}
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run(p)
			}
		})
		b.Run(fmt.Sprint(c.name, ", parallel"), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					run(p)
				}
			})
		})
	}
}
