package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// newChannelCommand adds the flags of a command that works on the channels of a
// running server. A store has no channels.
func newChannelCommand(p *program, c *command) *adminCommand {
	cl := newAdminCommand(p, c)
	cl.liveOnly = "channels are a running server's"
	return cl
}

func channelList(p *program) *command {
	c := newCommand("channel list", "list channels and their health")
	c.details = "STATE is\n" +
		"  ready    takes calls\n" +
		"  resting  has failed, or its vendor asked for a pause; until UNTIL it is called only if no other channel can serve\n" +
		"  probing  is being tested after a rest: takes a few calls at a time\n" +
		"  paused   by `tollhouse channel pause`: takes no new calls\n" +
		"`tollhouse channel models NAME` lists all models of a channel."
	c.examples = []string{"tollhouse channel list", "tollhouse channel list --json"}
	cl := newChannelCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/channels", nil, func(list adminapi.List[adminapi.Channel]) *table { return channelTable(list.Data...) })
	}
	return c
}

// channelTable shows channels. The column of vendors' lists is there only if a channel
// discovers its models.
func channelTable(channels ...adminapi.Channel) *table {
	t := &table{head: []string{"CHANNEL", "STATE", "UNTIL", "PRIORITY", "WEIGHT", "RUNNING", "REQUESTS", "FAILURES", "LATENCY", "LAST ERROR", "MODELS"}}
	discovers := slices.ContainsFunc(channels, func(c adminapi.Channel) bool { return c.Discovers })
	if discovers {
		t.head = append(t.head, "VENDOR'S LIST")
	}
	for _, c := range channels {
		latency := ""
		if c.LatencyMS > 0 {
			latency = milliseconds(c.LatencyMS)
		}
		cells := []any{c.Name, c.State, timeText(c.Until), c.Priority, c.Weight, c.InFlight, c.Requests, c.Failures, latency, c.LastError, modelsText(&c)}
		if discovers {
			cells = append(cells, listText(&c))
		}
		t.add(cells...)
	}
	return t
}

// maxShown is how many ids of models are in one cell.
const maxShown = 5

// modelsText is the models of a channel as a cell. There may be many; `channel models`
// prints them all.
func modelsText(c *adminapi.Channel) string {
	if n := len(c.Models); n > maxShown {
		return fmt.Sprintf("%s and %d more", strings.Join(c.Models[:maxShown], ","), n-maxShown)
	}
	return strings.Join(c.Models, ",")
}

// listText says how old a vendor's list is, as a cell.
func listText(c *adminapi.Channel) string {
	switch {
	case !c.Discovers:
		return ""
	case c.ListError == "" && c.Listed == nil:
		return "not asked yet"
	case c.ListError == "":
		return timeText(c.Listed)
	case c.Listed == nil:
		return "none: " + c.ListError
	}
	return "of " + timeText(c.Listed) + ", now failing: " + c.ListError
}

func milliseconds(n int64) string { return strconv.FormatInt(n, 10) + " ms" }

func channelModels(p *program) *command {
	c := newCommand("channel models", "list a channel's models, and why some are not served", "NAME")
	c.details = "For a channel that discovers models, it also shows when the vendor's list came and which models lack a price, with\nthe rows to fill in under prices."
	c.examples = []string{"tollhouse channel models main", "tollhouse channel models main --json"}
	cl := newChannelCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		var answer server.ChannelModels
		if err := cl.do(ctx, http.MethodGet, channelPath(args[0], "models"), nil, &answer); err != nil {
			return err
		}
		if cl.json {
			return writeJSON(p.stdout, answer)
		}
		return writeChannelModels(p.stdout, &answer)
	}
	return c
}

// writeChannelModels prints the models of a channel and, where it discovers them, how old
// its vendor's list is and which prices are missing.
func writeChannelModels(w io.Writer, answer *server.ChannelModels) error {
	t := &table{head: []string{"MODEL", "VENDOR'S ID", "KIND", "STATE", "PRICE", "CONTEXT"}}
	for _, m := range answer.Data {
		kind, state := string(m.Kind), m.State
		if !m.KindKnown {
			kind = anyKind
		}
		switch {
		case isPattern(m):
			state = "only models with a price are sold"
		case m.Missing:
			state += ", not on the last list"
		case m.Since != nil:
			state += " since " + timeText(m.Since)
		case len(m.Lacks) > 0:
			state += ", lacks " + unitsText(m.Lacks)
		}
		t.add(m.ID, m.Upstream, kind, state, priceText(m.Price), nonZero(m.Context))
	}
	if err := t.write(w); err != nil || !answer.Discovers {
		return err
	}
	_, err := io.WriteString(w, "\n"+listReport(answer)+priceRows(answer.Data))
	return err
}

