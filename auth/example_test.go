package auth_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// A key is minted, stored by its hash, and recognised when its holder sends it.
func ExampleKeys() {
	ctx := context.Background()
	key, token, err := auth.NewKey(auth.KeyOptions{Account: "acme", Name: "ci", Models: []string{"delta-k3"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := new(memory.Keys)
	if err := store.Add(ctx, key); err != nil {
		fmt.Println(err)
		return
	}
	keys := &auth.Keys{Store: store}
	keys.SetDefaults(auth.Limits{RPM: 60})

	p, err := keys.Authenticate(ctx, token.Reveal())
	fmt.Println(p.Account, p.Name, p.Limits.RPM, p.MayUse("delta-k3"), p.MayUse("alpha-image-2.0"), err)
	fmt.Println("printed, the token is", token)

	_ = store.SetDisabled(ctx, key.ID, true)
	_, err = keys.Authenticate(ctx, token.Reveal())
	fmt.Println(err)
	// Output:
	// acme ci 60 true false <nil>
	// printed, the token is [secret]
	// permission_denied: This API key is disabled.
}

// A request is counted, takes its slot and its tokens, and gives back what it
// did not use.
func ExampleMemoryLimiter() {
	ctx := context.Background()
	limiter := &auth.MemoryLimiter{Now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 20, 0, time.UTC) }}
	p := &auth.Principal{Account: "acme", Key: "key_1", Limits: auth.Limits{RPM: 60, TPM: 1000, MaxConcurrent: 1}}

	state, _ := limiter.Request(ctx, p)
	fmt.Println(state.Requests.Remaining, "requests left for", state.Requests.Reset)
	lease, state, _ := limiter.Acquire(ctx, p, "req_1", 800)
	fmt.Println(state.Tokens.Remaining, "tokens left while it runs")

	_, _, err := limiter.Acquire(ctx, p, "req_2", 100)
	fmt.Println(err, fault.From(err).RetryAfter)

	lease.Release(300)
	_, state, _ = limiter.Acquire(ctx, p, "req_2", 100)
	fmt.Println(state.Tokens.Remaining, "tokens left after both")
	// Output:
	// 59 requests left for 40s
	// 200 tokens left while it runs
	// rate_limit_exceeded: The limit of this key is reached: 1 requests at once (max_concurrent). Try again in 1 s. 1s
	// 600 tokens left after both
}
