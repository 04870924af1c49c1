package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/server"
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
	c.examples = []string{"tollhouse channel list", "tollhouse channel list --json"}
	cl := newChannelCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/channels", nil, func(list adminapi.List[adminapi.Channel]) *table { return channelTable(list.Data...) })
	}
	return c
}

func channelTable(channels ...adminapi.Channel) *table {
	t := &table{head: []string{"CHANNEL", "STATE", "UNTIL", "PRIORITY", "WEIGHT", "RUNNING", "REQUESTS", "FAILURES", "LATENCY", "LAST ERROR", "MODELS"}}
	for _, c := range channels {
		until, latency := "", ""
		if c.Until != nil {
			until = c.Until.UTC().Format(time.RFC3339)
		}
		if c.LatencyMS > 0 {
			latency = milliseconds(c.LatencyMS)
		}
		t.add(c.Name, c.State, until, strconv.Itoa(c.Priority), strconv.Itoa(c.Weight), strconv.Itoa(c.InFlight), strconv.FormatInt(c.Requests, 10),
			strconv.FormatInt(c.Failures, 10), latency, c.LastError, strings.Join(c.Models, ","))
	}
	return t
}

func milliseconds(n int64) string { return strconv.FormatInt(n, 10) + " ms" }

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
		"Calls that run go on, and videos that the channel has are looked after. The pause outlasts a reload of the\nconfiguration, and ends with the server.")
}

func channelResume(p *program) *command {
	return channelChange(p, "resume", "send calls to a paused channel again", "")
}

func channelTest(p *program) *command {
	c := newCommand("channel test", "make one small call through a channel, paused or not", "NAME")
	c.details = "It asks a chat model for one token, or for the vector of one word; no account pays for it. A picture or speech\ncosts money: name the model with --model, and add --yes. A channel that fails ends the command with 1."
	c.examples = []string{"tollhouse channel test main", "tollhouse channel test main --model delta-k3 --json"}
	var in server.ChannelTest
	c.flags.StringVar(&in.Model, "model", "", "the public id of the model to ask; default the first that costs next to nothing")
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
	result, status := "failed", ""
	if r.OK {
		result = "ok"
	}
	if r.Simulated {
		result += ", simulated"
	}
	if r.Status != 0 {
		status = strconv.Itoa(r.Status)
	}
	t := &table{head: []string{"CHANNEL", "MODEL", "OPERATION", "RESULT", "TIME", "STATUS", "CODE"}}
	t.add(r.Channel, r.Model, r.Operation, result, milliseconds(r.MS), status, string(r.Code))
	return t
}