// isPattern reports whether a row stands for all ids that a channel passes through, and none of
// them is sold without a price of its own.
func isPattern(m server.ChannelModel) bool {
	return m.Upstream == "*" && m.State == string(config.Unpriced)
}

// listReport says how old the list is, and why.
func listReport(answer *server.ChannelModels) string {
	var b strings.Builder
	if answer.Listed != nil {
		fmt.Fprintf(&b, "The list is of %s.", timeText(answer.Listed))
	} else {
		b.WriteString("There is no list yet.")
	}
	if answer.Error != "" {
		fmt.Fprintf(&b, " The last request for one, at %s, failed: %s", timeText(answer.Tried), answer.Error)
	}
	if answer.Invalid > 0 {
		fmt.Fprintf(&b, " Left out because no request could name them: %d.", answer.Invalid)
	}
	return b.String() + "\n"
}

// priceRows are the rows that unpriced models need, to be pasted and filled in.
func priceRows(models []server.ChannelModel) string {
	var b strings.Builder
	for _, m := range models {
		if m.State != string(config.Unpriced) || isPattern(m) {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\nTo serve the unpriced models, fill in these rows and put them under prices:\n\nprices:\n")
		}
		b.WriteString(priceRow(m.ID, m.Kind, m.Price))
	}
	return b.String()
}

func unitsText(units []billing.Unit) string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = string(u)
	}
	return strings.Join(names, " and ")
}

// channelChange is a command that makes one request for one channel.
func channelChange(p *program, verb, about, details string) *command {
	c := newCommand("channel "+verb, about, "NAME")
	c.details = details
	c.examples = []string{"tollhouse channel " + verb + " main"}
	cl := newChannelCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return showAnswer(ctx, cl, http.MethodPost, channelPath(args[0], verb), nil, func(v adminapi.Channel) *table { return channelTable(v) })
	}
	return c
}

func channelPath(name, verb string) string {
	return "/admin/v1/channels/" + url.PathEscape(name) + "/" + verb
}

func channelPause(p *program) *command {
	return channelChange(p, "pause", "send no new calls to a channel",
		"Running calls continue, and the channel's videos are still polled. A pause survives a reload of the configuration,\nbut not a restart of the server.")
}

func channelResume(p *program) *command {
	return channelChange(p, "resume", "send calls to a paused channel again", "")
}

// channelTest is `channel test`. The table of a test that failed is printed too, before the
// error.
func channelTest(p *program) *command {
	c := newCommand("channel test", "make one small call through a channel, paused or not", "NAME")
	c.details = "It asks for one token of a chat model in each API format that the vendor has (chat, messages, responses), or for the\nvector of one word. No account pays for it. Images and speech cost money: choose the model with --model, and add\n--yes. The exit code is 1 if the channel fails."
	c.examples = []string{"tollhouse channel test main", "tollhouse channel test main --model delta-k3 --json"}
	var in server.ChannelTest
	c.flags.StringVar(&in.Model, "model", "", "the public `ID` of the model to call; default: the cheapest chat or embedding model")
	c.flags.BoolVar(&in.Yes, "yes", false, "make the call even if it costs money")
	cl := newChannelCommand(p, c)
	cl.noLimit = true // the server has a limit of its own
	c.run = func(ctx context.Context, args []string) error {
		var r server.ChannelResult
		if err := cl.do(ctx, http.MethodPost, channelPath(args[0], "test"), in, &r); err != nil {
			return err
		}
		if err := cl.show(r, probeTable(&r)); err != nil || r.OK {
			return err
		}
		return fmt.Errorf("the channel %s failed: %s", r.Channel, r.Message)
	}
	return c
}

func probeTable(r *server.ChannelResult) *table {
	result := "failed"
	if r.OK {
		result = "ok"
	}
	if r.Simulated {
		result += ", simulated"
	}
	t := &table{head: []string{"CHANNEL", "MODEL", "OPERATION", "RESULT", "TIME", "STATUS", "CODE"}}
	t.add(r.Channel, r.Model, r.Operation, result, milliseconds(r.MS), nonZero(r.Status), r.Code)
	return t
}

