package main

import (
	"context"
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

// failedLists is how many channels have no current list of their vendor's models.
func (a *app) failedLists() (n int) {
	for _, s := range a.components.Load().Sources() {
		if list := a.lists.Of(s); list.Err != nil {
			n++
		}
	}
	return n
}
