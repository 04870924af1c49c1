package sim_test

import (
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// callOf is the call of an operation with a JSON body.
func callOf(t *testing.T, op upstream.Op, body string) *upstream.Call {
	t.Helper()
	o, err := rawjson.Index([]byte(body), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	model, _ := rawjson.String(o.Raw("model"))
	return &upstream.Call{Op: op, Model: model, RequestID: "req_1", ContentType: "application/json", Body: upstream.ObjectBody(o)}
}

// answerOf is the whole answer to a call.
func answerOf(t *testing.T, u *sim.Upstream, call *upstream.Call) string {
	t.Helper()
	reply, err := u.Do(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// always are options under which every call has the fault.
func always(f sim.Fault) sim.Options {
	return sim.Options{VideoTime: -1, Fault: func(*upstream.Call) sim.Fault { return f }}
}

func TestWhatTheSimulatorDoesNotTakeIsRefusedAsAVendorWould(t *testing.T) {
	u := sim.New(sim.Options{Models: []string{"m", "imagegen-2", "vox-4", "beta2.7-t2v", "gamma-2-0-260128"}})
	for _, row := range []struct {
		op     upstream.Op
		body   string
		status int
		code   fault.Code
		param  string
	}{
		{upstream.ChatCompletion, `{"model":"other","messages":[{"role":"user","content":"a"}]}`, 404, fault.ModelNotFound, "model"},
		{upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":3}`, 400, fault.InvalidRequest, "temperature"},
		{upstream.GenerateImage, `{"model":"imagegen-2","prompt":"a","size":"9999x9999"}`, 400, fault.InvalidRequest, "size"},
		{upstream.GenerateImage, `{"model":"imagegen-2","prompt":"a","output_format":"webp"}`, 400, fault.InvalidRequest, "output_format"},
		{upstream.GenerateImage, `{"model":"imagegen-2","prompt":"a","n":11}`, 400, fault.InvalidRequest, "n"},
		{upstream.GenerateImage, `{"model":"m"}`, 400, fault.InvalidRequest, "prompt"},
		{upstream.EditImage, `{"model":"m"}`, 400, fault.InvalidRequest, ""},
		{upstream.Embeddings, `{"model":"other","input":"a"}`, 404, fault.ModelNotFound, "model"},
		{upstream.Rerank, `{"model":"other","query":"q","documents":["a"]}`, 404, fault.ModelNotFound, "model"},
		{upstream.Rerank, `{"model":"m","query":"q","documents":[]}`, 400, fault.InvalidRequest, "documents"},
		{upstream.Rerank, `{"model":"m","query":"q","documents":[{"text":"a"}]}`, 400, fault.InvalidRequest, "documents"},
		{upstream.Embeddings, `{"model":"m"}`, 400, fault.InvalidRequest, "input"},
		{upstream.Embeddings, `{"model":"m","input":[1,2]}`, 400, fault.InvalidRequest, "input"},
		{upstream.Embeddings, `{"model":"m","input":"a","dimensions":4097}`, 400, fault.InvalidRequest, "dimensions"},
		{upstream.Embeddings, `{"model":"vox-4","input":"a","dimensions":3}`, 400, fault.InvalidRequest, "dimensions"},
		{upstream.SubmitVideo, `{"model":"gamma-2-0-260128","content":[]}`, 400, "InvalidParameter.MissingRequired", "content"},
		{upstream.SubmitVideo, `{"model":"beta2.7-t2v","content":[{}]}`, 400, "InvalidParameter", "input"},
		{upstream.SubmitVideo, `{"model":"m","content":[{}],"duration":"5"}`, 400, "InvalidParameter", ""},
		{upstream.SubmitVideo, `{"model":"other","content":[{}]}`, 404, fault.ModelNotFound, "model"},
		{upstream.PollVideo, `{"model":"m"}`, 404, fault.ResourceNotFound, ""},
		{"paint", `{"model":"m"}`, 502, fault.NoChannel, ""},
	} {
		_, err := u.Do(t.Context(), callOf(t, row.op, row.body))
		e := fault.From(err)
		if e == nil || e.HTTPStatus() != row.status || e.Code != row.code || e.Param != row.param {
			t.Errorf("%s %s: %v, want a %d %s that names %q", row.op, row.body, err, row.status, row.code, row.param)
			continue
		}
		if f, found := upstream.FailureOf(err); row.op != "paint" && (!found || f.Status != row.status || e.Body == nil) {
			t.Errorf("%s %s: failure %+v, body %s", row.op, row.body, f, e.Body)
		}
	}
	if u.Jobs() != 0 {
		t.Errorf("%d videos were taken", u.Jobs())
	}
	if u.Supports(upstream.ChatCompletion, "other") || !u.Supports(upstream.ChatCompletion, "m") || u.Supports("paint", "m") {
		t.Error("Supports says something else")
	}
}

func TestUsageIsReportedAsTheFaultSaysByEveryOperation(t *testing.T) {
	for _, row := range []struct {
		op               upstream.Op
		body, full, zero string
	}{
		{upstream.GenerateImage, `{"model":"imagegen-2","prompt":"a","size":"8x8"}`, `"output_tokens":1056`, `"output_tokens":0`},
		{upstream.GenerateImage, `{"model":"m","input":{"messages":[{"role":"user","content":[{"text":"a"}]}]}}`, `"image_count":1`, `"image_count":0`},
		{upstream.Rerank, `{"model":"m","query":"one","documents":["two"]}`, `"usage":{"search_units":1,"total_tokens":2}`, `"usage":{"search_units":0,"total_tokens":0}`},
		{upstream.Embeddings, `{"model":"m","input":"one","dimensions":2}`, `"usage":{"prompt_tokens":1,"total_tokens":1}`, `"usage":{"prompt_tokens":0,"total_tokens":0}`},
		{upstream.SubmitVideo, nestedAsk, `"duration":7`, `"duration":0`},
		{upstream.SubmitVideo, flatAsk, `"completion_tokens":49005`, `"completion_tokens":0`},
	} {
		for want, f := range map[string]sim.Fault{row.full: {}, row.zero: {ZeroUsage: true}, "": {NoUsage: true}} {
			u, call := sim.New(always(f)), callOf(t, row.op, row.body)
			if row.op == upstream.SubmitVideo {
				call = asked(t, u, row.body)
			}
			data := answerOf(t, u, call)
			if strings.Contains(data, `"usage"`) != (want != "") || !strings.Contains(data, want) {
				t.Errorf("%+v: %.500s, want %s", f, data, want)
			}
		}
	}
}