// channelAdmin lets the admin API see and pause the channels of the router in use.
type channelAdmin struct{ *app }

var _ server.Channels = channelAdmin{}

// Channels implements [server.Channels].
func (c channelAdmin) Channels() []router.ChannelInfo {
	components := c.components.Load()
	infos := components.Router.Channels()
	for _, s := range components.Sources() {
		list := c.lists.Of(s)
		for i := range infos {
			if infos[i].Name == s.Channel {
				infos[i].Listed, infos[i].ListError = list.Listed, list.Reason()
			}
		}
	}
	return infos
}

// Pause implements [server.Channels].
func (c channelAdmin) Pause(name string) error { return c.router().Pause(name) }

// Resume implements [server.Channels].
func (c channelAdmin) Resume(name string) error { return c.router().Resume(name) }

// channelModels are the models of a channel in use, for the admin API.
func (a *app) channelModels(channel string) server.ChannelModels {
	components := a.components.Load()
	answer := server.ChannelModels{Channel: channel}
	for _, s := range components.Sources() {
		if s.Channel == channel {
			list := a.lists.Of(s)
			answer.Discovers, answer.Invalid, answer.Error = true, list.Invalid, list.Reason()
			answer.Listed, answer.Tried = adminapi.Time(list.Listed), adminapi.Time(list.Tried)
		}
	}
	for _, m := range components.ChannelModels(channel) {
		answer.Data = append(answer.Data, server.ChannelModel{
			ID: m.ID, Upstream: m.Upstream, Kind: cmp.Or(m.Kind, gateway.KindChat), KindKnown: m.Kind != "",
			State: string(m.State), Missing: m.Missing, Since: adminapi.Time(m.Since), Context: m.Context, Price: prices(components.Config, m.ID), Lacks: m.Lacks,
		})
	}
	return answer
}

// The time limits of a test. Pictures take longer than the cheap operations.
const (
	probeTimeout       = 25 * time.Second
	costlyProbeTimeout = 3 * time.Minute
)

// askProbe makes the small call of an endpoint, and reads all of its answer.
func askProbe(ctx context.Context, g *gateway.Gateway, endpoint *operation.Spec, model string) (err error) {
	name, err := json.Marshal(model)
	if err != nil {
		return err
	}
	body := []byte(`{"model":` + string(name) + `,` + endpoint.Probe(model) + `}`)
	response, err := g.Do(ctx, gateway.Caller{}, &gateway.Request{Op: endpoint.Op, Body: body})
	if err != nil {
		return err
	}
	defer response.Close()
	if response.Audio != nil {
		_, err = io.Copy(io.Discard, response.Audio)
	}
	return err
}

