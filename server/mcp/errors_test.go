package mcp_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

var (
	away = upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		return nil, fault.New(fault.ServiceUnavailable, "away")
	})
	panicking = upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) { panic("secret stack") })
)

var chatting = args{"model": "sim-chat", "prompt": "hi", "max_tokens": 5}

func TestAnErrorSaysWhatToDo(t *testing.T) {
	limited := auth.KeyOptions{Models: []string{"sim-chat"}}
	for name, c := range map[string]struct {
		o    fixtureOptions
		tool string
		args args
		code fault.Code
		says string
	}{
		"an unknown model":          {fixtureOptions{}, "chat", args{"model": "nothing", "prompt": "hi"}, fault.ModelNotFound, "list_models lists the models"},
		"a model of another tool":   {fixtureOptions{}, "chat", args{"model": "alpha-image-2.0", "prompt": "hi"}, fault.InvalidRequest, "is of kind image: call generate_image, not chat. Call list_models"},
		"a number out of its range": {fixtureOptions{}, "chat", args{"model": "sim-chat", "prompt": "hi", "temperature": 3}, fault.InvalidRequest, "Correct the argument"},
		"a video without a prompt":  {fixtureOptions{}, "generate_video", args{"model": "beta2.6-t2v"}, "InvalidParameter.MissingRequired", `"prompt" is missing`},
		"a model that is not ours":  {fixtureOptions{key: limited}, "chat", args{"model": "delta-k3", "prompt": "hi"}, fault.PermissionDenied, "Do not repeat the call"},
		"too little money":          {fixtureOptions{credit: 1}, "chat", args{"model": "sim-chat", "prompt": "hi"}, fault.InsufficientBalance, "get_balance says what is left"},
		"too many tokens a minute":  {fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{TPM: 1}}}, "chat", chatting, fault.RateLimitExceeded, "Wait "},
		"a size that is none":       {fixtureOptions{}, "generate_image", args{"model": "alpha-image-2.0", "prompt": "x", "size": "3x3"}, fault.InvalidRequest, "1664*928"},
		"an edit model":             {fixtureOptions{}, "generate_image", args{"model": "alpha-image-edit", "prompt": "x"}, fault.InvalidRequest, "use edit_image"},
		"a picture by its link":     {fixtureOptions{}, "edit_image", args{"model": "imagegen-2", "prompt": "x", "images": []string{"https://example.com/a.png"}}, fault.InvalidRequest, "base64"},
		"a picture that is none":    {fixtureOptions{}, "edit_image", args{"model": "imagegen-2", "prompt": "x", "images": []string{pngURI(t, 64), "data:image/png;base64,aGVsbG8="}}, fault.InvalidRequest, "images[1] is neither a PNG"},
		"a mask of another size":    {fixtureOptions{}, "edit_image", args{"model": "imagegen-2", "prompt": "x", "images": []string{pngURI(t, 64)}, "mask": pngURI(t, 32)}, fault.InvalidMask, "mask"},
		"a picture that is no link": {fixtureOptions{}, "edit_image", args{"model": "alpha-image-edit", "prompt": "x", "images": []string{"data:image/png;base64,aGVsbG8="}},
			fault.InvalidRequest, "public https URL"},
		"a video with too much":     {fixtureOptions{}, "generate_video", args{"model": "beta2.6-t2v", "prompt": "x", "first_frame": "https://example.com/a.png"}, fault.InvalidRequest, "from a prompt only"},
		"a video with other inputs": {fixtureOptions{}, "generate_video", args{"model": "beta2.6-i2v", "prompt": "x", "last_frame": "https://example.com/a.png"}, fault.InvalidRequest, "first_frame, audio"},
		"a video that nobody knows": {fixtureOptions{}, "get_video", args{"id": "vid_nothing"}, fault.ResourceNotFound, "generate_video gave"},
		"an argument for others":    {fixtureOptions{}, "generate_image", args{"model": "imagegen-2", "prompt": "x", "seed": 1}, fault.InvalidRequest, "only alpha models"},
		"an upstream that is away":  {fixtureOptions{upstream: away}, "chat", chatting, fault.ServiceUnavailable, "the same task_label"},
		"a panic":                   {fixtureOptions{upstream: panicking}, "chat", chatting, fault.InternalError, "The gateway failed"},
		"an estimate of nonsense":   {fixtureOptions{}, "estimate_cost", args{"tool": "chat", "arguments": args{"model": "sim-chat"}}, fault.InvalidRequest, `"prompt" is missing`},
		"an estimate of no model":   {fixtureOptions{}, "estimate_cost", args{"tool": "chat", "arguments": args{"model": "nothing", "prompt": "x"}}, fault.ModelNotFound, "list_models"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, c.o)
			before := s.Posted(t)
			said, about := callFailing(t, s.client(t), c.tool, c.args)
			if about["code"] != string(c.code) || !strings.Contains(said, string(c.code)) || !strings.Contains(said, c.says) {
				t.Errorf("it said %q %v, want %s and %q", said, about, c.code, c.says)
			}
			if strings.Contains(said, "secret") || strings.Contains(said, "/v1/") || !strings.Contains(said, "request_id: req_") {
				t.Errorf("it said %q", said)
			}
			if s.Posted(t) != before {
				t.Errorf("it cost %s", before-s.Posted(t))
			}
			if name == "an estimate of nonsense" && about["param"] != "arguments.prompt" {
				t.Errorf("it is about %v", about["param"])
			}
		})
	}
}

