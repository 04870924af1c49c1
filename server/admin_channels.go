package server

import (
	"fmt"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// Channels are the channels of a gateway, as an operator watches and pauses them:
// an *router.Router implements it. Implementations are safe for concurrent use.
type Channels interface {
	// Channels describes them in the order of the configuration.
	Channels() []router.ChannelInfo
	// Pause keeps new calls from a channel, until Resume; what runs goes on. The
	// error is of a name that no channel has.
	Pause(name string) error
	Resume(name string) error
}

// ChannelTest says what a channel is to be tested with.
type ChannelTest struct {
	Channel string `json:"-"`
	Model   string `json:"model"` // a public id; empty for the channel's first that costs next to nothing
	Yes     bool   `json:"yes"`   // a call that costs money is wanted
}

// ChannelResult is the outcome of a test.
type ChannelResult struct {
	Channel   string     `json:"channel"`
	Model     string     `json:"model"`
	Operation string     `json:"operation"` // "chat", "messages", "embeddings", …; "chat, responses" where both were tested. That which failed, if one did
	OK        bool       `json:"ok"`
	Simulated bool       `json:"simulated"`         // no vendor was called
	MS        int64      `json:"ms"`                // until the whole answer was there
	Status    int        `json:"status,omitempty"`  // the vendor's, where it refused
	Code      fault.Code `json:"code,omitempty"`    // what a client would have got
	Message   string     `json:"message,omitempty"` // what went wrong, keys masked
}

// ChannelModels are the models of a channel.
type ChannelModels struct {
	Object    string         `json:"object"` // "list"
	Channel   string         `json:"channel"`
	Discovers bool           `json:"discovers"`        // the vendor is asked for its models
	Listed    *time.Time     `json:"listed,omitempty"` // when the last good list came
	Tried     *time.Time     `json:"tried,omitempty"`  // when the vendor was asked last
	Error     string         `json:"error,omitempty"`  // why that failed
	Invalid   int            `json:"invalid"`          // entries of the list that no request could name
	Data      []ChannelModel `json:"data"`
}

// ChannelModel is a model of a channel.
type ChannelModel struct {
	ID       string `json:"id"`       // the public one
	Upstream string `json:"upstream"` // the vendor's
	// Kind is how it is sold; KindKnown says that this is not a guess.
	Kind      gateway.Kind `json:"kind"`
	KindKnown bool         `json:"kind_known"`
	// State is "served", "unpriced", "left_out", "taken", "unsupported" or "gone".
	State   string            `json:"state"`
	Missing bool              `json:"missing,omitempty"` // the last list lacks it: the next that does ends it
	Since   *time.Time        `json:"since,omitempty"`   // of "gone"
	Context int64             `json:"context,omitempty"` // tokens, as the vendor says
	Price   map[string]string `json:"price"`             // by unit, or unit and variant
	Lacks   []billing.Unit    `json:"lacks,omitempty"`   // the units that its price needs, of "unpriced"
}

// describeChannel shows what the router reports of a channel.
func describeChannel(c *router.ChannelInfo) adminapi.Channel {
	return adminapi.Channel{
		Name: c.Name, State: c.State, Cooldown: c.State == router.StateOpen && c.Usable, Until: adminapi.Time(c.Until), Models: c.Models, Priority: c.Priority, Weight: c.Weight,
		InFlight: c.InFlight, Requests: c.Requests, Failures: c.Failures, LatencyMS: c.Latency.Milliseconds(), LastError: c.LastError,
		Discovers: c.Discovers, Listed: adminapi.Time(c.Listed), ListError: c.ListError,
	}
}

// listChannels is GET /admin/v1/channels.
func (q *adminRequest) listChannels() (any, error) {
	if q.o.Channels == nil {
		return nil, noChannels()
	}
	var views []adminapi.Channel
	for _, c := range q.o.Channels.Channels() {
		views = append(views, describeChannel(&c))
	}
	return adminapi.NewList(views), nil
}

// listChannelModels is GET /admin/v1/channels/{name}/models.
func (q *adminRequest) listChannelModels() (any, error) {
	if _, err := q.channel(); err != nil {
		return nil, err
	}
	if q.o.ChannelModels == nil {
		return nil, fault.New(fault.NotFound, "This server cannot list the models of its channels.")
	}
	models := q.o.ChannelModels(q.name)
	if models.Data == nil {
		models.Data = []ChannelModel{}
	}
	models.Object = "list"
	return models, nil
}

// setChannel is POST /admin/v1/channels/{name}/pause and resume. A second time
// changes nothing.
func (q *adminRequest) setChannel(set func(Channels, string) error) (any, error) {
	if _, err := q.channel(); err != nil {
		return nil, err
	}
	if err := set(q.o.Channels, q.name); err != nil { // a reload took it away just now
		return nil, fault.Wrap(fault.NotFound, "There is no such channel any more.", err)
	}
	return q.channel()
}

// channel is the one that the path names.
func (q *adminRequest) channel() (any, error) {
	if q.o.Channels == nil {
		return nil, noChannels()
	}
	var names []string
	for _, c := range q.o.Channels.Channels() {
		if c.Name == q.name {
			return describeChannel(&c), nil
		}
		names = append(names, c.Name)
	}
	return nil, fault.New(fault.NotFound, fmt.Sprintf("There is no channel %q. The channels are %s.", safetext.Quoted(q.name), strings.Join(names, ", ")))
}

// testChannel is POST /admin/v1/channels/{name}/test. A channel that fails is an
// answer as good as one that works.
func (q *adminRequest) testChannel() (any, error) {
	in := ChannelTest{Channel: q.name}
	if q.r.ContentLength != 0 {
		if err := q.readJSON(&in); err != nil {
			return nil, err
		}
	}
	if _, err := q.channel(); err != nil {
		return nil, err
	}
	if q.o.TestChannel == nil {
		return nil, fault.New(fault.NotFound, "This server cannot test its channels.")
	}
	result, err := q.o.TestChannel(q.ctx, in)
	if err != nil {
		return nil, err
	}
	q.addAudit("model", redact(result.Model), "ok", result.OK)
	if result.Code != "" {
		q.addAudit("code", string(safetext.Code(result.Code)))
	}
	return result, nil
}

func noChannels() error {
	return fault.New(fault.NotFound, "Channel state is available only from a running server.")
}
