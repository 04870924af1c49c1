package store

import (
	"fmt"
	"strings"
	"time"
)

// statements are those that the committer runs in bulk, or whose text depends
// on the dialect.
type statements struct {
	sign, register, bury, forget                                   string
	accounts, currentBudgets, budgets, holds, ended                bulk
	updateAccount, insertAccount, updateBudget                     bulk
	insertHold, updateHold, deleteHold, insertReceipt, insertEntry bulk
	addUsage                                                       bulk
	insertAttempt                                                  bulk
	openClaims, lockClaims, takeClaim, insertClaim                 bulk
	freeClaim, keepAnswer                                          bulk
	accountsOfHolds, unlockedHolds, unlockedAccounts, accountNames bulk

	tasks, taskOf, openTasks, recentTasks, submittedTasks      bulk
	insertTask, updateTask, deleteTask, leaseTask, freeAnswers bulk
	insertNotice, leaseNotice                                  bulk
}

// The columns of a row, in the order in which they are scanned and written.
const (
	accountColumns = "id, posted, held, credited, revenue, overrun, budgets"
	budgetColumns  = "id, account, key_id, posted, held"
	holdColumns    = "id, node, account, budget, key_id, operation, model, price, amount, so_far, created_at, expires_at, counted"
	receiptColumns = "id, account, key_id, operation, model, status, price, held, charge, overrun, reason, channel, created_at, settled_at, " + usageColumns
	usageColumns   = countColumns + ", variant, estimated, zero, anomaly"
	countColumns   = "input, cached_input, cache_write, output, reasoning, image_input, image_output, image, second, character"
	attemptColumns = "receipt, number, account, channel, model, code, status, billable, used, waste, started_at, duration, settled_at"
	entryColumns   = "account, kind, reference, customer, credit, revenue, overrun, held, available, created_at"
)

func newStatements(d Dialect, holdFor time.Duration) *statements {
	// A lease that ended while the database was down tells nothing before its
	// holder had the time to renew it. One of 0 was given back.
	clock, old := d.Clock, " AND lease_until + ? < "+d.Clock
	others := " AND lease_until < " + d.Clock + " AND (lease_until = 0 OR lease_until >= " + d.Started + " OR " + d.Started + " + ? < " + d.Clock + ")"
	if clock == "" { // no other process can be alive, or come back
		clock, others, old = "0", " AND ? > 0", " AND ? > 0"
	}
	s := &statements{
		sign:     "UPDATE node SET commits = commits + 1, lease_until = " + clock + " + ? WHERE id = ? AND NOT dead RETURNING commits, " + clock,
		register: "INSERT INTO node (commits, lease_until, dead, started_at) VALUES (1, " + clock + " + ?, FALSE, ?) RETURNING id, " + clock,
		bury:     "UPDATE node SET dead = TRUE WHERE NOT dead AND id <> ?" + others,
		forget:   "DELETE FROM node WHERE dead AND id = ?" + old + " AND id NOT IN (SELECT node FROM hold)",

		accounts:       newLookup(d, "SELECT "+accountColumns+" FROM account WHERE id", 't', " ORDER BY id"+d.Lock),
		currentBudgets: newBulk(d, "SELECT "+budgetColumns+" FROM budget WHERE NOT ended AND (account, key_id) IN (", "tt", ")"),
		budgets:        newLookup(d, "SELECT "+budgetColumns+" FROM budget WHERE id", 'n', ""),
		holds:          newLookup(d, "SELECT "+holdColumns+" FROM hold WHERE id", 't', " ORDER BY id"+d.Lock),
		ended:          newLookup(d, "SELECT "+receiptColumns+" FROM receipt WHERE id", 't', ""),

		// What a purse is changed by comes with it, and the purse must bear it:
		// nothing that was decided in memory gets past these guards.
		updateAccount: newBulk(d, "UPDATE account SET posted = posted + c.column2, held = held + c.column3, credited = credited + c.column4,"+
			" revenue = revenue + c.column5, overrun = overrun + c.column6, budgets = budgets + c.column7 FROM (", "tnnnnnn",
			") AS c WHERE id = c.column1 AND posted + c.column2 >= held + c.column3 AND held + c.column3 >= 0"),
		updateBudget: newBulk(d, "UPDATE budget SET posted = posted + c.column2, held = held + c.column3 FROM (", "nnn",
			") AS c WHERE id = c.column1 AND posted + c.column2 >= held + c.column3 AND held + c.column3 >= 0"),
		updateHold: newBulk(d, "UPDATE hold SET amount = c.column2, so_far = c.column3, expires_at = c.column4 FROM (", "tntn", ") AS c WHERE id = c.column1"),

		insertAccount: newBulk(d, "INSERT INTO account ("+accountColumns+", created_at) ", "tnnnnnnn", ""),
		insertHold:    newBulk(d, "INSERT INTO hold ("+holdColumns+") ", "tntnttttntnnb", ""),
		deleteHold:    newLookup(d, "DELETE FROM hold WHERE id", 't', ""),
		insertReceipt: newBulk(d, "INSERT INTO receipt ("+receiptColumns+", counted) ", "tttttttnnnttnnnnnnnnnnnntnnnb", ""),
		addUsage:      newBulk(d, "INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly, "+summedColumns+") ", "tntttb"+strings.Repeat("n", len(usageSums{})), addedUsage()),
		insertAttempt: newBulk(d, "INSERT INTO attempt ("+attemptColumns+") ", "tnttttnntnnnn", ""),
		insertEntry:   newBulk(d, "INSERT INTO entry ("+entryColumns+") ", "tttnnnnnnn", ""),
	}
	s.ofTasks(d)
	s.ofLocks(d)
	s.ofAnswers(d, holdFor)
	return s
}

