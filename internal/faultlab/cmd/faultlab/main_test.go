package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/faultlab"
)

func TestALabPrintsAndWritesItsFigures(t *testing.T) {
	var out strings.Builder
	path := t.TempDir() + "/report.json"
	if code := run(t, []string{"-seed", "1", "-requests", "60", "-total", "100", "-report", path}, &out); code != 0 {
		t.Fatalf("status %d: %s", code, out.String())
	}
	if !strings.Contains(out.String(), "seed 1: 120 cases") || !strings.Contains(out.String(), "oracle: 0 nano-units") {
		t.Errorf("printed %s", out.String())
	}
	var rep faultlab.Report
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &rep)
	}
	if err != nil || rep.Cases != 120 || rep.Tries == 0 {
		t.Errorf("wrote %+v (%v)", rep, err)
	}
}

func TestAScriptCanBePrintedAndOneRequestPlayedAlone(t *testing.T) {
	var out strings.Builder
	if code := run(t, []string{"-seed", "7", "-only", "42", "-script"}, &out); code != 0 || strings.TrimSpace(out.String()) != faultlab.Draw(7, 42).String() {
		t.Errorf("status %d: %s", code, out.String())
	}
	out.Reset()
	if code := run(t, []string{"-seed", "7", "-only", "42", "-calm"}, &out); code != 0 || !strings.Contains(out.String(), ": 1 cases") {
		t.Errorf("status %d: %s", code, out.String())
	}
}

func TestAWrongFlagIsRefused(t *testing.T) {
	var out strings.Builder
	if code := run(t, []string{"-seeds", "7"}, &out); code != 2 || !strings.Contains(out.String(), "-seeds") {
		t.Errorf("status %d: %s", code, out.String())
	}
}

// TestAFailureIsToldWithTheCommandThatShowsItAgain makes one up.
func TestAFailureIsToldWithTheCommandThatShowsItAgain(t *testing.T) {
	var out strings.Builder
	blame(t, &out, faultlab.Options{Seed: 7, Requests: 500}, &faultlab.Report{Problems: []string{"it cost too much"}, Failed: []int{42}})
	for _, want := range []string{"it cost too much", "-seed 7 -requests 500"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
}
