package e2e

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
)

func TestOfTenThousandRequestsOnABalanceForAHundredExactlyAHundredSucceed(t *testing.T) {
	stores(t, hundredSucceed, 4)
}

func hundredSucceed(t *testing.T, store string, count int) {
	const balance, tokens = 100, 10
	requests := longtest.Count(10_000, 1_000)
	v := newVendor(t)
	nodes := several(t, count, settings{store: store, vendor: v.url, credit: "0.001"}.text()) // 100 × 10 tokens at 1.00 per million
	c := newClient(t, 256/count)
	var statuses [600]atomic.Int64
	began := time.Now()
	each(256, requests, func(i int) {
		a := c.steady(nodes[i%count], request{text: fmt.Sprint("question ", i), max: tokens})
		if a.err != nil {
			t.Error(a.err)
			return
		}
		if a.withheld() {
			a.status = http.StatusOK // it is charged in a moment
		}
		statuses[a.status].Add(1)
	})
	t.Logf("%d requests to %d processes in %s", requests, count, time.Since(began).Round(time.Millisecond))
	good, refused := statuses[http.StatusOK].Load(), statuses[http.StatusPaymentRequired].Load()
	if good != balance || refused != int64(requests)-balance || v.calls.Load() != balance {
		t.Errorf("%d succeeded, %d were refused for want of money, the vendor was asked %d times", good, refused, v.calls.Load())
	}
	for i, n := range nodes {
		if b := c.balance(t, n, acmeKey); b.Posted != "0.00" || b.Held != "0.00" {
			t.Errorf("node %d says that the balance is %+v", i, b)
		}
		n.sound()
	}
	if n := len(openDatabase(t, store).captured()); n != balance {
		t.Errorf("%d captures are in the database", n)
	}
}

// patience is how long something may take that comes by itself.
const patience = time.Minute
