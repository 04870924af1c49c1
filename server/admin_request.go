package server

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// AttemptView is a failed try of a request, for the operator.
type AttemptView struct {
	Channel    string                 `json:"channel"`
	Model      string                 `json:"model"`      // the upstream's id
	StartedAt  int64                  `json:"started_at"` // Unix seconds
	DurationMS int64                  `json:"duration_ms"`
	Code       string                 `json:"code"`
	Status     int                    `json:"status,omitempty"` // the vendor's
	Billable   bool                   `json:"billable"`         // by the vendor
	Units      map[billing.Unit]int64 `json:"units,omitempty"`
	Waste      billing.Money          `json:"waste"`
}

// RequestView is the answer of GET /admin/v1/requests/{id}.
type RequestView struct {
	ReceiptView
	Account  string        `json:"account"`
	Key      string        `json:"key,omitempty"`
	Overrun  billing.Money `json:"overrun"`
	Attempts []AttemptView `json:"failed_attempts"`
}

// showRequest is GET /admin/v1/requests/{id}: a receipt of any account with the
// tries that failed before.
func (q *adminRequest) showRequest() (any, error) {
	records, err := q.records()
	if err != nil {
		return nil, err
	}
	r, attempts, err := records.Request(q.ctx, q.name)
	if err != nil {
		return nil, err
	}
	v := RequestView{
		ReceiptView: NewReceiptView(q.o.Accounts, r), Account: r.Account, Key: r.Key, Overrun: r.Overrun,
		Attempts: make([]AttemptView, len(attempts)),
	}
	for i, a := range attempts {
		v.Attempts[i] = AttemptView{
			Channel: a.Channel, Model: a.Model, StartedAt: a.StartedAt.Unix(), DurationMS: a.Duration.Milliseconds(),
			Code: a.Code, Status: a.Status, Billable: a.Billable, Units: units(a.Used), Waste: a.Waste,
		}
	}
	return v, nil
}

// WasteView is a row of GET /admin/v1/waste.
type WasteView struct {
	Channel  string        `json:"channel"`
	Model    string        `json:"model"` // the upstream's id
	Failed   int64         `json:"failed"`
	Billable int64         `json:"billable"`
	Waste    billing.Money `json:"waste"`
}

// waste is GET /admin/v1/waste: what failed tries may have cost the operator.
func (q *adminRequest) waste() (any, error) {
	records, err := q.records()
	if err != nil {
		return nil, err
	}
	query, _, err := q.query()
	if err != nil {
		return nil, err
	}
	rows, err := records.Waste(q.ctx, query)
	if err != nil {
		return nil, err
	}
	views := make([]WasteView, len(rows))
	for i, r := range rows {
		views[i] = WasteView(r)
	}
	return newList(views), nil
}

func (q *adminRequest) records() (billing.Records, error) {
	if r, ok := q.o.Accounts.(billing.Records); ok {
		return r, nil
	}
	return nil, fault.New(fault.NotFound, "The ledger of this server keeps no failed tries.")
}
