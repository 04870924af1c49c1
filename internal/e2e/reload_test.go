package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/longtest"
)

// paid is what a receipt says of a charge.
type paid struct {
	Units   map[billing.Unit]int64 `json:"units"`
	Version string                 `json:"price_version"`
	Charge  billing.Money          `json:"charge"`
	Status  string                 `json:"status"`
}

// versions are the price rows between which the reloads go to and fro: output
// costs as many nano-units a token, input nothing.
var versions = []int64{1000, 3000, 7000}

// versioned is a configuration with the price, and with another set of the
// vendor's keys for each, so that a reload also replaces the connections.
func (s settings) versioned(i int) string {
	s.prices = fmt.Sprintf("  m: {input: \"0\", output: \"%d.00\"}\n  n: {input: \"0\", output: \"%d.00\"}\n", versions[i]/1000, versions[i]/1000)
	return strings.Replace(s.text(), "vendor-key-0123456789", fmt.Sprintf("vendor-key-%d", i), 1)
}

// rates are the versions by the name that receipts have for them.
func rates(t testing.TB) map[string]int64 {
	t.Helper()
	m := map[string]int64{}
	for _, nano := range versions {
		row, err := billing.NewPrice(
			billing.Rate{Unit: billing.Input, Amount: "0"}, billing.Rate{Unit: billing.Output, Amount: fmt.Sprintf("%d.00", nano/1000)},
		)
		if err != nil {
			t.Fatal(err)
		}
		m[row.Version()] = nano
	}
	return m
}

func TestAHundredReloadsASecondCostNoCallAndEachChargeIsAtItsPinnedPrice(t *testing.T) {
	t.Run("memory", func(t *testing.T) { reloads(t, "memory:", 1) })
	stores(t, reloads, 1)
}

func reloads(t *testing.T, store string, _ int) {
	rounds, workers := longtest.Count(1000, 300), 8
	v := newVendor(t)
	v.token = func(*http.Request, vendorCall, int64) { time.Sleep(time.Millisecond) } // so that a stream spans several reloads
	s := settings{store: store, vendor: v.url, credit: "25"}
	p := newInstallation(t, s.versioned(0))
	n, c := p.start(t), newClient(t, 2*workers)
	token := strings.TrimSpace(n.at.command(t, "admin", "token").stdout)
	c.chat(n, request{text: "warm up", max: 1})
	files := openFiles(t, n)

	over := make(chan struct{})
	var ids [8][]string
	var failed atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		each(workers, workers, func(w int) {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				a := c.chat(n, request{text: "hello", max: int64(1 + i%40), stream: i%2 == 0, model: []string{"m", "n"}[i%3%2]})
				if !a.whole() {
					failed.Add(1)
					t.Errorf("a call failed: %s", a)
				}
				ids[w] = append(ids[w], a.id())
			}
		})
	}()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range rounds {
		replace(t, p.config, s.versioned((i+1)%len(versions)))
		switch i % 10 {
		case 0:
			if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		default:
			if status := n.reload(token); status != http.StatusOK {
				t.Fatalf("reload %d: %d\n%s", i, status, n.log)
			}
		}
		<-tick.C
	}
	took := time.Since(began)
	close(over)
	<-done
	by, known := map[string]int{}, rates(t)
	calls := 0
	for _, mine := range ids {
		for _, id := range mine {
			calls++
			var r paid
			a := c.get(n, "/v1/receipts/"+id, acmeKey)
			if err := json.Unmarshal([]byte(a.body), &r); a.status != http.StatusOK || err != nil {
				t.Fatalf("the receipt of %s: %s", id, a)
			}
			nano, ok := known[r.Version]
			if want := billing.Money(nano * r.Units[billing.Output]); !ok || r.Charge != want || r.Units[billing.Output] == 0 {
				t.Errorf("%s: %d output tokens at the price %s (%d) are charged %s, not %s", id, r.Units[billing.Output], r.Version, nano, r.Charge, want)
			}
			by[r.Version]++
		}
	}
	t.Logf("%d reloads in %s (%.0f a second), %d calls, %d failed, by price %v", rounds, took.Round(time.Millisecond), float64(rounds)/took.Seconds(), calls, failed.Load(), by)
	if len(by) != len(versions) || calls == 0 {
		t.Errorf("not every price was in force for a call: %v", by)
	}
	c.http.CloseIdleConnections()
	// The last of the upstreams keeps its idle connections, and no other does.
	until(t, patience, "the files and connections of the server are as before", func() bool { return openFiles(t, n) <= files+workers })
	t.Logf("%d files and connections before, %d afterwards", files, openFiles(t, n))
	n.sound()
}

// reload has the server load its configuration, and gives the status.
func (n *node) reload(token string) int {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, "http://"+n.admin+"/admin/v1/reload", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	return read(resp).status
}

// replace replaces the configuration by another, atomically.
func replace(t testing.TB, name, text string) {
	t.Helper()
	err := os.WriteFile(name+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openFiles is how many files and connections the process has open.
func openFiles(t testing.TB, n *node) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.cmd.Process.Pid))
	if err != nil {
		t.Skipf("NOT TESTED, no list of open files: %v", err)
	}
	return len(list)
}
