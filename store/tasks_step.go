package store

import (
	"fmt"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

// enlisting makes a task whose hold is elsewhere.
type enlisting struct{ video.CreateTask }

func (e *enlisting) needs(b *batch) { b.wantNew(&e.CreateTask) }

func (e *enlisting) decide(b *batch) error {
	if err := b.checkNewTask(&e.CreateTask); err != nil {
		return err
	}
	b.addTask(&e.CreateTask, false)
	return nil
}

// undo forgets a task whose caller was told that there is none.
func (e *enlisting) undo() step { return &dropping{e.Task.ID} }

func (b *batch) wantNew(n *video.CreateTask) {
	b.tasks.wanted[n.Task.ID] = true
	b.tasks.news = append(b.tasks.news, n)
}

// changing makes a step of a task that has not ended, or that is all there is to
// it.
type changing struct {
	step   video.Step
	answer *idempotency.Record
	made   bool
}

func (c *changing) needs(b *batch) { b.tasks.wanted[c.step.Task.ID] = true }

func (c *changing) decide(b *batch) error {
	r := b.tasks.known[c.step.Task.ID]
	if c.made = r.follows(&c.step); !c.made {
		return nil
	}
	if c.answer != nil {
		b.answers = append(b.answers, answer{*c.answer, r.unsettled()})
	}
	b.applyStep(r, &c.step)
	return nil
}

// unsettled is the receipt of a submission whose hold is open.
func (r *taskRow) unsettled() billing.Receipt {
	return billing.Receipt{
		ID: r.RequestID, CreatedAt: r.CreatedAt, Account: r.Account, Key: r.Key, Model: r.Model, Status: stillHeld, Channel: r.Channel,
	}
}

// stillHeld is the status of a receipt that is none yet.
const stillHeld = "held"

// dropping forgets a task.
type dropping struct{ id string }

func (d *dropping) needs(b *batch) { b.tasks.wanted[d.id] = true }

func (d *dropping) decide(b *batch) error {
	b.dropTask(b.tasks.known[d.id])
	return nil
}

// settlementRecords are the records of a settlement. One that could not be kept is an error:
// a ledger must not drop what its caller believes durable.
type settlementRecords struct {
	outcome billing.Outcome
	answers []idempotency.Record
	steps   []video.Step
	drops   []video.Drop
}

// records sorts what is to be durable with a settlement.
func records(with []billing.Record) (k settlementRecords, err error) {
	for _, record := range with {
		switch r := record.(type) {
		case billing.Outcome:
			k.outcome = r
		case idempotency.Record:
			k.answers = append(k.answers, r)
		case video.Step:
			if !r.Task.State.Terminal() {
				return k, fault.New(fault.InternalError, "The gateway settled a video that has not ended.")
			}
			k.steps = append(k.steps, r)
		case video.Drop:
			k.drops = append(k.drops, r)
		default:
			return k, fault.New(fault.InternalError, fmt.Sprintf("The ledger cannot keep a record of type %T.", record))
		}
	}
	return k, nil
}

// taskOf is the task that is to be made with a hold; nil if there is none.
func taskOf(c *billing.Charge) (*video.CreateTask, error) {
	var made *video.CreateTask
	for _, record := range c.With {
		n, ok := record.(video.CreateTask)
		switch {
		case !ok:
			return nil, fault.New(fault.InternalError, fmt.Sprintf("The ledger cannot keep a record of type %T with a hold.", record))
		case made != nil || n.Task.RequestID != c.RequestID || c.Until.IsZero():
			return nil, fault.New(fault.InternalError, "The gateway made a video whose hold is not its own, or ends with the process.")
		}
		made = &n
	}
	return made, nil
}

// wantTasks names the tasks that a settlement changes.
func (k *settlementRecords) wantTasks(b *batch) {
	for i := range k.steps {
		b.tasks.wanted[k.steps[i].Task.ID] = true
	}
	for _, d := range k.drops {
		b.tasks.wanted[d.ID] = true
	}
}

// checkSteps refuses the end of a hold whose task somebody else has changed, or has
// not made: its money must not move without it. It changes nothing.
func (k *settlementRecords) checkSteps(b *batch, request string) error {
	for i := range k.steps {
		s := &k.steps[i]
		if r := b.tasks.known[s.Task.ID]; !r.follows(s) || r.RequestID != request {
			return &fault.Error{
				Code: fault.ServiceUnavailable, RetryAfter: time.Second,
				Message: "The video was changed at the same time by another process. Look at it again.",
			}
		}
	}
	return nil
}

// applySteps changes the tasks of a hold that has ended just now.
func (k *settlementRecords) applySteps(b *batch) {
	for i := range k.steps {
		b.applyStep(b.tasks.known[k.steps[i].Task.ID], &k.steps[i])
	}
	for _, d := range k.drops {
		b.dropTask(b.tasks.known[d.ID])
	}
}

// applyLate changes the tasks of a hold that had ended by itself. What ended with its
// task is not written again.
func (k *settlementRecords) applyLate(b *batch) {
	for i := range k.steps {
		if r := b.tasks.known[k.steps[i].Task.ID]; r.follows(&k.steps[i]) && !r.held {
			b.applyStep(r, &k.steps[i])
		}
	}
	for _, d := range k.drops {
		if r := b.tasks.known[d.ID]; r != nil && !r.held {
			b.dropTask(r)
		}
	}
}
