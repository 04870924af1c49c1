package jwt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// How often the provider is asked for its keys.
const (
	fetchInterval = time.Second      // at most, for keys that are not known
	longestWait   = 32 * time.Second // between two that fail
	refreshAfter  = time.Hour        // so that a key that was withdrawn is forgotten
	maxKeysSize   = 1 << 20          // bytes of an answer
)

// keys is the oidc.KeySet of a provider. It keeps what it knows while the provider fails.
type keys struct {
	url    string
	client *http.Client // with a pacer
	now    func() time.Time

	mu      sync.Mutex
	current *oidc.RemoteKeySet
	since   time.Time // when it began
}

func newKeys(url string, client *http.Client, now func() time.Time) *keys {
	p := &pacer{next: client.Transport, now: now}
	if p.next == nil {
		p.next = http.DefaultTransport
	}
	paced := *client
	paced.Transport = p
	k := &keys{url: url, client: &paced, now: now}
	k.current, k.since = k.fresh(), now()
	return k
}

// fresh is a set that knows no key yet.
func (k *keys) fresh() *oidc.RemoteKeySet {
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), k.client), k.url)
}

// fetchError is where a context has the place for why keys could not be fetched.
type fetchError struct{}

// VerifySignature implements [oidc.KeySet].
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	k.mu.Lock()
	set, old := k.current, k.now().Sub(k.since) >= refreshAfter
	k.mu.Unlock()
	if old {
		next := k.fresh()
		payload, err := next.VerifySignature(ctx, token)
		if !unfetched(err) {
			k.mu.Lock()
			k.current, k.since = next, k.now()
			k.mu.Unlock()
			return payload, err
		}
	}
	payload, err := set.VerifySignature(ctx, token)
	if unfetched(err) {
		if errors.Is(err, errTooSoon) {
			return nil, errors.New("the key is not among those of the provider")
		}
		if place, ok := ctx.Value(fetchError{}).(*error); ok {
			*place = err
		}
	}
	return payload, err
}

// unfetched reports whether a set's error says that it could not fetch its keys. The package has
// no error of its own for it.
func unfetched(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "fetching keys") }

// pacer is a transport that asks at most once in fetchInterval, and less often while that fails.
type pacer struct {
	next http.RoundTripper
	now  func() time.Time

	mu     sync.Mutex
	after  time.Time // before which nothing is asked
	failed error     // of the last request
	wait   time.Duration
}

// errTooSoon says that the provider was asked a moment ago, and answered.
var errTooSoon = errors.New("the provider was asked for its keys a moment ago")

// RoundTrip asks the provider, or fails as the last request did.
func (p *pacer) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	now := p.now()
	if now.Before(p.after) {
		defer p.mu.Unlock()
		if p.failed != nil {
			return nil, p.failed
		}
		return nil, errTooSoon
	}
	p.after = now.Add(max(p.wait, fetchInterval)) // of others meanwhile
	p.mu.Unlock()

	response, err := p.next.RoundTrip(r)
	if err == nil && response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		err = fmt.Errorf("the provider answered the request for its keys with status %d", response.StatusCode)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed = err; err != nil {
		p.wait = min(max(2*p.wait, fetchInterval), longestWait)
		p.after = p.now().Add(p.wait)
		return nil, err
	}
	p.wait = 0
	response.Body = &limited{io.LimitReader(response.Body, maxKeysSize), response.Body}
	return response, nil
}

// limited is a body of bounded length.
type limited struct {
	io.Reader
	io.Closer
}
