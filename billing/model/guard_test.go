package model

// guard is one condition that the protocol checks. The model of the protocol
// has all of them; each is taken out in its turn to see what it is for.
type guard int

const (
	sufficient     guard = iota // a hold: posted - held >= amount, in the statement that sets it aside
	extendedWithin              // an extension: the same
	oneID                       // a request has one hold, ever
	settledOnce                 // a settlement finds the hold open, or repeats the receipt
	sweptOnce                   // so does a recovery, whatever it saw when it looked for holds
	extendsOpen                 // an extension finds the hold open
	capped                      // a charge is at most the hold and what is available
	balanced                    // what the operator bears is entered too
	leased                      // every transaction checks that its process was not taken for dead
	leavesLiving                // a recovery leaves the holds of the living alone
	sweeps                      // there is a recovery
	checkpointed                // a recovery charges the checkpoint
	counted                     // a COMMIT without an answer is looked up before it is done again
	durableFirst                // an answer leaves after its settlement is durable
	onePayment                  // a reference counts once
	renewed                     // an extension puts off the expiry
	pinned                      // a settlement takes the price of the hold
	oneOwner                    // an idempotency key has one owner
	keptTogether                // the answer is kept in the transaction that captures
	endedFirst                  // the key of a dead process is freed after its hold has ended
	standing                    // a hold for a request with a key finds its claim, and takes it over
	limited                     // an upstream makes no more of an unknown length than the hold affords
	guards
)

var guardNames = [guards]string{
	"sufficient", "extendedWithin", "oneID", "settledOnce", "sweptOnce", "extendsOpen", "capped", "balanced", "leased",
	"leavesLiving", "sweeps", "checkpointed", "counted", "durableFirst", "onePayment", "renewed", "pinned",
	"oneOwner", "keptTogether", "endedFirst", "standing", "limited",
}

func (g guard) String() string { return guardNames[g] }

// world is a bounded protocol.
type world struct {
	name     string
	requests int
	nodes    int
	keyed    bool // the requests carry the same idempotency key
	twins    bool // the second request is given the id of the first
	balance  int8
	credits  int8   // how often the operator asks for the one credit
	costs    []int8 // what a request may turn out to cost, in units
	extends  int8   // how often a request may be extended
	usual    int8   // of requests of unknown length: what each gets of an account that cannot spare more; 0 for known ones
	left     allowance
	without  [guards]bool
	eager    bool // a process that starts recovers before it does anything else, as one alone with its database does
}

// minus is the world without a guard.
func (w world) minus(g guard) world {
	w.without[g] = true
	return w
}

func (w *world) has(g guard) bool { return !w.without[g] }

// start is the state in which nothing has happened.
func (w *world) start() state {
	s := state{left: w.left, price: 1, account: account{posted: w.balance, credited: w.balance}}
	s.entries = legs{customer: w.balance, credit: -w.balance}
	for n := range w.nodes {
		s.node[n].up = true
	}
	return s
}