// TestAToolSaysNoMoreOfAVendorThanTheAPI asks both for the same failure.
func TestAToolSaysNoMoreOfAVendorThanTheAPI(t *testing.T) {
	for name, status := range map[string]int{"a refusal": 422, "a wrong key of the operator's": 401, "a fault": 500, "too many calls": 429} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Status: status} }})})
			a := s.do(t, "POST", s.api+"/v1/chat/completions", `{"model":"sim-chat","messages":[{"role":"user","content":"hi"}],"max_tokens":5}`)
			told, _ := message(t, a.body)["error"].(map[string]any)
			said, about := callFailing(t, s.client(t), "chat", chatting)
			message, _ := told["message"].(string)
			if message == "" || !strings.Contains(said, message) || about["code"] != told["code"] || about["status"] != float64(a.status) {
				t.Errorf("the tool said %q %v, the API %d %v", said, about, a.status, told)
			}
		})
	}
}

func TestAnUnknownToolIsAnErrorOfTheProtocol(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	a, m := s.rpc(t, "tools/call", map[string]any{"name": "nothing", "arguments": args{}})
	if m["error"] == nil || m["result"] != nil {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestAResultThatIsTooLargeIsRefusedWithWhatToDo(t *testing.T) {
	s := newFixture(t, fixtureOptions{mcp: mcp.Options{MaxResult: 100}})
	session := s.client(t)
	for tool, a := range map[string]args{
		"generate_image":    {"model": "imagegen-2", "prompt": "x"},
		"text_to_speech":    {"model": "alpha3-tts-flash", "text": "A longer text", "format": "wav"},
		"create_embeddings": {"model": "text-embedding-v4", "input": []string{"x"}},
	} {
		said, about := callFailing(t, session, tool, a)
		if about["code"] != "request_too_large" || !strings.Contains(said, "charged") {
			t.Errorf("%s said %q", tool, said)
		}
	}
}

func TestALostVideoIsNotMadeTwice(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{Fault: func(c *upstream.Call) sim.Fault {
		if c.Op == upstream.SubmitVideo {
			return sim.Fault{Break: sim.Lost}
		}
		return sim.Fault{}
	}})})
	said, about := callFailing(t, s.client(t), "generate_video", args{"model": "beta2.6-t2v", "prompt": "x", "duration": 2})
	if about["code"] != "RequestTimeout" || !strings.Contains(said, "get_video with the id vid_") || !strings.Contains(said, "Do not repeat the call") {
		t.Errorf("it said %q", said)
	}
	s.unfinished = true
}
