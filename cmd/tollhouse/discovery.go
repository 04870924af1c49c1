package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/server"
)

// applyLists serves what the vendors' lists have now. It is called after one changed.
func (a *app) applyLists(ctx context.Context) {
	if a.lockReload(ctx) != nil { // the server ends, or the channel is followed no more
		return
	}
	defer func() { <-a.reloading }()
	a.useLists()
}

// useLists replaces the router by one that serves what the lists have now. Channels,
// keys, prices and limits stay as they are, and so do the state of each channel and the
// calls that run. Lists that change nothing replace nothing. The reload lock is held.
func (a *app) useLists() {
	old := a.components.Load()
	next, err := old.WithLists(a.lists.Of)
	if err == nil && next == old {
		return
	}
	if err == nil {
		err = a.gateway.Reload(a.gatewayOptions(next))
	}
	if err != nil {
		a.logger.Error("the models that were discovered cannot be served, the old ones stay in force", "error", err)
		return
	}
	a.components.Store(next)
}

// listsAtStart is for how long a start waits for the lists of vendors.
const listsAtStart = 2 * time.Second

// awaitLists waits until each vendor was asked for its list once, so that what a server
// prints at its start can be called. It does not wait long: a vendor may be away.
func (a *app) awaitLists(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listsAtStart)
	defer cancel()
	a.lists.Await(ctx)
}

// failedLists is how many channels have no current list of their vendor's models.
func (a *app) failedLists() (n int) {
	for _, s := range a.components.Load().Sources() {
		if list := a.lists.Of(s); list.Err != nil {
			n++
		}
	}
	return n
}

// channelModels are the models of a channel in use, for the admin API.
func (a *app) channelModels(channel string) server.ChannelModels {
	components := a.components.Load()
	answer := server.ChannelModels{Channel: channel}
	for _, s := range components.Sources() {
		if s.Channel == channel {
			list := a.lists.Of(s)
			answer.Discovers, answer.Invalid, answer.Error = true, list.Invalid, list.Reason()
			answer.Listed, answer.Tried = moment(list.Listed), moment(list.Tried)
		}
	}
	for _, m := range components.ChannelModels(channel) {
		answer.Data = append(answer.Data, server.ChannelModel{
			ID: m.ID, Upstream: m.Upstream, Kind: cmp.Or(m.Kind, gateway.KindChat), KindKnown: m.Kind != "",
			State: string(m.State), Missing: m.Missing, Since: moment(m.Since), Context: m.Context, Price: prices(components.Config, m.ID), Lacks: m.Lacks,
		})
	}
	return answer
}

// moment is nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func channelModels(p *program) *command {
	c := newCommand("channel models", "list the models of a channel, and what keeps some from being served", "NAME")
	c.details = "For a channel that discovers its models it says when the vendor's list came, and which models have no price yet,\nwith the rows to fill in and put under prices."
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

func writeChannelModels(w io.Writer, answer *server.ChannelModels) error {
	t := &table{head: []string{"MODEL", "VENDOR'S ID", "KIND", "STATE", "PRICE", "CONTEXT"}}
	for _, m := range answer.Data {
		kind, state := string(m.Kind), m.State
		if !m.KindKnown {
			kind = anyKind
		}
		switch {
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
		fmt.Fprintf(&b, " Left out, since no request could name them: %d.", answer.Invalid)
	}
	return b.String() + "\n"
}

// priceRows are the rows that unpriced models need, to be pasted and filled in.
func priceRows(models []server.ChannelModel) string {
	var b strings.Builder
	for _, m := range models {
		if m.State != string(config.Unpriced) {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\nTo serve the unpriced ones, fill in and put these under prices:\n\nprices:\n")
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
