package stored_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/internal/stored"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// The input and the output of every request and response of a test, as they are sent again.
const (
	userItem      = `{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}`
	reasoningItem = `{"type":"reasoning","summary":[],"encrypted_content":"thoughts 1"}`
	messageItem   = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"answer 1"}]}`
	callItem      = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}`
	outputItem    = `{"type":"function_call_output","call_id":"call_1","output":"x"}`
)

// store is a store in memory that counts what is read, and fails as a test says.
type store struct {
	state.Store
	err     error
	broken  bool // each method that gets a context panics
	full    bool // Admit refuses
	settles bool // the meter keeps responses
	reads   int  // by Get and by Has
	bytes   int  // of bodies that were read
	put     []state.Response
}

func (s *store) KeptBy(any) bool { return s.settles }

func (s *store) Admit(string, int) error {
	if s.full {
		return fault.New(fault.InvalidRequest, "as many bytes as it may")
	}
	return nil
}

func (s *store) fail() error {
	if s.broken {
		panic("broken")
	}
	return s.err
}

func (s *store) Get(ctx context.Context, account, id string) (*state.Response, error) {
	s.reads++
	if err := s.fail(); err != nil {
		return nil, err
	}
	r, err := s.Store.Get(ctx, account, id)
	if r != nil {
		s.bytes += len(r.Body)
	}
	return r, err
}

func (s *store) Has(ctx context.Context, account, id string) (bool, error) {
	s.reads++
	if err := s.fail(); err != nil {
		return false, err
	}
	return s.Store.Has(ctx, account, id)
}

func (s *store) Put(ctx context.Context, r state.Response) error {
	if err := s.fail(); err != nil {
		return err
	}
	s.put = append(s.put, r)
	return s.Store.Put(ctx, r)
}

func (s *store) Delete(ctx context.Context, account, id string) (bool, error) {
	if err := s.fail(); err != nil {
		return false, err
	}
	return s.Store.Delete(ctx, account, id)
}

// budget is the memory of a request.
type budget struct{ left, taken int64 }

func (b *budget) Reserve(n int64) error {
	if n > b.left {
		return fault.New(fault.ServiceUnavailable, "no memory")
	}
	b.left, b.taken = b.left-n, b.taken+n
	return nil
}

// passing are the members of a request that the channels pass.
type passing []string

func (p passing) Passes(name, _ string) bool { return slices.Contains(p, name) }

// lab is a Responses, and what a test sees of it.
type lab struct {
	*stored.Responses
	store  *store
	log    strings.Builder
	now    time.Time
	memory budget        // of all requests
	routes stored.Routes // of all requests
	turns  int           // responses that vendors have made
	model  string        // of all requests
}

func newLab(mode stored.Mode, secrets ...string) *lab {
	l := &lab{
		store: &store{Store: &memory.Responses{}}, now: time.Now(), memory: budget{left: 1 << 40},
		routes: stored.Routes{Channels: passing(nil), Only: true, Channel: "a"}, model: "m",
	}
	var keys []secret.String
	for _, s := range append(secrets, "the secret of the deployment")[:max(1, len(secrets))] {
		keys = append(keys, secret.New(s))
	}
	l.Responses = stored.New(stored.Options{
		Mode: mode, Store: l.store, Retention: time.Hour, Timeout: time.Second, Secrets: seal.New(keys),
		Now: func() time.Time { return l.now }, Logger: slog.New(slog.NewTextHandler(&l.log, nil)),
	})
	return l
}

// kinds are how a body is parsed: as a request, and as a count of its tokens.
var kinds = map[string]func([]byte) (*responsesop.Request, error){"request": responsesop.Parse, "count": responsesop.ParseCount}

// ask expands and checks a request of an account, as the pipeline does. members are those
// beside the model.
func (l *lab) ask(t testing.TB, account, kind, members string) (*stored.Turn, *responsesop.Request, error) {
	t.Helper()
	r, err := kinds[kind]([]byte(`{"model":"` + l.model + `",` + members + `}`))
	if err != nil {
		t.Fatal(err)
	}
	turn := l.Begin(r, stored.Caller{Account: account, RequestID: "req_1", Memory: &l.memory})
	if err := l.Expand(t.Context(), turn, r, l.routes); err != nil {
		return turn, r, err
	}
	return turn, r, r.Check(&operation.Facts{}, nil, l.routes.Channels)
}

// keep has a request of an account answered with the next response, to which members are
// added. It returns the request's turn and what the client gets.
func (l *lab) keep(t testing.TB, account, ask string, more ...string) (*stored.Turn, string) {
	t.Helper()
	turn, _, err := l.ask(t, account, "request", ask)
	if err != nil {
		t.Fatal(err)
	}
	l.turns++
	turn.Quoted(100)
	turn.Answered(t.Context(), "a", "1")
	return turn, string(turn.Edit(answer(l.turns, more...), true))
}

// answer is a vendor's nth response, with reasoning, a message and a call. edits are members
// that replace its own.
func answer(n int, edits ...string) []byte {
	response := fmt.Appendf(nil, `{"id":"resp_%[1]d","object":"response","status":"completed","previous_response_id":null,"output":[`+
		`{"id":"rs_%[1]d","type":"reasoning","summary":[],"encrypted_content":"thoughts %[1]d"},{"id":"rs_gone_%[1]d","type":"reasoning","summary":[]},`+
		`{"id":"msg_%[1]d","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"answer %[1]d"}]},`+
		`{"id":"fc_%[1]d","type":"function_call","status":"completed","call_id":"call_%[1]d","name":"f","arguments":"{}"}],"usage":{"input_tokens":20,"output_tokens":30}}`, n)
	for _, edit := range edits {
		name, value, _ := strings.Cut(edit, "=")
		response = rawjson.Apply(response, rawjson.Set(name, []byte(value)))
	}
	return response
}

// output is an edit of the answer: its items and one more.
func output(n int, item string) string {
	items := string(rawjson.Lookup(answer(n), "output"))
	return "output=" + strings.TrimSuffix(items, "]") + "," + item + "]"
}

// sent are the items of the input that goes upstream, and all of the body.
func sent(t testing.TB, r *responsesop.Request) (items []string, body string) {
	t.Helper()
	data, err := r.Outgoing(0).Body.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range rawjson.Elements(rawjson.Lookup(data, "input")) {
		items = append(items, string(item))
	}
	return items, string(data)
}

// refusal is what a request is refused with: its code and its field; empty for none.
func refusal(err error) (code fault.Code, param string) {
	f := fault.From(err)
	if f == nil {
		return "", ""
	}
	return f.Code, f.Param
}
