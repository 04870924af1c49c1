package cassette_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/cassette"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// callOf is a call with a JSON body.
func callOf(op upstream.Op, stream bool, body string) *upstream.Call {
	c := &upstream.Call{Op: op, Model: rawjson.LookupString([]byte(body), "model"), Stream: stream, RequestID: "req_1", ContentType: "application/json"}
	if o, err := rawjson.Index([]byte(body), nil, nil); err == nil {
		c.Body = upstream.ObjectBody(o)
	} else {
		c.Body = upstream.BytesBody([]byte(body))
	}
	return c
}

// said is what came of a call.
type said struct {
	Status  int
	Kind    string
	Body    string
	Dropped []string
	Err     string
}

// ask makes a call and reads the answer.
func ask(ctx context.Context, up upstream.Upstream, call *upstream.Call) said {
	reply, err := up.Do(ctx, call)
	if err != nil {
		return said{Err: detail(err)}
	}
	data, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	return said{Status: reply.Status, Kind: reply.Header.Get("Content-Type"), Body: string(data), Dropped: reply.Dropped, Err: detail(err)}
}

// detail is all that an error says to a router and to a caller.
func detail(err error) string {
	if err == nil {
		return ""
	}
	f, found := upstream.FailureOf(err)
	plain := *f
	plain.Err, plain.Key = nil, ""
	var e *fault.Error
	if !errors.As(err, &e) {
		return "plain: " + err.Error()
	}
	return fmt.Sprintf("%s %d %q %q %s %s, failure %t %+v", e.Code, e.HTTPStatus(), e.Message, e.Param, e.RetryAfter, e.Body, found, plain)
}

// record records calls and returns the file and what came of them.
func record(t *testing.T, next upstream.Upstream, calls ...*upstream.Call) (file string, all []said) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "cassette.jsonl")
	r, err := cassette.Record(next, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		all = append(all, ask(t.Context(), r, call))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return file, all
}

// replay is a player of a file.
func replay(t *testing.T, file string) *cassette.Player {
	t.Helper()
	p, err := cassette.Replay(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const hello = `{"model":"m","messages":[{"role":"user","content":"Hello."}]}`

// answering is an upstream that gives bodies as they are, one after the other.
func answering(kind string, bodies ...io.Reader) upstream.Upstream {
	return upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		body := bodies[0]
		bodies = bodies[1:]
		return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body), Dropped: []string{"seed"}}, nil
	})
}

