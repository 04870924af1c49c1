package chat_test

import (
	"context"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

type (
	address struct {
		Street string `json:"street" jsonschema:"street and number"`
		Zip    string `json:"zip,omitempty"`
	}
	person struct {
		Name    string    `json:"name"`
		Age     int       `json:"age"`
		Address *address  `json:"address"`
		Mails   []string  `json:"mails"`
		Born    time.Time `json:"born"`
	}
	base struct{ ID int }
	// Place is embedded by its address, which encoding/json does for exported types alone.
	Place struct{ City string }

	embedded struct {
		base
		*Place
		Own string
	}
	color   string
	blob    []byte
	hidden  struct{ A, b int }
	ignored struct {
		A int
		B func() `json:"-"`
	}
	optional struct {
		A int      `json:"a,omitempty"`
		B *int     `json:"b,omitzero"`
		C []int    `json:"c,omitempty"`
		D *address `json:"d,omitempty"`
		E address  `json:"e,omitzero"`
	}
	tree struct {
		Value    int    `json:"value"`
		Children []tree `json:"children"`
	}
	// node and edge contain each other, by every kind of reference.
	node struct {
		Name  string           `json:"name"`
		Next  *node            `json:"next" jsonschema:"the next one"`
		First *edge            `json:"first,omitempty"`
		Best  [1]*edge         `json:"best"`
		Own   func()           `json:"-"`
		Named map[string]*node `json:"named,omitempty"`
	}
	edge struct {
		base
		To *node `json:"to,omitempty"`
	}
	chain struct {
		Next *chain `json:"next,omitempty"`
		Tree tree   `json:"tree"`
	}
	list   []list
	quoted struct {
		N uint `json:"n,string" jsonschema:"a number"`
	}
	celsius float64
)

// UnmarshalText reads "20C".
func (c *celsius) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%fC", (*float64)(c))
	return err
}

// MarshalText writes "20C".
func (c celsius) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%gC", float64(c)), nil }

// fitting is a type and a value of it.
type fitting struct {
	name string
	test func(t *testing.T)
}

// fits tests that answers of a type are taken, and repaired.
func fits[T any](name string, value T, strict bool) fitting {
	return fitting{name, func(t *testing.T) {
		data, err := stdjson.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		whole := string(data)
		if data[0] != '{' {
			whole = `{"value":` + whole + `}`
		}
		for _, c := range []struct {
			name    string
			answers []string
		}{
			{"whole", []string{whole}},
			{"in fences", []string{"```json\n" + whole + "\n```"}},
			{"in fences without a language", []string{"```" + whole + "```"}},
			{"in fences and prose", []string{"Here it is:\n\n```\n" + whole + "\n```\nAnything else?"}},
			{"cut, then whole", []string{whole[:len(whole)-1], whole}},
			{"empty, then whole", []string{"", whole}},
			{"prose, then in fences", []string{"I would say yes.", "```json\n" + whole + "\n```"}},
			{"of another type, then whole", []string{`[["no"]]`, whole}},
			{"a name twice, then whole", []string{`{"x":1,"x":1}`, whole}},
			{"two values, then whole", []string{whole + whole, whole}},
		} {
			t.Run(c.name, func(t *testing.T) {
				asked, g := answering(t, c.answers...)
				got, response, err := chat.Into[T](t.Context(), g, question())
				if err != nil {
					t.Fatal(err)
				}
				if response.Choices[0].Message.Content.String() != c.answers[len(c.answers)-1] {
					t.Errorf("the response is not the last call's: %+v", response)
				}
				again, err := stdjson.Marshal(got)
				if err != nil || string(again) != string(data) {
					t.Errorf("got %s (%v), want %s", again, err, data)
				}
				if len(*asked) != len(c.answers) || len(gatewaytest.Charges(t)) != len(c.answers) {
					t.Errorf("%d calls, %d receipts, want %d", len(*asked), len(gatewaytest.Charges(t)), len(c.answers))
				}
				checkFormat(t, (*asked)[0].ResponseFormat, strict)
			})
		}
		t.Run("wrong twice", func(t *testing.T) {
			asked, g := answering(t, `{"wrong":`, `"no"`)
			got, response, err := chat.Into[T](t.Context(), g, question())
			if !errors.Is(err, fault.BadGateway) || response == nil || len(*asked) != 2 {
				t.Errorf("got %v, %+v after %d calls", err, response, len(*asked))
			}
			if zero := fmt.Sprint(*new(T)); fmt.Sprint(got) != zero {
				t.Errorf("beside an error: %v", got)
			}
		})
		t.Run("without a repair", func(t *testing.T) {
			asked, g := answering(t, whole[:len(whole)-1], whole)
			if _, response, err := chat.Into[T](t.Context(), g, question(), chat.NoRepair); !errors.Is(err, fault.BadGateway) || response == nil || len(*asked) != 1 {
				t.Errorf("got %v, %+v after %d calls", err, response, len(*asked))
			}
		})
	}}
}

