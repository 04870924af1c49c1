package main

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
)

func webhookSecret(p *program) *command {
	c := newCommand("webhook secret", "show the secret that signs an account's webhooks, making one if there is none")
	c.details = "After --rotate the previous secret signs too for 24 hours, in which the receivers can be given the new one."
	c.examples = []string{
		"tollhouse webhook secret --account acme",
		"tollhouse webhook secret --account acme --rotate --json",
	}
	account := c.flags.String("account", "", "the account (required)")
	rotate := c.flags.Bool("rotate", false, "make a new one")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		if *account == "" {
			return usagef("--account is missing: it says whose webhooks the secret signs")
		}
		method, path := http.MethodGet, "/admin/v1/accounts/"+url.PathEscape(*account)+"/webhook-secret"
		if *rotate {
			method, path = http.MethodPost, path+"/rotate"
		}
		var v adminapi.WebhookSecret
		if err := cl.do(ctx, method, path, nil, &v); err != nil {
			return err
		}
		text := "It signs the webhooks of account %s: give it only to their receivers."
		if *rotate {
			text += " The previous one\nsigns too for the next 24 hours."
		}
		return cl.say(v, "%s\n\n"+text+"\n", v.Secret, v.Account)
	}
	return c
}

func webhookList(p *program) *command {
	c := newCommand("webhook list", "list the webhooks of videos that have ended, the newest first")
	c.examples = []string{"tollhouse webhook list", "tollhouse webhook list --account acme --limit 10 --json"}
	account := c.flags.String("account", "", "only those of one account")
	limit := c.flags.Uint16("limit", 100, "how many, at most 1000")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		if *limit < 1 || *limit > 1000 {
			return usagef("--limit must be from 1 to 1000, not %d", *limit)
		}
		query := url.Values{"account": {*account}, "limit": {strconv.Itoa(int(*limit))}}
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/webhooks?"+query.Encode(), nil, webhookTable)
	}
	return c
}

// webhookTable lists deliveries. One column holds the time of the next attempt or
// of the end, since a delivery has only one of them.
func webhookTable(list adminapi.List[adminapi.Delivery]) *table {
	t := &table{head: []string{"ID", "ACCOUNT", "TYPE", "TASK", "HOST", "STATE", "TRIES FAILED", "NEXT OR ENDED", "REASON"}}
	for _, n := range list.Data {
		t.add(n.ID, n.Account, n.Type, n.Task, n.Host, n.State, n.Tries, timeText(cmp.Or(n.Next, n.Ended)), n.Reason)
	}
	return t
}

func webhookResend(p *program) *command {
	c := newCommand("webhook resend", "send a webhook again, whatever its state", "ID")
	c.details = "It keeps its id, by which a receiver recognizes one that it has already. It is retried for three days; while no\nserver runs, it is sent when one starts."
	c.examples = []string{"tollhouse webhook resend evt_1KBG4T92JSZ3QXK7HWM5A2LTFD"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return cl.change(ctx, http.MethodPost, "/admin/v1/webhooks/"+url.PathEscape(args[0])+"/resend", "The webhook %s is due again.\n", args[0])
	}
	return c
}
