package main

import (
	"context"
	"errors"
)

func webhookSecret(*program) *command {
	c := newCommand("webhook secret", "show the secret that signs an account's webhooks (not in this version)")
	c.flags.String("account", "", "whose webhooks")
	c.flags.Bool("rotate", false, "make a new one")
	c.flags.Bool("json", false, "print one JSON document")
	c.run = func(context.Context, []string) error {
		return errors.New("webhooks come with video, which is not part of this version yet; there is no secret to show")
	}
	return c
}