// question is what is asked.
func question() *chat.Request {
	return &chat.Request{Model: gatewaytest.Model, Messages: []chat.Message{{Role: "user", Content: chat.Text("Who is it?")}}}
}

// answering is a gateway whose vendor answers with texts, and the requests that it got.
func answering(t *testing.T, texts ...string) (*[]*chat.Request, *gateway.Gateway) {
	t.Helper()
	var steps []sim.Step
	for _, text := range texts {
		steps = append(steps, sim.Step{Text: text})
	}
	return recorded(t, sim.Script(steps...))
}

// recorded is a gateway of an upstream, and the requests that it passes on.
func recorded(t *testing.T, up upstream.Upstream) (*[]*chat.Request, *gateway.Gateway) {
	t.Helper()
	asked := new([]*chat.Request)
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = upstreamFunc(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
			data, err := call.Body.Bytes()
			if err != nil {
				return nil, err
			}
			r := new(chat.Request)
			if err := stdjson.Unmarshal(data, r); err != nil {
				return nil, err
			}
			*asked = append(*asked, r)
			return up.Do(ctx, call)
		})
	})
	return asked, g
}

type upstreamFunc func(context.Context, *upstream.Call) (*upstream.Reply, error)

func (f upstreamFunc) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	return f(ctx, call)
}

