package server

import "net/http"

// metricsPath is where Prometheus asks.
const metricsPath = "/metrics"

// serveMetrics answers a scrape; false if the path is another's.
func (a *admin) serveMetrics(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != metricsPath || a.o.Metrics == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if !a.o.PublicMetrics {
		q := &adminRequest{admin: a, ctx: r.Context(), w: w, r: r}
		if err := q.authenticate(); err != nil {
			return false // the usual way refuses it
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	a.o.Metrics.ServeHTTP(w, r)
	return true
}