func TestWhatWasRecordedIsReplayedByteForByte(t *testing.T) {
	lost := errors.New("connection reset by peer")
	for _, c := range []struct {
		name, kind string
		stream     bool
		body       io.Reader
	}{
		{"a document", "application/json", false, strings.NewReader(`{"a":"é\u00e9\/<>","a":1e2,"b":[1.0,2]}`)},
		{"a document over several lines", "application/json", false, strings.NewReader("{\n \"a\": 1\n}\n")},
		{"a stream", "text/event-stream", true, strings.NewReader("data: {\"a\":\"\\u2028\"}\n\ndata: 2\n\n: comment\n\ndata: [DONE]\n\n")},
		{"a stream with other line ends", "text/event-stream; charset=utf-8", true, strings.NewReader("event: x\r\ndata: 1\r\n\r\ndata: 2\r\rdata: 3")},
		{"a stream byte by byte", "text/event-stream", true, iotest.OneByteReader(strings.NewReader("data: 1\n\ndata: 2\n\n"))},
		{"an empty answer", "application/json", false, strings.NewReader("")},
		{"audio", "audio/mpeg", false, bytes.NewReader([]byte{0xff, 0xfb, 0, 1, 2})},
		{"text", "text/plain", false, strings.NewReader("1\n00:01 --> 00:02\n")},
		{"a stream that breaks", "text/event-stream", true, io.MultiReader(strings.NewReader("data: 1\n\ndata: "), iotest.ErrReader(lost))},
		{"a stream that breaks with a fault", "text/event-stream", true, io.MultiReader(strings.NewReader("data: 1\n\n"), iotest.ErrReader((&upstream.Failure{Sent: true, Err: lost}).Fault()))},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := callOf(upstream.ChatCompletion, c.stream, hello)
			file, want := record(t, answering(c.kind, c.body), call)
			p := replay(t, file)
			for range 2 {
				if diff := cmp.Diff(want[0], ask(t.Context(), p, call)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestErrorsOfAVendorAreReplayed(t *testing.T) {
	for _, c := range []error{
		&fault.Error{Code: "content_policy", Message: "No.", Param: "messages", Status: 422, Body: []byte(`{"error":{"message":"No."}}`), Err: &upstream.Failure{Status: 422, Sent: true}},
		(&upstream.Failure{Status: 429, Sent: true, Refused: true, Err: errors.New("slow down")}).Fault().With(func(e *fault.Error) { e.RetryAfter = 1500 * time.Millisecond }),
		(&upstream.Failure{Status: 401, Sent: true, Fatal: true, Ambiguous: true, OtherKey: true, Key: "k"}).Fault(),
		(&upstream.Failure{Err: errors.New("no route to host")}).Fault(),
		(&upstream.Failure{Status: 404, Sent: true, NoModel: true, Stated: true, Oversized: true}).Fault(),
		upstream.NotSent(fault.Invalid("seed", "No seed.")),
		fault.New(fault.InternalError, "Bug."),
	} {
		call := callOf(upstream.ChatCompletion, false, hello)
		file, want := record(t, upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, c }), call)
		if diff := cmp.Diff(want[0], ask(t.Context(), replay(t, file), call)); diff != "" {
			t.Errorf("%v: %s", c, diff)
		}
	}
}

func TestEqualRequestsGetTheirAnswersInOrder(t *testing.T) {
	one, other := callOf(upstream.ChatCompletion, false, hello), callOf(upstream.ChatCompletion, false, strings.Replace(hello, "Hello.", "Bye.", 1))
	file, _ := record(t, answering("application/json", strings.NewReader(`1`), strings.NewReader(`2`), strings.NewReader(`3`)), one, other, one)
	p := replay(t, file)
	// In other words, and with a user of another process: it is the same request.
	same := callOf(upstream.ChatCompletion, false, `{"user":"9f3a", "messages":[{"content":"Hel\u006co.","role":"user"}],"model":"m"}`)
	var got []string
	for _, call := range []*upstream.Call{one, same, one, other, other} {
		got = append(got, ask(t.Context(), p, call).Body)
	}
	if want := []string{"1", "3", "3", "2", "2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMissNamesTheNearestEntryAndTheField(t *testing.T) {
	file, _ := record(t, answering("application/json", strings.NewReader(`1`), strings.NewReader(`2`), strings.NewReader(`3`)),
		callOf(upstream.ChatCompletion, false, hello),
		callOf(upstream.ChatCompletion, false, `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello."}],"temperature":0.5}`),
		callOf(upstream.Embeddings, false, `{"model":"e","input":"Hello."}`),
	)
	for _, c := range []struct {
		name  string
		call  *upstream.Call
		param string
		wants []string
	}{
		{"a text", callOf(upstream.ChatCompletion, false, strings.Replace(hello, "Hello.", "Bye.", 1)), "messages[0].content", []string{"Entry 1", `"Hello."`, `"Bye."`}},
		{"a number", callOf(upstream.ChatCompletion, false, `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello."}],"temperature":0.7}`), "temperature", []string{"Entry 2", "0.5", "0.7"}},
		{"a member more", callOf(upstream.ChatCompletion, false, strings.Replace(hello, `"m",`, `"m","seed":1,`, 1)), "seed", []string{"Entry 1", "it has nothing, the call has 1"}},
		{"a member less", callOf(upstream.ChatCompletion, false, `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello."}]}`), "temperature", []string{"Entry 2", "it has 0.5, the call has nothing"}},
		{"a stream", callOf(upstream.ChatCompletion, true, hello), "stream", []string{"Entry 1", "false", "true"}},
		{"another operation", callOf(upstream.Rerank, false, `{"model":"e","input":"Hello."}`), "operation", []string{"Entry 3", "embeddings", "rerank"}},
		{"two fields", callOf(upstream.Embeddings, false, `{"model":"f","input":"Hello."}`), "model", []string{"Entry 3"}},
	} {
		_, err := replay(t, file).Do(t.Context(), c.call)
		f := fault.From(err)
		if f == nil || f.HTTPStatus() != 400 || f.Param != c.param {
			t.Errorf("%s: got %v, want a 400 that names %s", c.name, err, c.param)
			continue
		}
		for _, want := range append(c.wants, file, c.param) {
			if !strings.Contains(f.Message, want) {
				t.Errorf("%s: %q does not name %s", c.name, f.Message, want)
			}
		}
		if v, found := upstream.FailureOf(err); !found || !upstream.CallersFault(v.Status) {
			t.Errorf("%s: another channel is asked after %+v", c.name, v)
		}
	}
}

// Whatever headers a call and an answer have, and whatever a vendor's errors say, no key gets
// into the file.
func TestNoKeyIsInACassette(t *testing.T) {
	const key = "sk-proj-Zz9hostileKEY0123456789abcdef"
	hostile := []string{
		"Authorization", "authorization", "AUTHORIZATION", "Proxy-Authorization", "X-Api-Key", "x-api-key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Set-Cookie",
		"X-Amz-Security-Token", "X-Auth-Token", "Openai-Organization", "Anthropic-Beta", "Anthropic-Version", "X-Custom", "Idempotency-Key", "Content-Type", "Location", "X-Request-Id",
	}
	values := []string{key, "Bearer " + key, "Basic " + key, "key=" + key, "a; token=" + key, key + "\u00e9", "application/json; key=" + key}
	var calls []*upstream.Call
	var failing []error
	for _, name := range hostile {
		for _, value := range values {
			call := callOf(upstream.ChatCompletion, false, `{"model":"m","messages":[],"api_key":"`+key+`","extra":{"X-API-Key":"`+key+`","client_secret":"`+key+`"}}`)
			call.Header = http.Header{name: {value}}
			call.Query, call.Key, call.RefusedKeys, call.Account = "api_key="+key, key, []string{key}, key
			calls = append(calls, call)
		}
	}
	for _, text := range []string{"Incorrect API key provided: " + key, "header Authorization: Bearer " + key, `{"error":{"message":"` + key + `"}}`} {
		failing = append(failing, &fault.Error{Code: fault.Unauthorized, Message: text, Body: []byte(text), Err: &upstream.Failure{Status: 401, Key: key, Err: errors.New(text)}}, errors.New(text))
	}
	n := 0
	up := upstream.Func(func(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
		n++
		if n%4 == 0 {
			return nil, failing[n%len(failing)]
		}
		body := io.Reader(strings.NewReader(`{"ok":true}`))
		if n%4 == 1 {
			body = io.MultiReader(body, iotest.ErrReader(failing[n%len(failing)]))
		}
		return &upstream.Reply{Status: 200, Header: call.Header, Body: io.NopCloser(body), Key: key}, nil
	})
	file, _ := record(t, up, calls...)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte("hostileKEY")) || bytes.Count(data, []byte("\n")) != len(calls)+1 {
		i := max(bytes.Index(data, []byte("hostileKEY")), 0)
		t.Errorf("%d lines of %d; a key stands in %.300s", bytes.Count(data, []byte("\n")), len(calls)+1, data[max(i-200, 0):])
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
}

// A stream of OpenAI's wire, from a server: recorded behind the driver, replayed in the same
// gateway.
func TestARealStreamIsReplayedInAGateway(t *testing.T) {
	const key = "sk-real-0123456789"
	asked := 0
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "Bearer "+key {
			t.Error("the vendor got no key")
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Set-Cookie", "session="+key)
		for _, text := range []string{"Hel", "lo", "."} {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":3,\"total_tokens\":6}}\n\ndata: [DONE]\n\n")
	}))
	defer vendor.Close()
	driver, err := openai.New(upstream.DriverOptions{BaseURL: vendor.URL + "/v1", Keys: []secret.String{secret.New(key)}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = driver.Close() }()
	file := filepath.Join(t.TempDir(), "stream.jsonl")
	recorder, err := cassette.Record(driver, file)
	if err != nil {
		t.Fatal(err)
	}
	chunks := func(up upstream.Upstream) (raw []string) {
		g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = up })
		stream, err := g.ChatStream(t.Context(), &chat.Request{Model: gatewaytest.Model, User: "ann", Messages: []chat.Message{{Role: "user", Content: chat.Text("Hi.")}}})
		if err != nil {
			t.Fatal(err)
		}
		for chunk, err := range stream.Chunks() {
			if err != nil {
				t.Fatal(err)
			}
			raw = append(raw, string(chunk.Raw))
		}
		return raw
	}
	want := chunks(recorder)
	if err := recorder.Close(); err != nil {
		t.Fatal(err)
	}
	got := chunks(replay(t, file))
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 4 || asked != 1 {
		t.Errorf("the vendor was asked %d times: %s", asked, diff)
	}
	if charges := gatewaytest.Charges(t); len(charges) != 2 || charges[0].Charge != charges[1].Charge || charges[0].Charge == 0 {
		t.Errorf("the receipts differ: %+v", charges)
	}
	data, err := os.ReadFile(file)
	if err != nil || bytes.Contains(data, []byte(key)) {
		t.Errorf("%v; the file is %s", err, data)
	}
}

