package e2e

import (
	"testing"
	"time"
)

// nodeLease is how long a node's holds are safe from the others after its last
// sign of life.
const nodeLease = 10 * time.Second

func TestTheStreamsOfEveryNodeOutliveAnOutageThatIsLongerThanTheirLease(t *testing.T) {
	t.Parallel()
	db := server(t)
	texts := []string{"one", "two"}
	v := newScript(t, texts...)
	nodes := several(t, len(texts), settings{store: db.URL, vendor: v.url, credit: "25"}.text())
	c, w := newCrowd(t, 50), newWitness()
	answers := make(chan answer, len(texts))
	for i, text := range texts {
		go func() {
			q := request{text: text, max: scripted, stream: true}
			a := c.chat(nodes[i], q)
			w.note(q, a)
			answers <- a
		}()
		await(t, v.arrived, "a stream begins")
	}
	if err := db.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	<-time.After(nodeLease + 2*time.Second) // what has to pass is the lease
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		until(t, patience, "service returns", func() bool {
			q := request{text: "after all", max: 1}
			a := c.chat(n, q)
			w.note(q, a)
			return a.whole()
		})
	}
	for _, text := range texts {
		close(v.resume[text])
		close(v.end[text])
	}
	for range texts {
		if a := await(t, answers, "a stream ends"); !a.whole() {
			t.Errorf("a stream that outlived the outage: %s", a)
		}
	}
	settled(t, w, nodes, openBooks(t, db.URL))
}
