package ledgermodel

// GrantExample is a hold that is asked for. What it is granted was found by hand.
type GrantExample struct {
	Name      string
	Posted    int64
	Held      int64 // of it, by a request of another key
	Budget    int64 // of the key; 0 for none
	KeyHeld   int64 // by a request of the same key, besides Held
	Request   Request
	Granted   int64 // or Refused, or MustRunAlone
	Available int64 // when it is granted
}

// What a [GrantExample] is granted that gets no hold: its least is not available, or
// what cannot be bounded is not covered while another request runs.
const (
	Refused      = -1
	MustRunAlone = -2
)

// Grants are the examples of [Account.Grant], for the reference and for every ledger.
func Grants() []GrantExample {
	return []GrantExample{
		{"nothing is always granted", 0, 0, 0, 0, Request{}, 0, 0},
		{"the bound, where there is enough", 10, 0, 0, 0, Request{Bound: 10, Least: 1}, 10, 0},
		{"what is left", 7, 0, 0, 0, Request{Bound: 10, Least: 1}, 7, 0},
		{"just the least", 1, 0, 0, 0, Request{Bound: 10, Least: 1}, 1, 0},
		{"less than the least", 1, 0, 0, 0, Request{Bound: 10, Least: 2}, Refused, 0},
		{"no least means the bound", 9, 0, 0, 0, Request{Bound: 10}, Refused, 0},
		{"a least above the bound is the bound", 10, 0, 0, 0, Request{Bound: 5, Least: 20}, 5, 5},
		{"what others hold is not there", 10, 6, 0, 0, Request{Bound: 5, Least: 1}, 4, 0},
		{"a budget is a second bound", 10, 0, 5, 3, Request{Bound: 3}, Refused, 0},
		{"a budget that is enough", 10, 0, 5, 3, Request{Bound: 2}, 2, 0},
		{"an account that has less than the budget", 6, 3, 5, 0, Request{Bound: 4}, Refused, 0},

		{"of unknown length: the bound, half stays free", 10, 0, 0, 0, Request{Bound: 5, Usual: 1, Least: 1}, 5, 5},
		{"of unknown length: what can be spared", 10, 0, 0, 0, Request{Bound: 9, Usual: 1, Least: 1}, 5, 5},
		{"of unknown length: what others leave to spare", 10, 2, 0, 0, Request{Bound: 9, Usual: 1, Least: 1}, 3, 5},
		{"of unknown length: the usual, nothing can be spared", 10, 5, 0, 0, Request{Bound: 9, Usual: 2, Least: 1}, 2, 3},
		{"of unknown length: the usual, more than half is held", 10, 7, 0, 0, Request{Bound: 9, Usual: 2, Least: 1}, 2, 1},
		{"of unknown length: what is left of the usual", 10, 9, 0, 0, Request{Bound: 9, Usual: 2, Least: 1}, 1, 0},
		{"of unknown length: less than the least", 10, 9, 0, 0, Request{Bound: 9, Usual: 3, Least: 2}, Refused, 0},
		{"of unknown length: a bound below the usual", 10, 8, 0, 0, Request{Bound: 1, Usual: 4, Least: 1}, 1, 1},
		{"of unknown length: what the budget can spare", 100, 0, 6, 0, Request{Bound: 50, Usual: 1, Least: 1}, 3, 3},
		{"of unknown length: the usual of a small budget", 100, 0, 2, 0, Request{Bound: 50, Usual: 2, Least: 1}, 2, 0},
		{"of unknown length: a balance of nothing", 0, 0, 0, 0, Request{Bound: 9, Usual: 1, Least: 1}, Refused, 0},

		{"firm, and the hold covers it", 10, 5, 0, 0, Request{Bound: 3, Least: 1, Firm: 3}, 3, 2},
		{"firm, not covered, alone", 10, 0, 0, 0, Request{Bound: 12, Usual: 4, Least: 1, Firm: 12}, 5, 5},
		{"firm, not covered, beside another", 10, 1, 0, 0, Request{Bound: 12, Usual: 4, Least: 1, Firm: 12}, MustRunAlone, 0},
		{"firm: more than can be spared, to be covered", 10, 4, 0, 0, Request{Bound: 6, Usual: 1, Least: 1, Firm: 6}, 6, 0},
		{"firm, of a bound that the caller chose", 10, 8, 0, 0, Request{Bound: 3, Least: 1, Firm: 3}, MustRunAlone, 0},
		{"firm, of a bound that the caller chose, alone", 2, 0, 0, 0, Request{Bound: 3, Least: 1, Firm: 3}, 2, 0},
		{"firm is never more than the bound", 10, 5, 0, 0, Request{Bound: 3, Least: 1, Firm: 30}, 3, 2},
		{"firm, a budget that does not cover it, alone", 100, 0, 2, 0, Request{Bound: 5, Least: 1, Firm: 5}, 2, 0},
	}
}

// ChargeExample is a settlement. What is paid and borne was found by hand.
type ChargeExample struct {
	Name            string
	Posted, Other   int64 // Other is held by another request
	Hold, Cost      int64
	Charge, Overrun int64
}

// Charges are the examples of [Account.Charge], for the reference and for every ledger.
func Charges() []ChargeExample {
	return []ChargeExample{
		{"below the hold", 10, 0, 4, 3, 3, 0},
		{"the hold", 10, 0, 4, 4, 4, 0},
		{"above it, available", 10, 0, 4, 9, 9, 0},
		{"above it, just available", 10, 0, 4, 10, 10, 0},
		{"above what is available", 10, 0, 4, 13, 10, 3},
		{"what others hold is not available", 10, 5, 4, 7, 5, 2},
		{"nothing but the hold", 10, 6, 4, 7, 4, 3},
	}
}
