// Package vendor gives the examples somebody to talk to.
package vendor

import (
	"cmp"
	"os"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// Model is the model that the examples ask: UPSTREAM_MODEL, or any id at all,
// since the simulator answers to every one.
func Model() string { return cmp.Or(os.Getenv("UPSTREAM_MODEL"), "my-model") }

// New is the simulator; where UPSTREAM_URL is set it is the vendor at that
// address, who speaks OpenAI's wire and wants the key in UPSTREAM_KEY. The
// names are not those of a vendor's own SDK, so that nobody's money is spent by
// accident.
func New() (upstream.Upstream, error) {
	url := os.Getenv("UPSTREAM_URL")
	if url == "" {
		return sim.New(sim.Options{}), nil
	}
	o := upstream.DriverOptions{BaseURL: url}
	if key := os.Getenv("UPSTREAM_KEY"); key != "" {
		o.Keys = []secret.String{secret.New(key)} // prints as "[secret]" wherever it goes
	}
	return openai.New(o)
}
