package e2e

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
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

func TestEveryUsageRowCanBeRecomputedFromWhatIsStored(t *testing.T) {
	stores(t, recomputed, 1)
}

func recomputed(t *testing.T, store string, _ int) {
	v := newVendor(t)
	v.token = func(r *http.Request, c vendorCall, i int64) {
		if c.text() == "left" && i == 5 {
			<-r.Context().Done()
		}
		if c.text() == "cut" && i == 5 {
			panic(http.ErrAbortHandler)
		}
	}
	s := settings{store: store, vendor: v.url, credit: "0.5"}
	facts := "models:\n  n: {kind: chat, hold_tokens: 64}\n"
	p := newInstallation(t, s.text()+facts)
	n, c := p.start(t), newClient(t, 20)
	keys := []string{acmeKey, n.newKey("--account", "acme", "--budget", "0.003"), n.newKey("--account", "acme")}
	mixture(t, c, n, keys)
	for i, prices := range []string{
		"  m: {input: \"0.07\", output: \"1.000001\"}\n  n: {input: \"0\", cached_input: \"3.5\", output: \"0.9\"}\n",
		"  m: {input: \"11\", output: \"0\"}\n  n: {input: \"0.000001\", output: \"17.33\"}\n",
	} {
		s.prices = prices
		p.write(t, s.text()+facts)
		if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		reloads := regexp.MustCompile(fmt.Sprintf(`(?s)(configuration reloaded.*){%d}`, i+1))
		if n.log.await(reloads) == nil {
			t.Fatal("the server ended")
		}
		mixture(t, c, n, keys)
	}
	b := openDatabase(t, store)
	until(t, patience, "every hold ends", func() bool { return b.openHolds() == 0 })
	total := b.recompute(6)
	if got := c.balance(t, n, acmeKey); got.Posted != (billing.One/2 - total).String() {
		t.Errorf("the balance is %+v, and the charges sum to %s", got, total)
	}
	sums(t, c, n, b)
	n.sound()
}

// mixture is a load of all kinds.
func mixture(t *testing.T, c *client, n *node, keys []string) {
	t.Helper()
	each(8, 240, func(i int) {
		q := request{model: []string{"m", "n"}[i%2], text: strings.Repeat("x", 1+rand.IntN(200)), stream: i%3 == 0, key: keys[i%len(keys)]}
		switch i % 12 {
		case 3, 9:
			q.text, q.stream = "left", true
			resp, err := c.open(n, q)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = resp.Body.Read(make([]byte, 100)) // the end of it is what matters
			_ = resp.Body.Close()
			return
		case 6:
			q.text, q.stream = "cut", true
		case 0: // the hold has to be extended
			q.max, q.model = 700, "n"
		default:
			q.max = rand.Int64N(40)
		}
		if a := c.steady(n, q); a.status != http.StatusOK && a.status != http.StatusPaymentRequired {
			t.Errorf("%+v: %s", q, a)
		}
	})
}

// recompute computes every charge again from the stored price rows. There must
// be so many of them.
func (b database) recompute(prices int) (total billing.Money) {
	b.t.Helper()
	rows := map[string]*billing.Price{}
	list, err := b.db.QueryContext(b.t.Context(), "SELECT version, content FROM price")
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = list.Close() }()
	for list.Next() {
		var version, content string
		var rates []billing.Rate
		if err := list.Scan(&version, &content); err != nil {
			b.t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(content), &rates); err != nil {
			b.t.Fatal(err)
		}
		row, err := billing.NewPrice(rates...)
		if err != nil || row.Version() != version {
			b.t.Fatalf("the price row %s: %v, %v", version, row.Version(), err)
		}
		rows[version] = row
	}
	if err := list.Err(); err != nil {
		b.t.Fatal(err)
	}
	used, reasons, overrun := map[string]int{}, map[string]int{}, 0
	for id, r := range b.receipts() {
		reasons[r.reason]++
		used[r.price]++
		row, there := rows[r.price]
		cost, err := row.Cost(r.usage)
		if !there || err != nil || cost != billing.Money(r.charge+r.overrun) {
			b.t.Errorf("%s: %v computes to %s (%v), and %d + %d is stored", id, r.usage, cost, err, r.charge, r.overrun)
		}
		if r.overrun > 0 {
			overrun++
		}
		total += billing.Money(r.charge)
	}
	b.t.Logf("%d rows were recomputed, by price %v, by reason %v, %d with an overrun", len(b.receipts()), used, reasons, overrun)
	if len(used) != prices || len(reasons) < 3 {
		b.t.Errorf("%d price rows were used and %d reasons are there", len(used), len(reasons))
	}
	return total
}

// sums compares the receipts with what the API and the export say.
func sums(t *testing.T, c *client, n *node, b database) {
	t.Helper()
	of := map[string]func(receipt) string{
		"model": func(r receipt) string { return r.model },
		"key":   func(r receipt) string { return r.key },
		"day":   func(r receipt) string { return time.Unix(0, r.created).UTC().Format(time.DateOnly) },
	}
	for by, group := range of {
		charges, outputs := map[string]billing.Money{}, map[string]int64{}
		for _, r := range b.captured() {
			charges[group(r)] += billing.Money(r.charge)
			outputs[group(r)] += r.usage.Output
		}
		var list struct{ Data []map[string]any }
		if err := json.Unmarshal([]byte(c.get(n, "/v1/usage?by="+by, acmeKey).ok(t, "usage").body), &list); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(strings.NewReader(c.get(n, "/v1/usage?format=csv&by="+by, acmeKey).ok(t, "csv").body)).ReadAll()
		if err != nil || len(lines) != len(charges)+1 || len(list.Data) != len(charges) {
			t.Fatalf("by %s: %v %v, and the receipts say %v (%v)", by, lines, list.Data, charges, err)
		}
		for i, row := range list.Data {
			name, line := row[by].(string), lines[i+1]
			units, _ := row["units"].(map[string]any)
			output, _ := units["output"].(float64)
			if row["charge"] != charges[name].String() || int64(output) != outputs[name] {
				t.Errorf("by %s: %v, and the receipts say %s for %d tokens", by, row, charges[name], outputs[name])
			}
			if line[0] != name || line[len(line)-1] != charges[name].String() || line[5] != strconv.FormatInt(outputs[name], 10) {
				t.Errorf("by %s: the export says %v, and the receipts %s for %d tokens", by, line, charges[name], outputs[name])
			}
		}
	}
}
