package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
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

func oneAccount(a adminapi.Balance) *table { return accountTable([]adminapi.Balance{a}) }

// accountCreate is `account create`. The opening credit is 0 unless it is given.
func accountCreate(p *program) *command {
	c := newCommand("account create", "create an account", "NAME")
	c.examples = []string{"tollhouse account create acme --credit 25.00"}
	credit := c.flags.String("credit", "", "opening credit, an `AMOUNT` such as 25.00; default 0")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		if err := checkDecimal("--credit", *credit); err != nil {
			return err
		}
		return showAnswer(ctx, cl, http.MethodPost, "/admin/v1/accounts", map[string]string{"name": args[0], "credit": *credit}, oneAccount)
	}
	return c
}

// amountOperand is an argument that may be negative.
const amountOperand = "AMOUNT"

// checkDecimal refuses what is no amount of money, by its name on the command line. Empty is 0.
func checkDecimal(name, text string) error {
	if _, err := billing.ParseMoney(text); text != "" && err != nil {
		return fmt.Errorf("%s must be a decimal such as 25.00, with at most 9 digits after the point and below %d, not %q", name, int64(math.MaxInt64/billing.One), text)
	}
	return nil
}

// accountCredit is `account credit`. Each credit has a reference, by which the ledger knows a
// repetition: a random one is printed with an error after which the credit may stand.
func accountCredit(p *program) *command {
	c := newCommand("account credit", "add money to an account", "NAME", amountOperand)
	c.details = "AMOUNT is a decimal such as 10.00 with at most 9 digits after the point. A negative one takes money back; write it\nafter `--`. A command with a --reference can be repeated safely: the second one changes nothing. Without it, the error\nof a command that may have succeeded says which reference to repeat it with."
	c.examples = []string{
		"tollhouse account credit acme 10.00 --reference invoice-117",
		"tollhouse account credit --reference refund-3 -- acme -2.50",
	}
	reference := c.flags.String("reference", "", "the credit's unique `NAME`; random if not given")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		if err := checkDecimal("the "+amountOperand, args[1]); err != nil {
			return err
		}
		minted := *reference == ""
		if minted {
			*reference = "cli-" + rand.Text()
		}
		err := showAnswer(ctx, cl, http.MethodPost, "/admin/v1/accounts/"+url.PathEscape(args[0])+"/credit",
			map[string]string{"amount": args[1], "reference": *reference}, oneAccount)
		if _, sent := errors.AsType[*sentError](err); minted && sent { // repeated with another one, it could count twice
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
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/accounts/"+url.PathEscape(args[0]), nil, oneAccount)
	}
	return c
}

// keyCreate is `key create`. The flags of limits are unsigned, so that pflag refuses a
// negative one as a mistake of the command line.
func keyCreate(p *program) *command {
	c := newCommand("key create", "create an API key; it is printed once and cannot be shown again")
	c.examples = []string{
		"tollhouse key create --account acme",
		"tollhouse key create --account acme --name ci --models delta-k3 --expires 30d --rpm 60 --budget 5.00",
	}
	var k adminapi.KeyRequest
	var limits struct{ rpm, tpm, concurrent, videos uint32 }
	var expires time.Duration
	f := c.flags
	f.StringVar(&k.Account, "account", "", "the `NAME` of the account that pays (required)")
	f.StringVar(&k.Name, "name", "", "a `LABEL` for lists and reports")
	f.StringSliceVar(&k.Models, "models", nil, "the models that it may use, such as `A,B`; default all")
	f.Var(durationValue{&expires}, "expires", "the `TIME` until it expires, such as 24h or 30d; default never")
	f.Uint32Var(&limits.rpm, "rpm", 0, "at most `N` requests per minute; 0 is the server's default")
	f.Uint32Var(&limits.tpm, "tpm", 0, "at most `N` tokens per minute; 0 is the server's default")
	f.Uint32Var(&limits.concurrent, "max-concurrent", 0, "at most `N` requests at once; 0 is the server's default")
	f.Uint32Var(&limits.videos, "max-concurrent-videos", 0, "at most `N` video tasks at once; 0 is the server's default")
	f.StringVar(&k.Budget, "budget", "", "the most that it may spend, an `AMOUNT` such as 5.00; default no limit")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		if k.Account == "" {
			return usagef("--account is missing: it says whose balance pays")
		}
		if err := checkDecimal("--budget", k.Budget); err != nil {
			return err
		}
		if f.Changed("expires") {
			k.Expires = p.currentTime().Add(expires).UTC().Truncate(time.Second)
		}
		k.Limits = auth.Limits{
			RPM: int64(limits.rpm), TPM: int64(limits.tpm), MaxConcurrent: int64(limits.concurrent), MaxConcurrentVideos: int64(limits.videos),
		}
		var made adminapi.NewKey
		if err := cl.do(ctx, http.MethodPost, "/admin/v1/keys", k, &made); err != nil {
			return err
		}
		return cl.say(made, "%s\n\nIts id is %s; its account is %s. The key is shown only once: the server keeps only its hash.\n", made.Key, made.ID, made.Account)
	}
	return c
}

