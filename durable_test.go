package gateway_test

import (
	"path/filepath"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/video"
)

func TestADurableMeterWithTasksInMemoryIsRefused(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "books.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tasks := db.Tasks()
	for _, c := range []struct {
		name  string
		meter billing.Meter
		tasks video.Store
		want  string // in the error; empty for none
	}{
		{"the database, and no tasks", db, nil, "db.Tasks()"},
		{"the database, and tasks in memory", db, gateway.NewMemoryTasks(nil, nil), "Options.Tasks"},
		{"the database's tasks, and tasks in memory", tasks, new(video.Memory), "Options.Tasks"},
		{"the database's tasks", tasks, nil, ""},
		{"the database's tasks as both", tasks, tasks, ""},
		{"all in memory", memory.NewLedger(memory.LedgerOptions{}), gateway.NewMemoryTasks(nil, nil), ""},
		{"nothing", nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{}), Meter: c.meter, Tasks: c.tasks})
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("New: %v, want %q", err, c.want)
			}
			if g != nil {
				_ = g.Close()
			}
		})
	}
}