// checkFormat holds a response_format against the rules of strict schemas: every object lists
// all of its members as required, and has no others.
func checkFormat(t *testing.T, raw jsontext.Value, strict bool) {
	t.Helper()
	var format struct {
		Type       string
		JSONSchema struct {
			Name   string
			Strict bool
			Schema map[string]any
		} `json:"json_schema"`
	}
	if err := stdjson.Unmarshal(raw, &format); err != nil {
		t.Fatal(err)
	}
	s := format.JSONSchema
	if format.Type != "json_schema" || s.Name == "" || s.Strict != strict || s.Schema["type"] != "object" {
		t.Errorf("the format is %s, want strict %t", raw, strict)
	}
	if !strict {
		return
	}
	var visit func(s map[string]any)
	visit = func(s map[string]any) {
		if properties, ok := s["properties"].(map[string]any); ok {
			var names []string
			for name, p := range properties {
				names = append(names, name)
				visit(p.(map[string]any))
			}
			var required []string
			all, _ := s["required"].([]any)
			for _, name := range all {
				required = append(required, name.(string))
			}
			slices.Sort(names)
			slices.Sort(required)
			if diff := cmp.Diff(names, required); diff != "" || s["additionalProperties"] != false {
				t.Errorf("not strict: %v: %s", s, diff)
			}
		}
		if items, ok := s["items"].(map[string]any); ok {
			visit(items)
		}
		for _, def := range asMap(s["$defs"]) {
			visit(def.(map[string]any))
		}
		if s["type"] == nil && s["$ref"] == nil && s["anyOf"] == nil {
			t.Errorf("without a type: %v", s)
		}
	}
	visit(s.Schema)
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func TestIntoTakesAnswersOfManyTypes(t *testing.T) {
	born := time.Date(1990, 5, 17, 8, 30, 0, 0, time.UTC)
	home := address{Street: "Main Street 5", Zip: "10115"}
	link, err := url.Parse("https://example.com/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []fitting{
		fits("string", "text with \"quotes\" and ```fences```", true),
		fits("bool", true, true),
		fits("int", -5, true),
		fits("int8", int8(math.MinInt8), true),
		fits("int16", int16(math.MaxInt16), true),
		fits("int32", int32(7), true),
		fits("int64", int64(1<<53+1), true),
		fits("uint", uint(8), true),
		fits("uint8", uint8(255), true),
		fits("uint16", uint16(9), true),
		fits("uint32", uint32(10), true),
		fits("uint64", uint64(1<<60+1), true),
		fits("float32", float32(1.5), true),
		fits("float64", 2.25, true),
		fits("named string", color("red"), true),
		fits("duration", 5*time.Second, true),
		fits("month", time.May, true),
		fits("time", born, true),
		fits("big number", big.NewInt(12345678901), true),
		fits("big fraction", big.NewRat(1, 3), true),
		fits("address of a host", netip.MustParseAddr("192.0.2.1"), true),
		fits("text of its own", celsius(20), true),
		fits("bytes", []byte("hello"), true),
		fits("named bytes", blob("hello"), true),
		fits("array of bytes", [3]byte{1, 2, 3}, true),
		fits("list of strings", []string{"a", "b"}, true),
		fits("empty list", []string{}, true),
		fits("list of lists", [][]int{{1}, {2, 3}}, true),
		fits("array", [2]bool{true, false}, true),
		fits("list of structs", []address{home, {Street: "b"}}, true),
		fits("list of pointers", []*address{&home, nil}, true),
		fits("pointer to a number", new(5), true),
		fits("number of JSON", stdjson.Number("12"), true),
		fits("struct", home, true),
		fits("pointer to a struct", &home, true),
		fits("struct in a struct", person{Name: "Ann", Age: 34, Address: &home, Mails: []string{"a@b"}, Born: born}, true),
		fits("struct with a nil pointer", person{Name: "Bob", Mails: []string{}, Born: born}, true),
		fits("optional members", optional{A: 1, B: new(2), C: []int{3}, D: &home, E: home}, true),
		fits("optional members left out", optional{}, true),
		fits("embedded", embedded{base{1}, &Place{"Rome"}, "x"}, true),
		fits("unexported members", hidden{A: 1, b: 2}, true),
		fits("ignored members", ignored{A: 1}, true),
		fits("empty struct", struct{}{}, true),
		fits("unnamed struct", struct {
			X, Y float64
		}{1, 2}, true),
		fits("deep", struct {
			A struct {
				B struct{ C []struct{ D *[]int } }
			}
		}{}, true),
		fits("map", map[string]int{"a": 1, "b": 2}, false),
		fits("map of structs", map[string]address{"home": home}, false),
		fits("map by numbers", map[netip.Addr]string{netip.MustParseAddr("192.0.2.1"): "a"}, false),
		fits("struct with a map", struct{ M map[string]bool }{map[string]bool{"x": true}}, false),
		fits("struct with anything", struct{ V any }{[]any{"a", 1.5, nil}}, false),
		fits("raw JSON", struct{ V stdjson.RawMessage }{stdjson.RawMessage(`{"a":[1]}`)}, false),
		fits("contains itself", tree{1, []tree{{2, []tree{}}, {3, []tree{{4, []tree{}}}}}}, true),
		fits("list of what contains itself", []*chain{{Next: &chain{}, Tree: tree{Value: 1}}}, true),
		fits("contain each other", node{"a", &node{Name: "b"}, &edge{base{1}, nil}, [1]*edge{}, nil, nil}, false),
		fits("numbers as text", struct {
			ID   int64   `json:"id,string"`
			Rate float64 `json:"rate,omitempty,string"`
			Open bool    `json:",string"`
			Line quoted  `json:"line"`
		}{1 << 60, 1.5, true, quoted{7}}, true),
		fits("link", struct{ URL *url.URL }{link}, true),
	} {
		t.Run(c.name, c.test)
	}
}

func TestIntoRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct{ name, answer, want string }{
		{"an unknown member", `{"street":"a","zip":"1","more":1}`, "more"},
		{"a missing member", `{"zip":"1"}`, "street"},
		{"another type", `{"street":5}`, "string"},
		{"null for a required member", `{"street":null}`, "null"},
		{"a name twice", `{"street":"a","street":"b"}`, "JSON"},
		{"another spelling", `{"Street":"a"}`, "Street"},
		{"a list", `[{"street":"a"}]`, "object"},
		{"null", `null`, "object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := answers{{text: c.answer}, {text: `{"street":"Main Street"}`}}
			got, _, err := chat.Into[address](t.Context(), &g, question())
			if err != nil || got.Street != "Main Street" || len(g) != 0 {
				t.Errorf("got %+v, %v, and %d answers were not asked for", got, err, len(g))
			}
			g = answers{{text: c.answer}}
			_, _, err = chat.Into[address](t.Context(), &g, question(), chat.NoRepair)
			if !errors.Is(err, fault.BadGateway) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that names %q", err, c.want)
			}
		})
	}
}

