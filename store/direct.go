package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// direct are the statements that a connection's driver has compiled.
type direct struct {
	compiled map[string]driver.Stmt
	args     []driver.NamedValue // kept for its room
}

// exec runs a statement on a connection, always the same one until close, and
// returns how many rows it changed.
func (d *direct) exec(ctx context.Context, conn *sql.Conn, query string, args []any) (changed int64, err error) {
	d.args = d.args[:0]
	for i, arg := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return 0, err
		}
		d.args = append(d.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	lost := conn.Raw(func(c any) error {
		changed, err = d.run(ctx, c, query)
		return nil // what a statement says is not about the connection
	})
	return changed, errors.Join(lost, err)
}

func (d *direct) run(ctx context.Context, conn any, query string) (int64, error) {
	stmt := d.compiled[query]
	if stmt == nil {
		var err error
		if stmt, err = conn.(driver.ConnPrepareContext).PrepareContext(ctx, query); err != nil {
			return 0, err
		}
		d.compiled[query] = stmt
	}
	result, err := stmt.(driver.StmtExecContext).ExecContext(ctx, d.args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// close forgets the statements. It belongs inside the connection's Raw: one
// that is closed has ended them.
func (d *direct) close() {
	for _, stmt := range d.compiled {
		_ = stmt.Close() // it goes with its connection
	}
	clear(d.compiled)
}
