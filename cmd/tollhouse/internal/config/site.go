package config

import (
	"io"
	"slices"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// site is a channel's upstream and what it was made of.
type driverInstance struct {
	upstream.Upstream
	channel *Channel
}

// site is that of before where it would be made of the same, so that a reload
// costs no connection; else a new one.
func (c *Channel) instance(before *Components) (driverInstance, error) {
	if before != nil {
		if s, ok := before.instances[c.Name]; ok && s.channel.sameInstance(c) {
			return s, nil
		}
	}
	up := c.Upstream
	if up == nil {
		var err error
		if up, err = drivers[c.Driver](c); err != nil {
			return driverInstance{}, err
		}
	}
	return driverInstance{up, c}, nil
}

// sameSite reports whether both channels are one vendor, reached in one way by
// the same keys.
func (c *Channel) sameInstance(d *Channel) bool {
	same := func(a, b secret.String) bool { return a.Reveal() == b.Reveal() }
	own := c.Upstream != nil || d.Upstream != nil // made elsewhere
	return !own && c.Driver == d.Driver && c.BaseURL == d.BaseURL && c.Connect == d.Connect && slices.EqualFunc(c.Keys, d.Keys, same)
}

// Close lets go of the upstreams' idle connections. Calls under way go on.
func (p *Components) Close() error {
	p.CloseBut(nil)
	return nil
}

// CloseBut is Close, but for the upstreams that others use too; with nil it is
// Close itself.
func (p *Components) CloseBut(others *Components) {
	for name, s := range p.instances {
		if others == nil || others.instances[name].channel != s.channel {
			closeUpstream(s.Upstream)
		}
	}
}

func closeUpstream(u upstream.Upstream) {
	if c, ok := u.(io.Closer); ok {
		_ = c.Close() // idle connections only
	}
}
