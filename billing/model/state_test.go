package model

import "github.com/tollhouse-ai/gateway/internal/ledgermodel"

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
	balance  int64
	credits  int8    // how often the operator asks for the one credit
	costs    []int64 // what a request may turn out to cost, in units
	extends  int64   // how often a request may be extended
	usual    int64   // of requests of unknown length: what each gets of an account that cannot spare more; 0 for known ones
	left     allowance
	needs    []guard // without any of which something breaks here
	without  [guards]bool
}

// minus is the world without a guard.
func (w world) minus(g guard) world {
	w.without[g] = true
	return w
}

func (w *world) has(g guard) bool { return !w.without[g] }

// start is the state in which nothing has happened.
func (w *world) start() state {
	s := state{left: w.left, price: 1, account: ledgermodel.Account{Posted: w.balance, Credited: w.balance}}
	s.entries = legs{customer: w.balance, credit: -w.balance}
	for n := range w.nodes {
		s.node[n].up = true
	}
	return s
}

// The worlds are so small that every amount is a single digit.
const (
	requests = 2 // at most
	nodes    = 2 // at most
	held     = 2 // set aside for each request, unless it is of unknown length and less can be spared
	more     = 1 // what an extension adds, and what its checkpoint says was used
	credited = 2 // the one credit
	lifetime = 2 // ticks after which a hold that nobody extends has expired
)

// state is everything there is, in the database, in the memory of processes
// and in the heads of clients. It is comparable, so that states can be counted.
type state struct {
	account ledgermodel.Account
	entries legs // the journal, summed
	credit  credit
	request [requests]request
	node    [nodes]node
	key     claim
	left    allowance
	price   int64 // the present one, of a unit
	broken  string
}

// legs are the sums over the journal.
type legs struct{ customer, credit, revenue, overrun int64 }

// credit is the operator's payment under one reference.
type credit struct {
	applied int8 // times
	asked   int8 // times
	acked   bool
}

// phase is how far a request has come, as its node knows.
type phase int8

const (
	unsent   phase = iota
	arrived        // at a node that found the balance sufficient
	claimed        // its idempotency key
	running        // its hold was acknowledged
	produced       // the upstream has answered; the cost is known
	settled        // the settlement was acknowledged
	kept           // its answer was kept in a step of its own
	over           // its client was told, or cut off
)

// status is how a hold ended, as its receipt says.
type status int8

const (
	open status = iota
	captured
	released
)

// identity is a process, and which of its lives: a row of the table of nodes.
type identity struct{ node, life int8 }

// request is one call with its hold.
type request struct {
	phase phase
	at    int8 // the node that serves it

	// In the database.
	hold     bool // a row of an open hold
	amount   int64
	granted  int64 // of it, when the hold was made
	owner    identity
	soFar    int64 // the checkpoint
	age      int8  // ticks since the hold was made or extended
	price    int64 // pinned
	status   status
	used     int64 // as the receipt says
	charge   int64
	overrun  int64
	room     int64 // amount and what was available when it was captured
	captures int8  // entries
	swept    bool  // it was ended by its checkpoint

	// In the node's memory.
	memory   bool  // the hold is open and its own
	cost     int64 // what the request used
	extended int64 // extensions that were acknowledged
	fresh    bool  // extended since the last tick

	// In the client's head.
	acked bool
	told  int64 // the charge
}

// kind is an operation on the ledger.
type kind int8

const (
	nothing kind = iota
	reserve
	extend
	settle
)

// pending is a transaction whose answer is on its way, or lost.
type pending struct {
	kind    kind
	request int8
	applied bool
	lost    bool // the node does not know how it ended
}

// node is a process that shares the database with others.
type node struct {
	up      bool
	life    int8
	dead    int8 // lives that others took for dead, a bit each; in the database
	pending pending
	sweep   [requests]bool // holds that it found, and is about to end
}

// markedDead reports whether one of a node's lives was taken for dead.
func (s *state) markedDead(i identity) bool { return s.node[i.node].dead&(1<<i.life) != 0 }

// claim is the row of the idempotency key that all requests of a world share.
type claim struct {
	state claimState
	by    int8
	owner identity
}

type claimState int8

const (
	unclaimed claimState = iota
	claimOpen
	claimKept
)

// allowance is what may still go wrong.
type allowance struct{ crashes, losses, expiries, ticks, reprices int8 }
