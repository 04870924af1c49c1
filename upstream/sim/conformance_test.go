package sim_test

import (
	"testing"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

func TestTheSimulatorIsAnUpstream(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"Hello."}]`
	upstreamtest.Run(t, upstreamtest.Harness{
		Local: func(*testing.T) upstream.Upstream { return sim.New(sim.Options{}) },
		Samples: map[upstream.Op]upstreamtest.Sample{upstream.ChatCompletion: {
			Model:   "m",
			Request: []byte(`{"model":"m",` + messages + `}`),
			Stream:  []byte(`{"model":"m","stream":true,` + messages + `}`),
			Check: func(t *testing.T, reply []byte) {
				if reply[0] == '{' {
					if _, err := rawjson.Index(reply, nil, nil); err != nil {
						t.Error(err)
					}
				}
			},
		}},
	})
}