func TestAPlayerKeepsThePaceIfItIsToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := callOf(upstream.ChatCompletion, true, strings.Replace(hello, `"m",`, `"m","stream":true,`, 1))
		file, want := record(t, sim.New(sim.Options{Pace: time.Second, FirstDelay: 3 * time.Second}), call)
		for _, pace := range []bool{false, true} {
			p := replay(t, file)
			p.Pace = pace
			start := time.Now()
			if diff := cmp.Diff(want[0], ask(t.Context(), p, call)); diff != "" {
				t.Error(diff)
			}
			if took := time.Since(start); took > 0 != pace || pace && took < 10*time.Second {
				t.Errorf("with pace %t it took %s", pace, took)
			}
		}
		p := replay(t, file)
		p.Pace = true
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if got := ask(ctx, p, call); !strings.Contains(got.Err, context.DeadlineExceeded.Error()) {
			t.Errorf("at the end of its context: %+v", got)
		}
	})
}

func TestACallThatEndsWithItsContextIsNotRecorded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "x.jsonl")
	r, err := cassette.Record(sim.New(sim.Options{Pace: time.Hour}), file)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := r.Do(ctx, callOf(upstream.ChatCompletion, true, hello))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reply.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = io.ReadAll(reply.Body)
	if _, err := r.Do(ctx, callOf(upstream.ChatCompletion, false, hello)); err == nil {
		t.Error("a call whose context has ended was answered")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || bytes.Count(data, []byte("\n")) != 1 {
		t.Errorf("%v: the file is %s", err, data)
	}
	if _, err := r.Do(t.Context(), callOf(upstream.ChatCompletion, false, hello)); err != nil {
		t.Fatal(err)
	}
}

