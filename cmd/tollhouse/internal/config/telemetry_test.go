package config

import (
	"strings"
	"testing"
)

const observed = `
telemetry:
  otlp: http://127.0.0.1:4318/
  headers: {authorization: "Bearer ${VENDOR_KEY}"}
  service: toll
  sample: 0.25
  traces: true
  metrics: false
  callers: false
  trust_callers: true
metrics: {public: true}
`

func TestTheSectionsOfTelemetryAreRead(t *testing.T) {
	c := read(t, sound+observed)
	o := c.Telemetry
	if o.OTLP != "http://127.0.0.1:4318" || o.Service != "toll" || o.Sample != 250 || o.NoTraces || !o.NoMetrics || !o.NoCallers || !o.TrustCallers || !c.Metrics.Public {
		t.Errorf("they are %+v, %+v", o, c.Metrics)
	}
	if key := o.Headers["authorization"]; !strings.HasPrefix(key.Reveal(), "Bearer ") || strings.Contains(key.Reveal(), "$") {
		t.Errorf("the header is %q", key.Reveal())
	}
	if plain := read(t, sound); plain.Telemetry.NoTraces || plain.Telemetry.OTLP != "" || plain.Telemetry.TrustCallers || plain.Metrics.Public {
		t.Errorf("without a section they are %+v", plain.Telemetry)
	}
}

func TestASectionOfTelemetryIsTheSameWhereverItStands(t *testing.T) {
	one := read(t, sound+observed).Telemetry
	two := read(t, sound+"\n\n"+observed).Telemetry
	if !one.Same(&two) {
		t.Error("a section that was moved is another")
	}
	for old, now := range map[string]string{
		"4318": "4319", "toll\n": "tolls\n", "0.25": "0.5", "traces: true": "traces: false", "metrics: false": "metrics: true",
		"  callers: false": "  callers: true", "trust_callers: true": "trust_callers: false", "Bearer": "Basic",
	} {
		text := strings.Replace(sound+observed, old, now, 1)
		if text == sound+observed {
			t.Fatalf("%q does not stand in the section", old)
		}
		if other := read(t, text).Telemetry; one.Same(&other) {
			t.Errorf("with %q it is the same", now)
		}
	}
}

func TestASharesDecimalsAreRead(t *testing.T) {
	for text, want := range map[string]int{"1": 1000, "1.0": 1000, "0.5": 500, "0.001": 1, ".25": 250} {
		if got, err := parseShare(text); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "0.0", "1.1", "2", "-1", "0.0001", "25%", "1e-1", "0.-5"} {
		if got, err := parseShare(text); err == nil {
			t.Errorf("%s is taken for %d", text, got)
		}
	}
}

func TestOnlyTheAddressOfACollectorIsTaken(t *testing.T) {
	for _, text := range []string{"http://127.0.0.1:4318", "https://otlp.example/base"} {
		if _, err := parseCollector(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "127.0.0.1:4318", "grpc://a", "https://user:key@a", "https://a?key=b", "https://a#b"} {
		if _, err := parseCollector(text); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