// ofTasks are the statements about videos.
func (s *statements) ofTasks(d Dialect) {
	const all = "SELECT " + taskColumns + " FROM task WHERE "
	s.tasks = newLookup(d, all+"id", 't', " ORDER BY id"+d.Lock)
	s.taskOf = newLookup(d, all+"NOT ended AND request_id", 't', " ORDER BY id"+d.Lock)
	s.openTasks = newBulk(d, "SELECT account, key_id, COUNT(*) FROM task WHERE NOT ended AND (account, key_id) IN (", "tt", ") GROUP BY account, key_id")
	s.recentTasks = newBulk(d, "SELECT "+taskColumns+" FROM (", "tn", ") AS c JOIN task ON fingerprint = c.column1 AND noted_at > c.column2")
	s.submittedTasks = newLookup(d, all+"state = 'submitting' AND fingerprint", 't', "")

	s.insertTask = newBulk(d, "INSERT INTO task ("+taskColumns+", owner, lease_until) ", submittedKinds+livingKinds+"tn", "")
	// The version is a guard as those of the purses are.
	s.updateTask = newBulk(d, "UPDATE task SET "+assigned(livingColumns, 3)+" FROM (", "tn"+livingKinds,
		") AS c WHERE id = c.column1 AND version = c.column2 AND NOT ended")
	s.deleteTask = newLookup(d, "DELETE FROM task WHERE id", 't', "")
	s.leaseTask = newBulk(d, "UPDATE task SET owner = c.column2, lease_until = c.column3 FROM (", "ttn", ") AS c WHERE id = c.column1")
	s.freeAnswers = newLookup(d, "DELETE FROM answer WHERE state = 'open' AND request", 't', "")

	s.insertNotice = newBulk(d, "INSERT INTO notice ("+noticeColumns+", owner, lease_until) ", noticeKinds+"tn", "")
	s.leaseNotice = newBulk(d, "UPDATE notice SET owner = c.column2, lease_until = c.column3 FROM (", "ttn", ") AS c WHERE id = c.column1")
}

// assigned sets columns to those of the rows "c" from the nth on.
func assigned(columns string, n int) string {
	var b strings.Builder
	for name := range strings.SplitSeq(columns, ", ") {
		fmt.Fprintf(&b, "%s = c.column%d, ", name, n)
		n++
	}
	return strings.TrimSuffix(b.String(), ", ")
}
