package metrics_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write the table of metrics in docs/reference/observability.md anew")

const (
	docs          = "../../../docs/"
	alertsFile    = docs + "alerts.yaml"
	dashboardFile = docs + "dashboards/tollhouse.json"
	pageFile      = docs + "reference/observability.md"
)

// family is a metric as the documents tell of it.
type family struct {
	name, kind, help string
	labels           []string
}

// families are all metrics that the gateway names itself.
func families(t *testing.T) (all []family) {
	t.Helper()
	gathered, err := filled(t).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gathered {
		if !strings.HasPrefix(g.GetName(), "tollhouse_") {
			continue
		}
		f := family{name: g.GetName(), kind: strings.ToLower(g.GetType().String()), help: g.GetHelp()}
		for _, l := range g.GetMetric()[0].GetLabel() {
			f.labels = append(f.labels, l.GetName())
		}
		all = append(all, f)
	}
	if len(all) < 40 {
		t.Fatalf("found only %d metrics", len(all))
	}
	return all
}

func TestThePageListsEveryMetric(t *testing.T) {
	var table strings.Builder
	table.WriteString("| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n")
	for _, f := range families(t) {
		labels := "–"
		if len(f.labels) > 0 {
			labels = "`" + strings.Join(f.labels, "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", f.name, f.kind, labels, f.help)
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "| Metric | Kind |", "\n\n"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table of metrics", pageFile)
	}
	want := before + table.String() + "\n" + after
	if *update {
		if err := os.WriteFile(pageFile, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("%s does not list the metrics as they are; run the test with -update", pageFile)
	}
}

var metricName = regexp.MustCompile(`\b(tollhouse|go|process)_[a-z0-9_]+\b`)

// unknown are the metrics that a query names and that there are not.
func unknown(query string, known []family) (names []string) {
	for _, name := range metricName.FindAllString(query, -1) {
		if !strings.HasPrefix(name, "tollhouse_") || slices.ContainsFunc(known, func(f family) bool {
			if f.kind != "histogram" {
				return f.name == name
			}
			return slices.Contains([]string{"_bucket", "_sum", "_count"}, strings.TrimPrefix(name, f.name))
		}) {
			continue
		}
		names = append(names, name)
	}
	return names
}

func TestAQueryOfAMetricThatThereIsNotIsFound(t *testing.T) {
	known := []family{{name: "tollhouse_a_total", kind: "counter"}, {name: "tollhouse_b_seconds", kind: "histogram"}}
	for query, want := range map[string]int{
		"rate(tollhouse_a_total[5m])": 0, "tollhouse_b_seconds_bucket": 0, "go_goroutines": 0,
		"tollhouse_a": 1, "tollhouse_b_seconds": 1, "tollhouse_a_total_sum / tollhouse_c": 2,
	} {
		if got := unknown(query, known); len(got) != want {
			t.Errorf("%s: found %v", query, got)
		}
	}
}

func TestEveryQueryOfTheDashboardNamesMetricsThatThereAre(t *testing.T) {
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	known, queries := families(t), 0
	var all strings.Builder
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries++
			all.WriteString(target.Expr + "\n")
			if names := unknown(target.Expr, known); len(names) > 0 || target.Expr == "" {
				t.Errorf("the panel %q asks for %v", p.Title, names)
			}
			parse(t, target.Expr)
		}
	}
	if queries < 30 {
		t.Errorf("the dashboard has only %d queries", queries)
	}
	for _, f := range known {
		if !strings.Contains(all.String(), f.name) {
			t.Errorf("no panel shows %s", f.name)
		}
	}
}

// parse has Prometheus' own tool read a query, where there is one.
func parse(t *testing.T, query string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		return
	}
	rule, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "g", "rules": []any{
		map[string]string{"record": "r", "expr": strings.ReplaceAll(query, "$__rate_interval", "5m")},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/rule.yaml"
	if err := os.WriteFile(path, rule, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", query, err, out)
	}
}

func TestEveryAlertNamesMetricsThatThereAreAndIsExplained(t *testing.T) {
	data, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      struct{ Severity string }
				Annotations struct{ Summary string }
			}
		}
	}
	if err := yaml.Unmarshal(data, &alerts); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	known := families(t)
	for _, g := range alerts.Groups {
		if len(g.Rules) < 10 {
			t.Errorf("there are only %d alerts", len(g.Rules))
		}
		for _, r := range g.Rules {
			if names := unknown(r.Expr, known); len(names) > 0 {
				t.Errorf("the alert %s asks for %v", r.Alert, names)
			}
			if r.Labels.Severity == "" || r.Annotations.Summary == "" {
				t.Errorf("the alert %s has no severity or no summary", r.Alert)
			}
			if !strings.Contains(string(page), "| `"+r.Alert+"` |") {
				t.Errorf("%s does not say what to do at %s", pageFile, r.Alert)
			}
		}
	}
}

// An alert of what happens once, or comes and goes, must be raised all the same.
func TestAlertsAreRaised(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("NOT DONE: promtool is not installed (Debian's package prometheus has it)")
	}
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	// A channel that fails each trial; a counter that is there from its first event.
	tests := fmt.Sprintf(`
rule_files: [%q]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {series: 'tollhouse_channel_state{instance="a",channel="one",state="resting"}', values: '1 1 1 0 1 1 1 0 1 1 1 0 1 1 1 0 1 1 1 0 1 1 1 0 1 1 1 0 1 1 1 0 1 1 1 0'}
      - {series: 'tollhouse_channel_state{instance="a",channel="one",state="probing"}', values: '0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1'}
      - {series: 'tollhouse_task_late_total{instance="a",model="film"}', values: '_x12 1x24'}
      - {series: 'tollhouse_capture_retries_total{instance="a",state="given_up"}', values: '0x12 1x24'}
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{alertstate="firing"})
        eval_time: 8m
        exp_samples:
          - {labels: '{alertname="TollhouseChannelOut"}', value: 1}
          - {labels: '{alertname="TollhouseVideosLate"}', value: 1}
          - {labels: '{alertname="TollhouseCapturesGivenUp"}', value: 1}
`, rules)
	path := filepath.Join(t.TempDir(), "alerts_test.yaml")
	if err := os.WriteFile(path, []byte(tests), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
