package chat

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/roomtest"
)

// prepared is what an upstream gets of a body.
func prepared(t testing.TB, body string, most int64) string {
	t.Helper()
	r, err := Parse([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	data, err := r.Prepared(most).Bytes()
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return string(data)
}

// ownedEdits are the edits that the gateway makes on the way to an upstream
// by itself. Those of the router are not among them.
var ownedEdits = []struct {
	name, body string
	most       int64
}{
	{"usage is asked for in a stream", `{"model":"m","messages":[],"stream":true}`, 0},
	{"usage is asked for although the caller refuses it", `{"stream_options": {"include_usage": false, "x": 1.0}, "stream": true}`, 0},
	{"stream_options of null", `{"stream":true,"stream_options":null,"user":"u"}`, 0},
	{"stream_options without include_usage", `{"stream":true,"stream_options":{"include_obfuscation":false}}`, 0},
	{"nothing where usage was asked for", `{"stream":true,"stream_options":{ "include_usage" : true }}`, 0},
	{"nothing without a stream", `{"stream":false,"stream_options":{"include_usage":false}}`, 0},
	{"a cap where there was none", `{"model":"m","messages":[]}`, 100},
	{"a cap on max_tokens", `{"max_tokens": 5000, "model":"m"}`, 100},
	{"a cap on max_tokens of null", `{"max_tokens":null,"model":"m"}`, 100},
	{"a cap on max_completion_tokens", `{"max_completion_tokens":5000,"model":"m"}`, 100},
	{"a cap on both", `{"max_completion_tokens":5000,"model":"m","max_tokens":6000}`, 100},
	{"a cap and usage", "{\n  \"stream\": true,\n  \"max_tokens\": 9\n}", 3},
}

func TestTheOwnedEditsAreTheseAndNoOther(t *testing.T) {
	var b bytes.Buffer
	for _, e := range ownedEdits {
		fmt.Fprintf(&b, "# %s", e.name)
		if e.most > 0 {
			fmt.Fprintf(&b, " (balance affords %d)", e.most)
		}
		fmt.Fprintf(&b, "\ncaller   %s\nupstream %s\n\n", oneLine(e.body), oneLine(prepared(t, e.body, e.most)))
	}
	roomtest.Golden(t, *update, "owned_edits.golden", b.Bytes())
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "⏎") }

func TestABodyWithoutAnOwnedEditTravelsUnchanged(t *testing.T) {
	for _, body := range []string{
		ask("m", ""), " \n" + ask("m", `"temperature" : 1.0 , "seed":12345678901234567890`) + "\n",
		`{"model":"m","messages":[],"x":1e400,"y":-0,"z":"\u00e9\/","stream":false}`,
		`{"stream":true,"stream_options":{"include_usage":true,"a":1,"b":2},"temperature":null}`,
	} {
		if got := prepared(t, body, 0); got != body {
			t.Errorf("got  %s\nwant %s", got, body)
		}
	}
}

// FuzzUnknownFieldsTravelUnchanged makes bodies of known and unknown members in
// any order and spelling, and checks that the upstream gets the same bytes but
// for the two edits that the gateway owns.
func FuzzUnknownFieldsTravelUnchanged(f *testing.F) {
	f.Add(uint64(1), `{"a":[1.0,-0,1e400]}`, "seed", int64(0))
	f.Add(uint64(2), `12345678901234567890`, "étrange\n", int64(7))
	f.Add(uint64(3), "\"\u2028 \\ud83d\\ude00\"", "Usage", int64(1))
	f.Fuzz(func(t *testing.T, seed uint64, value, name string, most int64) {
		body, ok := makeBody(rand.New(rand.NewPCG(seed, 0)), value, name)
		if !ok {
			t.Skip()
		}
		r, err := Parse([]byte(body))
		if err != nil {
			t.Skip() // a duplicate, or a variant of a billed name
		}
		data, err := r.Prepared(most).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		owned := map[string]bool{}
		if r.Stream {
			owned["stream_options"] = true
		}
		if most > 0 {
			owned["max_tokens"], owned["max_completion_tokens"] = true, true
		}
		if diff := cmp.Diff(members(t, []byte(body), owned), members(t, data, owned)); diff != "" {
			t.Errorf("%s became %s:\n%s", body, data, diff)
		}
		if len(owned) == 0 && string(data) != body {
			t.Errorf("%s became %s", body, data)
		}
	})
}

// makeBody joins members, known and unknown, in a random order and with random
// white space.
func makeBody(rng *rand.Rand, value, name string) (string, bool) {
	if _, err := rawjson.Index([]byte(`{"x":`+value+`}`), nil, nil); err != nil {
		return "", false
	}
	all := []string{
		`"model":"m"`, `"messages":[{"role":"user","content":"a","x":` + value + `}]`,
		string(rawjson.Quote(nil, name)) + ":" + value, `"zz":` + value,
		`"temperature":1.0`, `"seed":12345678901234567890`, `"top_p":1e-3`, `"n":1`,
		`"stream":` + []string{"true", "false", "null"}[rng.IntN(3)],
		`"stream_options":` + []string{"null", `{"x":` + value + `}`, `{"include_usage":false}`, `{"include_usage":true}`}[rng.IntN(4)],
		`"max_tokens":` + []string{"null", "12"}[rng.IntN(2)], `"max_completion_tokens":9`,
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:rng.IntN(len(all)+1)]
	var b strings.Builder
	b.WriteString("{")
	for i, m := range all {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(strings.Repeat(" ", rng.IntN(3)) + m + strings.Repeat("\n", rng.IntN(2)))
	}
	b.WriteString("}")
	return b.String(), true
}

// members lists an object's members in order, but for those that are owned.
func members(t testing.TB, body []byte, owned map[string]bool) (all []string) {
	t.Helper()
	o, err := rawjson.Index(body, nil, nil)
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	for _, m := range o.Members {
		if !owned[m.Name] {
			all = append(all, string(m.Key.Of(body))+":"+string(m.Value.Of(body)))
		}
	}
	return all
}
