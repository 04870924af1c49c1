package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestAnyNumberOfDuplicatesMakeOneCallAndOneCharge(t *testing.T) {
	stores(t, duplicates, 4)
}

func duplicates(t *testing.T, store string, count int) {
	v := newVendor(t)
	config := settings{store: store, vendor: v.url, credit: "25"}.text()
	places := make([]installation, count)
	nodes := make([]*node, count)
	for i := range places {
		places[i] = newInstallation(t, config)
		nodes[i] = places[i].start(t)
	}
	c := newClient(t, 100)
	first := map[bool]answer{}
	for _, stream := range []bool{false, true} {
		first[stream] = burst(t, v, c, nodes, stream)
	}
	for i, p := range places {
		nodes[i].kill()
		nodes[i] = p.launch(t)
	}
	for _, n := range nodes {
		n.ready(t)
	}
	for i, n := range nodes {
		for stream, was := range first {
			if a := c.steady(n, duplicate(stream)); !replays(a, was) {
				t.Errorf("node %d after a crash of all: %s\n%v, want the replay of\n%s", i, a, a.header, was)
			}
		}
		other := duplicate(false)
		other.text = "another question"
		if a := c.steady(n, other); a.status != http.StatusConflict || a.header.Get("x-should-retry") != "false" || !strings.Contains(a.body, `"idempotency_conflict"`) {
			t.Errorf("another body: %s %v", a, a.header)
		}
	}
	if n := v.calls.Load(); n != 2 {
		t.Errorf("the vendor was asked %d times for two requests", n)
	}
	all := openDatabase(t, store).captured()
	if len(all) != 2 || all[first[false].id()].charge != 5*price || all[first[true].id()].charge != 5*price {
		t.Errorf("the database has %+v", all)
	}
	if b := c.balance(t, nodes[0], acmeKey); b.Posted != "24.99999" || b.Held != "0.00" {
		t.Errorf("the balance is %+v", b)
	}
	nodes[0].sound()
}

// duplicate is the one request that is asked so often.
func duplicate(stream bool) request {
	return request{text: fmt.Sprint("stream ", stream), max: 5, stream: stream, header: map[string]string{"Idempotency-Key": fmt.Sprint("once ", stream)}}
}

// burst asks 200 times at once and gives the answer.
func burst(t *testing.T, v *vendor, c *client, nodes []*node, stream bool) (first answer) {
	t.Helper()
	const times = 200
	answers := make([]answer, times)
	each(times, times, func(i int) { answers[i] = c.steady(nodes[i%len(nodes)], duplicate(stream)) })
	for _, a := range answers {
		if a.whole() && a.header.Get("Idempotent-Replayed") == "" {
			first = a
		}
	}
	if first.id() == "" {
		t.Fatalf("none of %d was the first: %s", times, answers[0])
	}
	firsts, replayed, refused := 0, 0, 0
	for _, a := range answers {
		switch {
		case a.whole() && a.header.Get("Idempotent-Replayed") == "":
			firsts++
		case replays(a, first):
			replayed++
		case a.status == http.StatusConflict && a.header.Get("x-should-retry") == "true" && a.header.Get("Retry-After") == "1":
			refused++
		default:
			t.Errorf("a duplicate: %s %v", a, a.header)
		}
	}
	t.Logf("of %d at once, stream %t: %d first, %d replayed, %d refused while the first ran", times, stream, firsts, replayed, refused)
	if firsts != 1 || v.asked(duplicate(stream).text) != 1 {
		t.Errorf("%d were first, the vendor was asked %d times", firsts, v.asked(duplicate(stream).text))
	}
	return first
}

// replays reports whether a is the answer of the first request again.
func replays(a, first answer) bool {
	return a.whole() && a.header.Get("Idempotent-Replayed") == "true" && a.body == first.body && a.id() == first.id() &&
		a.header.Get("Content-Type") == first.header.Get("Content-Type")
}

func TestTheIdempotencyKeyOfAKilledNodeIsFreeAgain(t *testing.T) {
	t.Parallel()
	v := newGate(t)
	nodes := several(t, 2, settings{store: postgres(t), vendor: v.url, credit: "25"}.text())
	c := newClient(t, 10)
	q := request{text: "hold", max: 5, header: map[string]string{"Idempotency-Key": "once"}}
	broken := make(chan answer, 1)
	go func() { broken <- c.steady(nodes[0], q) }()
	await(t, v.arrived, "the call of the first")
	if a := c.steady(nodes[1], q); a.status != http.StatusConflict || a.header.Get("x-should-retry") != "true" {
		t.Errorf("while the first runs: %s", a)
	}
	nodes[0].kill()
	if a := await(t, broken, "the first"); a.err == nil {
		t.Errorf("the first: %s", a)
	}
	close(v.opened)
	var last answer
	took := until(t, lease, "the key is free", func() bool {
		last = c.steady(nodes[1], q)
		return last.status != http.StatusConflict
	})
	t.Logf("the key of a killed node was free after %s", took)
	if b := c.balance(t, nodes[1], acmeKey); !last.whole() || b.Posted != "24.999995" {
		t.Errorf("the duplicate got %s, and the balance is %+v", last, b)
	}
	nodes[1].sound()
}
