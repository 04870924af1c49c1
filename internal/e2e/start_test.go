package e2e

import (
	"net/http"
	"testing"
)

func TestNodesThatStartAtOnceOnAnEmptyDatabaseAllServe(t *testing.T) {
	t.Parallel()
	store, v := postgres(t), newVendor(t)
	nodes := several(t, 8, settings{store: store, vendor: v.url, credit: "25"}.text())
	c := newCrowd(t, 1)
	for i, n := range nodes {
		if a := c.get(n, "/readyz", ""); a.status != http.StatusOK {
			t.Errorf("node %d: %s", i, a)
		}
		if b := c.balance(t, n, acmeKey); b.Posted != "25.00" {
			t.Errorf("node %d: the opening credit is %+v", i, b)
		}
	}
	nodes[0].sound()
}