// testChannel makes one small call through a channel, or one in each form of texts that
// its vendor speaks. The calls go through a gateway without accounts, keys and ledger: no
// account is charged, and the answers are checked as for every call. A test that succeeds
// closes the channel's circuit breaker; one that fails changes nothing.
func (a *app) testChannel(ctx context.Context, in server.ChannelTest) (server.ChannelResult, error) {
	components := a.components.Load()
	model, probes, err := chooseProbes(components, in)
	if err != nil {
		return server.ChannelResult{}, err
	}
	g, err := gateway.New(gateway.Options{Upstream: &singleChannel{components: components, channel: in.Channel}, Models: components.Models})
	if err != nil {
		return server.ChannelResult{}, err
	}
	timeout := probeTimeout
	if probes[0].ProbeCost > 0 {
		timeout = costlyProbeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	var tried []string
	for _, probe := range probes {
		if err = askProbe(ctx, g, probe, model); err != nil {
			tried = []string{string(probe.Op)}
			break
		}
		tried = append(tried, string(probe.Op))
	}
	if err == nil {
		err = components.Router.ResetHealth(in.Channel)
	}
	r := server.ChannelResult{
		Channel: in.Channel, Model: model, Operation: strings.Join(tried, ", "), OK: err == nil, MS: time.Since(began).Milliseconds(),
		Simulated: components.Config.Channel(in.Channel).Driver == config.Simulated,
	}
	if err != nil {
		describeFailure(&r, err, timeout)
	}
	return r, g.Close()
}

// describeFailure shows the operator the error that a client would get, and the
// vendor's own message, in which the driver has masked the keys.
func describeFailure(r *server.ChannelResult, err error, timeout time.Duration) {
	f := fault.From(err)
	r.Code, r.Message = safetext.Code(f.Code), f.Message // the code is logged too
	if u, ok := errors.AsType[*upstream.Failure](err); ok {
		r.Status = u.Status
		if u.Err != nil {
			r.Message += " " + oneLine(u.Error())
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		r.Message = fmt.Sprintf("There was no answer within %s.", timeout)
	}
}

// singleChannel is one channel of a router, as an upstream that is asked once.
type singleChannel struct {
	components *config.Components
	channel    string
	failed     error // the error of the call; a test makes one call at a time
}

// Supports implements [upstream.Supporter].
func (s *singleChannel) Supports(op upstream.Op, model string) bool {
	return s.components.Supports(s.channel, op, model)
}

// Do calls the channel, paused or not. The gateway gets the same error for each
// retry: the router has retried already where that can help.
func (s *singleChannel) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if s.failed != nil {
		return nil, s.failed
	}
	named := *call
	named.Channel, named.Test = s.channel, true
	reply, err := s.components.Router.Do(ctx, &named)
	if err != nil {
		s.failed = fault.From(err).With(func(e *fault.Error) { e.RetryAfter = 0 }) // so that the gateway does not wait
	}
	return reply, s.failed
}

// chooseProbes finds a model of the channel and the endpoints to test it with, at least
// one. A test that costs money must be asked for.
func chooseProbes(components *config.Components, in server.ChannelTest) (string, []*operation.Spec, error) {
	c := components.Config.Channel(in.Channel)
	if c == nil {
		return "", nil, fault.New(fault.NotFound, fmt.Sprintf("There is no channel %q.", in.Channel))
	}
	ids := components.ModelsOf(in.Channel)
	if in.Model == "" {
		for _, id := range ids {
			if probes := probesFor(components, in.Channel, id); probes != nil && probes[0].ProbeCost == 0 {
				return id, probes, nil
			}
		}
		if len(ids) == 0 {
			return "", nil, fault.Invalid("model", fmt.Sprintf("The channel %s serves no model yet: `tollhouse channel models` says why.", in.Channel))
		}
		if slices.Contains(ids, "*") {
			return "", nil, fault.Invalid("model", fmt.Sprintf("The channel %s accepts any model: choose one with --model.", in.Channel))
		}
		return "", nil, fault.Invalid("model", fmt.Sprintf("Every model of the channel %s costs money to test: name one (--model MODEL), and say that you want it (--yes).", in.Channel))
	}
	switch probes := probesFor(components, in.Channel, in.Model); {
	case !components.Serves(in.Channel, in.Model):
		return "", nil, fault.Invalid("model", fmt.Sprintf("The channel %s does not serve the model %q: `tollhouse channel models %[1]s` lists its models.", in.Channel, in.Model))
	case probes == nil:
		return "", nil, fault.Invalid("model", fmt.Sprintf("The model %s makes neither text, vectors, rankings, moderations, speech nor a picture from words, so there is no small call to test it with.", in.Model))
	case probes[0].ProbeCost > 0 && !in.Yes:
		return "", nil, fault.Invalid("yes", fmt.Sprintf("A test with the model %s costs money: say that you want it (--yes).", in.Model))
	default:
		return in.Model, probes, nil
	}
}

// probesFor are the endpoints by which a model is tested, nil if there is none: the
// cheapest that fits and, of texts, one in each form that its upstream speaks. A model of an
// unknown kind is tested with what its upstream supports.
func probesFor(components *config.Components, channel, model string) (probes []*operation.Spec) {
	kind := string(components.Kind(model))
	cheapest := func(a, b *operation.Spec) int { return a.ProbeCost - b.ProbeCost }
	for _, s := range slices.SortedStableFunc(slices.Values(all.Specs()), cheapest) {
		if s.Probe != nil && (kind == "" || slices.Contains(s.Kinds, kind)) && components.Supports(channel, s.Op, model) &&
			(probes == nil || slices.Equal(s.Kinds, probes[0].Kinds)) {
			probes = append(probes, s)
		}
	}
	return probes
}
