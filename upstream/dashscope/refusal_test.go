package dashscope

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// refusalRow is an error of the vendor's and what becomes of it.
type refusalRow struct {
	status int
	code   string
	want   fault.Code
	is     int
	fatal  bool
	again  bool // nothing was billed, so another channel may be asked
}

// body is the error as the vendor writes it.
func (row refusalRow) body() string {
	return `{"request_id":"r1","code":"` + row.code + `","message":"the vendor says so"}`
}

// check makes a call that is answered so, and returns its error. The vendor's
// text is in the log in any case.
func (row refusalRow) check(t *testing.T, call *upstream.Call) *fault.Error {
	t.Helper()
	e, f := vendortest.Refused(t, newDriver(t, vendortest.Responds(row.status, nil, row.body())), call)
	if e.Code != row.want || e.HTTPStatus() != row.is || f.Fatal != row.fatal || f.Refused != row.again || !f.Sent {
		t.Errorf("%s %+v: %v, %+v", call.Op, row, e, f)
	}
	if !strings.Contains(e.Error(), "the vendor") {
		t.Errorf("%s %+v: the log says %v", call.Op, row, e)
	}
	return e
}