func keyList(p *program) *command {
	c := newCommand("key list", "list API keys, without the keys themselves")
	c.examples = []string{"tollhouse key list", "tollhouse key list --account acme --json"}
	account := c.flags.String("account", "", "only of the account `NAME`")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		return showList(ctx, cl, "/admin/v1/keys", url.Values{"account": {*account}}, func(k adminapi.Key) string { return k.ID }, keyTable)
	}
	return c
}

// keyTable shows keys with their limits and what is left of their budgets.
func keyTable(keys []adminapi.Key) *table {
	t := &table{head: []string{"ID", "ACCOUNT", "NAME", "STATE", "MODELS", "RPM", "TPM", "CONCURRENT", "BUDGET LEFT", "EXPIRES"}}
	for _, k := range keys {
		state, models, left := "enabled", "all", ""
		if k.Disabled {
			state = "disabled"
		}
		if len(k.Models) > 0 {
			models = strings.Join(k.Models, ",")
		}
		if k.BudgetLeft != nil {
			left = k.BudgetLeft.String()
		}
		// A key without its own limit has the server's default.
		t.add(k.ID, k.Account, k.Name, state, models, nonZero(k.RPM), nonZero(k.TPM), nonZero(k.MaxConcurrent), left, timeText(k.Expires))
	}
	return t
}

// keyChange is a command that makes one request for one key; done says what the key
// then is.
func keyChange(p *program, verb, about, method, path, done string) *command {
	c := newCommand("key "+verb, about, "ID")
	c.examples = []string{"tollhouse key " + verb + " key_bmjvbxwnkhvqthsr"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return cl.change(ctx, method, "/admin/v1/keys/"+url.PathEscape(args[0])+path, "Key %s is "+done+".\n", args[0])
	}
	return c
}

func keyDisable(p *program) *command {
	return keyChange(p, "disable", "disable an API key until it is enabled again", http.MethodPost, "/disable", "disabled")
}

func keyEnable(p *program) *command {
	return keyChange(p, "enable", "enable a disabled API key", http.MethodPost, "/enable", "enabled")
}

func keyDelete(p *program) *command {
	return keyChange(p, "delete", "delete an API key for good", http.MethodDelete, "", "deleted")
}

// webhookSecret is `webhook secret`. Without --rotate too it makes a secret for an account
// that has none.
func webhookSecret(p *program) *command {
	c := newCommand("webhook secret", "show the secret that signs an account's webhooks; create it if there is none")
	c.details = "After --rotate, the previous secret also signs for 24 hours, so that receivers can switch to the new one."
	c.examples = []string{
		"tollhouse webhook secret --account acme",
		"tollhouse webhook secret --account acme --rotate --json",
	}
	account := c.flags.String("account", "", "the `NAME` of the account (required)")
	rotate := c.flags.Bool("rotate", false, "replace the secret by a new one")
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

// webhookList is `webhook list`. Deliveries have no pages: the newest are what an operator
// looks for.
func webhookList(p *program) *command {
	c := newCommand("webhook list", "list the webhooks of finished videos, newest first")
	c.examples = []string{"tollhouse webhook list", "tollhouse webhook list --account acme --limit 10 --json"}
	account := c.flags.String("account", "", "only of the account `NAME`")
	limit := c.flags.Uint16("limit", 100, "the newest `N`, at most 1000")
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
	c.details = "The webhook keeps its id, so a receiver can recognize a duplicate. It is retried for three days. If no server is\nrunning, the next one sends it."
	c.examples = []string{"tollhouse webhook resend evt_1KBG4T92JSZ3QXK7HWM5A2LTFD"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return cl.change(ctx, http.MethodPost, "/admin/v1/webhooks/"+url.PathEscape(args[0])+"/resend", "The webhook %s is due again.\n", args[0])
	}
	return c
}
