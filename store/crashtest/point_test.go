//go:build unix

package crashtest

import "strings"

// The phases of a process.
const (
	migrating  = "migration" // until the first COMMIT
	recovering = "recovery"  // until the store is open
	serving    = "serving"
)

// point is a moment at which a child ends itself.
type point struct {
	phase, moment string
	most          int    // it does so at one of the first so many times
	only          string // the database that has it; empty for both
}

func (p point) name() string { return p.phase + ": " + p.moment }

func (p point) on(database string) bool { return p.only == "" || p.only == database }

// The moments that are not before a statement.
const (
	beforeBegin      = "before BEGIN"
	afterBegin       = "after BEGIN"
	afterFirst       = "after the first statement that writes"
	beforeCommit     = "before COMMIT"
	duringCommit     = "during COMMIT"
	afterCommit      = "after COMMIT, before it is told"
	duringCheckpoint = "during a checkpoint of the log"
)

// points are all fault points. A statement that writes and is not among them
// fails the test: somebody has to say when it is reached.
var points = []point{
	{migrating, beforeBegin, 1, ""},
	{migrating, afterBegin, 1, ""},
	{migrating, "before CREATE", 12, ""},
	{migrating, "before ALTER", 6, "postgres"},
	{migrating, "before LOCK", 1, "postgres"},
	{migrating, "before INSERT usage_hour", 1, ""},
	{migrating, "before INSERT schema_version", 4, ""},
	{migrating, beforeCommit, 1, ""},
	{migrating, duringCommit, 1, ""},
	{migrating, afterCommit, 1, ""},

	{recovering, beforeBegin, 3, ""},
	{recovering, afterBegin, 3, ""},
	{recovering, afterFirst, 3, ""},
	{recovering, "before INSERT setting", 1, ""},
	{recovering, "before INSERT node", 1, ""},
	{recovering, "before UPDATE node", 1, ""},
	{recovering, "before UPDATE account", 1, ""},
	{recovering, "before UPDATE budget", 1, ""},
	{recovering, "before DELETE hold", 1, ""},
	{recovering, "before INSERT receipt", 1, ""},
	{recovering, "before INSERT usage_hour", 1, "sqlite"},
	{recovering, "before INSERT entry", 1, ""},
	{recovering, "before DELETE answer", 1, ""},
	{recovering, "before DELETE node", 1, ""},
	{recovering, beforeCommit, 3, ""},
	{recovering, duringCommit, 3, ""},
	{recovering, afterCommit, 3, ""},

	{serving, beforeBegin, 40, ""},
	{serving, afterBegin, 40, ""},
	{serving, afterFirst, 40, ""},
	{serving, "before UPDATE node", 40, "postgres"},
	{serving, "before INSERT account", 2, ""},
	{serving, "before UPDATE account", 40, ""},
	{serving, "before INSERT budget", 2, ""},
	{serving, "before UPDATE budget", 20, ""},
	{serving, "before INSERT price", 1, ""},
	{serving, "before INSERT hold", 40, ""},
	{serving, "before UPDATE hold", 20, ""},
	{serving, "before DELETE hold", 40, ""},
	{serving, "before INSERT receipt", 40, ""},
	{serving, "before INSERT usage_hour", 40, "sqlite"},
	{serving, "before INSERT entry", 40, ""},
	{serving, "before INSERT answer", 20, ""},
	{serving, "before UPDATE answer", 10, ""},
	{serving, "before DELETE answer", 10, ""},
	{serving, beforeCommit, 40, ""},
	{serving, duringCommit, 40, ""},
	{serving, afterCommit, 40, ""},
	{serving, duringCheckpoint, 40, "sqlite"},
}

// named reports whether a statement of a phase has a point. With several
// processes a living one recovers what a dead one left: what recovery does is
// done while serving as well.
func named(phase, moment string) bool {
	for _, p := range points {
		if p.moment == moment && (p.phase == phase || phase == serving && p.phase == recovering) {
			return true
		}
	}
	return false
}

// momentOf is the moment before a statement; empty if it writes nothing.
func momentOf(query string) string {
	words := strings.Fields(query)
	switch words[0] {
	case "SELECT", "PRAGMA", "SET":
		return ""
	case "UPDATE":
		return "before UPDATE " + words[1]
	case "INSERT", "DELETE":
		return "before " + words[0] + " " + words[2]
	}
	return "before " + words[0]
}
