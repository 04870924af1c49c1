package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
)

// accountTable shows accounts with their balances.
func accountTable(accounts []adminapi.Balance) *table {
	t := &table{head: []string{"ACCOUNT", "POSTED", "HELD", "AVAILABLE", "CURRENCY"}}
	for _, a := range accounts {
		if a.Posted == nil || a.Held == nil || a.Available == nil { // only counted
			t.add(a.Account, "", "", "", "")
			continue
		}
		t.add(a.Account, a.Posted, a.Held, a.Available, a.Currency)
	}
	return t
}

// doAccount sends a request whose answer is one account, and prints that.
func (c *adminCommand) doAccount(ctx context.Context, method, path string, in any) error {
	return showAnswer(ctx, c, method, path, in, func(a adminapi.Balance) *table { return accountTable([]adminapi.Balance{a}) })
}

func accountCreate(p *program) *command {
	c := newCommand("account create", "create an account", "NAME")
	c.examples = []string{"tollhouse account create acme --credit 25.00"}
	credit := c.flags.String("credit", "", "opening credit, a decimal such as 25.00")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return cl.doAccount(ctx, http.MethodPost, "/admin/v1/accounts", map[string]string{"name": args[0], "credit": *credit})
	}
	return c
}

func accountCredit(p *program) *command {
	c := newCommand("account credit", "add money to an account", "NAME", "AMOUNT")
	c.details = "A negative AMOUNT takes money back, after `--`. The same --reference again changes nothing, so that a command\nwhich failed can be repeated; without --reference, the error of a command names the one to repeat it with."
	c.examples = []string{
		"tollhouse account credit acme 10.00 --reference invoice-117",
		"tollhouse account credit --reference refund-3 -- acme -2.50",
	}
	reference := c.flags.String("reference", "", "the credit's unique name; random if not given")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		minted := *reference == ""
		if minted {
			*reference = "cli-" + rand.Text()
		}
		err := cl.doAccount(ctx, http.MethodPost, "/admin/v1/accounts/"+url.PathEscape(args[0])+"/credit",
			map[string]string{"amount": args[1], "reference": *reference})
		if err != nil && minted { // repeated with another one, it could count twice
			err = fmt.Errorf("%w (to try again: --reference %s)", err, *reference)
		}
		return err
	}
	return c
}

func accountList(p *program) *command {
	c := newCommand("account list", "list accounts with their balances")
	c.examples = []string{"tollhouse account list", "tollhouse account list --json"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		return showList(ctx, cl, "/admin/v1/accounts", nil, func(a adminapi.Balance) string { return a.Account }, accountTable)
	}
	return c
}

func accountShow(p *program) *command {
	c := newCommand("account show", "show an account with its balance", "NAME")
	c.examples = []string{"tollhouse account show acme"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return cl.doAccount(ctx, http.MethodGet, "/admin/v1/accounts/"+url.PathEscape(args[0]), nil)
	}
	return c
}