// answers is a fake of a gateway: each call takes the first.
type answers []answer

type answer struct {
	text    string
	message *chat.Message // in the place of text
	err     error
	charge  int64 // nano-units
	see     func(ctx context.Context, r *chat.Request)
}

func (a *answers) Chat(ctx context.Context, r *chat.Request) (*chat.Response, error) {
	next := (*a)[0]
	*a = (*a)[1:]
	if next.see != nil {
		next.see(ctx, r)
	}
	if next.err != nil {
		return nil, next.err
	}
	m := chat.Message{Role: "assistant", Content: chat.Text(next.text)}
	if next.message != nil {
		m = *next.message
	}
	return &chat.Response{Choices: []chat.Choice{{Message: m}}, Charge: billing.Money(next.charge)}, nil
}

func (a *answers) ChatStream(context.Context, *chat.Request) (*chat.Stream, error) {
	return nil, errors.New("no streams")
}

func TestTheRepairSaysWhatIsWrongAndLeavesTheRequestAsItIs(t *testing.T) {
	req := question()
	req.Messages = append(make([]chat.Message, 0, 9), req.Messages...)
	before := *req
	var second *chat.Request
	g := answers{{text: `{"street":5}`}, {text: `{"street":"a"}`, see: func(_ context.Context, r *chat.Request) { second = r }}}
	if _, _, err := chat.Into[address](t.Context(), &g, req); err != nil {
		t.Fatal(err)
	}
	if len(second.Messages) != 3 || second.Messages[1].Content.String() != `{"street":5}` || !strings.Contains(second.Messages[2].Content.String(), "/properties/street") {
		t.Errorf("the repair asks %+v", second.Messages)
	}
	if diff := cmp.Diff(before.Messages, req.Messages); diff != "" || req.ResponseFormat != nil || req.Messages[:2:9][1].Role != "" {
		t.Errorf("the caller's request changed: %s", diff)
	}
}

func TestIntoDoesNotRepairWhatIsNoAnswer(t *testing.T) {
	broke := fault.New(fault.InsufficientBalance, "No money.")
	for _, c := range []struct {
		name string
		a    answer
		is   fault.Code
		want string
	}{
		{"an error", answer{err: broke}, fault.InsufficientBalance, "No money."},
		{"a refusal", answer{message: &chat.Message{Role: "assistant", Extra: []byte(`{"refusal":"I will not."}`)}}, fault.BadGateway, "I will not."},
		{"a call of a tool", answer{message: &chat.Message{Role: "assistant", ToolCalls: []chat.ToolCall{{Function: chat.CalledFunction{Name: "look"}}}}}, fault.BadGateway, `"look"`},
	} {
		g := answers{c.a}
		if _, _, err := chat.Into[address](t.Context(), &g, question()); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestIntoRefusesTypesWithoutASchema(t *testing.T) {
	g := answers{}
	if _, response, err := chat.Into[list](t.Context(), &g, question()); !errors.Is(err, fault.InvalidRequest) || response != nil {
		t.Errorf("a type that contains itself: %v", err)
	}
	if _, _, err := chat.Into[func()](t.Context(), &g, question()); !errors.Is(err, fault.InvalidRequest) {
		t.Errorf("a function: %v", err)
	}
}

func TestARepairHasAnIdempotencyKeyOfItsOwn(t *testing.T) {
	_, g := answering(t, base64.StdEncoding.EncodeToString([]byte("no")), `{"street":"a"}`)
	ctx := gateway.WithIdempotencyKey(t.Context(), strings.Repeat("k", 255))
	for range 2 {
		got, response, err := chat.Into[address](ctx, g, question())
		if err != nil || got.Street != "a" || response.Charge == 0 {
			t.Errorf("got %+v, %+v, %v", got, response, err)
		}
	}
	if got := gatewaytest.Charges(t); len(got) != 2 {
		t.Errorf("%d receipts of two calls that were repeated", len(got))
	}
}
