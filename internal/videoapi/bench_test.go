package videoapi

import (
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/video"
)

func BenchmarkAPollThatChangesNothing(b *testing.B) {
	running := task(video.FamilyGamma)
	running.State = video.Running
	body := poll("running", `,"model":"doubao","created_at":1788220800,"updated_at":1788220805,"service_tier":"default","execution_expires_after":172800`)
	for b.Loop() {
		if m, err := advance(&running, body, noon.Add(time.Minute)); err != nil || m.Changed {
			b.Fatal(err)
		}
	}
}

func BenchmarkASubmissionIsParsedAndPrepared(b *testing.B) {
	body := least("beta2.7-t2v").json(b)
	for b.Loop() {
		r, err := Parse(body)
		if err != nil || r.Validate(ModelConfig{}) != nil {
			b.Fatal(err)
		}
		if _, err := r.Prepared().Bytes(); err != nil {
			b.Fatal(err)
		}
	}
}
