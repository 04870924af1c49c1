package store

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/video"
)

// The columns of a task: those that stay as it was submitted, and those that
// its life changes. Who has leased it is not read here.
const (
	submittedColumns = "id, account, key_id, request_id, model, price, family, bound, tokens, chosen, seed, webhook_url, fingerprint, created_at"
	livingColumns    = "channel, upstream_id, state, version, accepted_at, updated_at, expires_at, purge_at, polled_at, answer, failure, noted_at, held, ended"
	taskColumns      = submittedColumns + ", " + livingColumns

	submittedKinds = "ttttttttbbtttn"
	livingKinds    = "tttnnnnnnttnbb"
)

// taskRow is the row of a task in the hands of a batch.
type taskRow struct {
	video.Task
	noted int64 // when the ledger's clock saw it submitted, then accepted
	held  bool  // by a hold of this ledger that has not ended by itself

	before                 int64 // the version that the database has
	fresh, changed, listed bool
	dropped                bool
}

// scanTask reads a row of taskColumns.
func scanTask(rows *sql.Rows) (*taskRow, error) {
	var (
		r                                                  taskRow
		bound, seed, fingerprint, state, answer, failure   string
		created, accepted, updated, expires, purge, polled int64
		ended                                              bool // the state tells it
	)
	t := &r.Task
	err := rows.Scan(&t.ID, &t.Account, &t.Key, &t.RequestID, &t.Model, &t.PriceVersion, &t.Family, &bound, &t.Tokens, &t.Open,
		&seed, &t.WebhookURL, &fingerprint, &created,
		&t.Channel, &t.UpstreamID, &state, &t.Version, &accepted, &updated, &expires, &purge, &polled, &answer, &failure, &r.noted, &r.held, &ended)
	if err != nil {
		return nil, err
	}
	t.CreatedAt, t.AcceptedAt, t.UpdatedAt = timeOrZero(created), timeOrZero(accepted), timeOrZero(updated)
	t.ExpiresAt, t.PurgeAt, t.PolledAt = timeOrZero(expires), timeOrZero(purge), timeOrZero(polled)
	t.State, t.Seed, t.Answer = video.State(state), valueOf(seed), valueOf(answer)
	r.before = t.Version
	var bad error
	if failure != "" {
		bad = json.Unmarshal([]byte(failure), &t.Failure)
	}
	_, notHex := hex.Decode(t.Fingerprint[:], []byte(fingerprint))
	t.Bound, err = parseUsage(bound)
	if err := errors.Join(err, bad, notHex); err != nil {
		return nil, fmt.Errorf("the task %s is damaged: %w", t.ID, err)
	}
	return &r, nil
}

func valueOf(text string) jsontext.Value {
	if text == "" {
		return nil
	}
	return jsontext.Value(text)
}

// submitted are the arguments of submittedColumns.
func (r *taskRow) submitted() ([]any, error) {
	t := &r.Task
	bound, err := formatUsage(t.Bound)
	return []any{
		t.ID, t.Account, t.Key, t.RequestID, t.Model, t.PriceVersion, t.Family, bound, t.Tokens, t.Open,
		string(t.Seed), t.WebhookURL, hex.EncodeToString(t.Fingerprint[:]), nanos(t.CreatedAt),
	}, err
}

// living are the arguments of livingColumns.
func (r *taskRow) living() ([]any, error) {
	t := &r.Task
	var failure []byte
	if t.Failure != nil {
		var err error
		if failure, err = json.Marshal(t.Failure); err != nil {
			return nil, err
		}
	}
	return []any{
		t.Channel, t.UpstreamID, string(t.State), t.Version, nanos(t.AcceptedAt), nanos(t.UpdatedAt), nanos(t.ExpiresAt),
		nanos(t.PurgeAt), nanos(t.PolledAt), string(t.Answer), string(failure), r.noted, r.held, t.State.Terminal(),
	}, nil
}

// follows reports whether a step is the next one of the task.
func (r *taskRow) follows(s *video.Step) bool {
	return r != nil && !r.dropped && r.Version == s.Task.Version-1 && !r.State.Terminal()
}

// repeats reports whether the same submission is taken for a mistake, by the
// ledger's clock.
func (r *taskRow) repeats(n *video.CreateTask, now int64) bool {
	t := video.Task{State: r.State, CreatedAt: timeAt(r.noted)}
	return !r.dropped && t.Repeats(timeAt(now), n.Window)
}
