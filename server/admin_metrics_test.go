package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
)

func TestMetricsNeedTheAdminTokenUnlessTheyArePublic(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1\n") })
	for _, row := range []struct {
		name          string
		method, token string
		public        bool
		metrics       http.Handler
		status        int
	}{
		{"with the token", http.MethodGet, "admin-1", false, metrics, 200},
		{"its head", http.MethodHead, "admin-1", false, metrics, 200},
		{"without", http.MethodGet, "", false, metrics, 401},
		{"with another", http.MethodGet, "admin-2", false, metrics, 401},
		{"public", http.MethodGet, "", true, metrics, 200},
		{"a POST", http.MethodPost, "admin-1", true, metrics, 404},
		{"none", http.MethodGet, "admin-1", true, nil, 404},
	} {
		h := server.NewAdmin(server.AdminOptions{
			Token: secret.New("admin-1"), Accounts: memory.NewLedger(memory.LedgerOptions{}), Keys: new(memory.Keys),
			Metrics: row.metrics, PublicMetrics: row.public,
		})
		r := httptest.NewRequest(row.method, "/metrics", http.NoBody)
		if row.token != "" {
			r.Header.Set("Authorization", "Bearer "+row.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if told := w.Body.String() == "m 1\n"; w.Code != row.status || told != (row.status == 200) {
			t.Errorf("%s: %d %s", row.name, w.Code, w.Body)
		}
	}
}
