package ark

import (
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

const (
	asked    = `{"model":"doubao-seedance-2-0-260128", "content":[{"type":"text","text":"hé"},{"type":"image_url","image_url":{"url":"https://files.example/p.png"},"role":"first_frame"}],"duration":5,"seed":1.0,"priority":3,"x":9007199254740993}`
	accepted = `{"id": "cgt-20260901100000-aaaaa"}`
	finished = `{"id":"cgt-1","model":"doubao-seedance-2-0-260128","status":"succeeded","error":null, "content":{"video_url":"https://tos.example/x.mp4?X-Tos-Signature=a"},"usage":{"completion_tokens":108900,"total_tokens":108900},"seed":42.0,"framespersecond":24}`
)

func TestTheDriverConforms(t *testing.T) {
	upstreamtest.Run(t, upstreamtest.Harness{
		New: func(t *testing.T, vendor http.Handler) upstream.Upstream {
			return newDriver(t, vendor, upstream.DriverOptions{})
		},
		Samples: map[upstream.Op]upstreamtest.Sample{
			upstream.SubmitVideo: {
				Model: "doubao-seedance-2-0-260128", Request: []byte(asked), Answer: []byte(accepted),
				Refusal: upstreamtest.Refusal{
					Status: 400, Body: []byte(`{"error":{"code":"InvalidParameter","message":"The parameter is wrong.","param":"duration","type":"BadRequest"}}`),
					Code: "InvalidParameter", Message: "The parameter is wrong.",
				},
			},
			upstream.PollVideo: {
				Model: "doubao-seedance-2-0-260128", TaskID: "cgt-1", Answer: []byte(finished),
				Refusal: upstreamtest.Refusal{
					Status: 404, Body: []byte(`{"error":{"code":"NotFound.Task","message":"No such task.","param":"","type":"NotFound"}}`),
					Code: "ResourceNotFound", Message: "No such task.",
				},
			},
		},
	})
}

// newDriver is the driver under test against a vendor on the loopback.
func newDriver(t *testing.T, vendor http.Handler, o upstream.DriverOptions) upstream.Driver {
	t.Helper()
	o.BaseURL = vendortest.Serve(t, vendor) + "/api/v3"
	if o.Keys == nil {
		o.Keys = vendortest.Keys("ark-vendor-1")
	}
	return vendortest.New(t, New, o)
}
