package upstream

import (
	"context"
	"errors"
)

// ListModels is what a driver's request for its vendor's models is called. It is no
// operation of the public API, and [Ops] does not have it.
const ListModels Op = "models"

// Lister is an Upstream that knows which models its vendor has. The drivers of vendors
// that have such a list implement it; [As] finds it behind a middleware. It is safe for
// concurrent use.
type Lister interface {
	// ListModels asks the vendor once. The error is a *fault.Error, as of
	// [Upstream.Do]; neither it nor a success counts for or against a key.
	ListModels(ctx context.Context) (*ModelList, error)
}

// ModelList is what a vendor says it has.
type ModelList struct {
	Models  []ListedModel // each id once, in the vendor's order; at most 10,000
	Invalid int           // entries that were left out, since no request could name them
}

// ListedModel is a model of a vendor's list.
type ListedModel struct {
	ID string // the vendor's
	// Op is what the vendor says that the model is for; empty if it does not say, or
	// says what this API does not have.
	Op      Op
	Context int64 // most tokens of prompt and answer together, by the vendor; 0 if it does not say
}

// ErrNoList is the error of an upstream that cannot say which models it has.
var ErrNoList = errors.New("the driver cannot ask its vendor for a list of models")
