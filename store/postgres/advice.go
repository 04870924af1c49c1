package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhouse-ai/gateway/fault"
)

// explain says in words what an error of a start means that waiting alone does not mend.
func explain(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch e.Code {
	case "25006":
		return fault.Wrap(fault.InvalidRequest,
			"This server of the database is a standby, which cannot write. Name all hosts in the address and add target_session_attrs=read-write.", err)
	case "42P05", "26000":
		return fault.Wrap(fault.InvalidRequest,
			"The database is behind a pooler that gives one session to several clients, such as PgBouncer in transaction mode. Connect to Postgres itself.", err)
	case "55P03":
		return fault.Wrap(fault.InvalidRequest,
			"Another session of the database holds a lock that the start needs: perhaps a commit that waits for a standby (`tollhouse doctor` looks for that), or an open psql.", err)
	}
	return err
}

// Advice says what of a database's address and replication loses calls, keeps the server
// from starting after a fail-over, or has every call wait now. It changes nothing.
func Advice(ctx context.Context, dsn string) (advice []string) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil // Open says so
	}
	several := false
	for _, f := range config.Fallbacks {
		several = several || f.Host != config.Host || f.Port != config.Port
	}
	if several && config.ValidateConnect == nil {
		advice = append(advice, "its address names several hosts without target_session_attrs=read-write: a server that reaches the standby first does not start")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return advice // as above
	}
	defer func() { _ = conn.Close(ctx) }()
	var standby, named, streams, obeyed bool
	// A role without the right to read the state of a standby sees that there is one.
	err = conn.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('synchronous_standby_names') <> '',
		EXISTS (SELECT 1 FROM pg_stat_replication WHERE state IS NULL OR state = 'streaming'),
		EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum'))`).Scan(&standby, &named, &streams, &obeyed)
	switch {
	case err != nil:
	case standby:
		advice = append(advice, "its address leads to a standby, which cannot write: name all hosts and add target_session_attrs=read-write")
	case !named && streams:
		advice = append(advice, "it has a standby that no commit waits for (synchronous_standby_names is empty): a fail-over loses the last calls and credits")
	case named && !obeyed:
		advice = append(advice, "each commit waits for a standby, and none that synchronous_standby_names names is there: no call is served. Start the standby; or empty that setting, after which a fail-over loses calls")
	}
	return advice
}