func TestAFormIsRecordedByTheHashesOfItsFiles(t *testing.T) {
	form := func(content string) *upstream.Call {
		file := upstream.Part{Name: "image", Filename: "a.png", Size: int64(len(content)), Content: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
		f := upstream.NewForm([]upstream.Part{upstream.Field("model", "m"), file, upstream.Field("prompt", "blue")}, nil)
		return &upstream.Call{Op: upstream.EditImage, Model: "m", Body: upstream.FormBody(f)}
	}
	file, _ := record(t, answering("application/json", strings.NewReader(`{"data":[]}`)), form("PNG"))
	if got := ask(t.Context(), replay(t, file), form("PNG")); got.Body != `{"data":[]}` {
		t.Errorf("the same form: %+v", got)
	}
	if got := ask(t.Context(), replay(t, file), form("GIF")); !strings.Contains(got.Err, "form[1].sha256") {
		t.Errorf("another file: %+v", got)
	}
}

func TestAPlayerSupportsWhatItRecorded(t *testing.T) {
	file, _ := record(t, sim.New(sim.Options{}), callOf(upstream.ChatCompletion, false, hello))
	p := replay(t, file)
	for op, want := range map[upstream.Op]bool{upstream.ChatCompletion: true, upstream.Messages: false, upstream.Responses: false, upstream.Embeddings: true} {
		if got := upstream.Supports(p, op, "m"); got != want {
			t.Errorf("it supports %s: %t", op, got)
		}
	}
	empty, _ := record(t, sim.New(sim.Options{}))
	if !upstream.Supports(replay(t, empty), upstream.Messages, "m") {
		t.Error("a cassette without entries supports nothing")
	}
	r, err := cassette.Record(sim.New(sim.Options{Models: []string{"m"}}), filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if upstream.Supports(r, upstream.ChatCompletion, "other") {
		t.Error("a recorder supports more than its upstream")
	}
}

func TestAFileThatIsNoCassetteIsAnErrorThatNamesTheEntry(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"broken":  {`{"cassette":1}` + "\n" + `{"op":"chat","json":1}` + "\n{", "entry 2"},
		"foreign": {`{"a":1}`, "entry 1"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := cassette.Replay(file); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := cassette.Replay(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if _, err := cassette.Record(sim.New(sim.Options{}), filepath.Join(dir, "none", "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}
