package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// videoOperation adapts the submission of a video to the pipeline. What comes
// after it is the life of its task, see videos.
type videoOperation struct {
	unstreamed
	*video.Request
	g      *Gateway
	price  *billing.Price
	report video.Report // of the upstream that took it
}

func parseVideo(g *Gateway, data []byte) (operation, error) {
	r, err := video.Parse(data)
	return &videoOperation{Request: r, g: g}, err
}

func (v *videoOperation) op() upstream.Op                        { return upstream.SubmitVideo }
func (v *videoOperation) model() string                          { return v.Model }
func (v *videoOperation) source() []byte                         { return v.Source() }
func (v *videoOperation) unknownModel() error                    { return noModel(v.Model) }
func (v *videoOperation) priced(p *billing.Price)                { v.price = p }
func (v *videoOperation) implausible(*Model, billing.Usage) bool { return false } // the room judges what its task spent
func (v *videoOperation) input() (free billing.Usage)            { return free }

func (v *videoOperation) validate(m *Model) error {
	return v.Validate(video.Facts{Ratios: m.Ratios, Priorities: m.Priorities, AllowPrivate: v.g.options.Video.AllowPrivate, Price: v.price})
}

func (v *videoOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return v.Unpriced(pass)
}

// bound is exact for seconds, and for tokens what the largest video takes.
func (v *videoOperation) bound(*Model) (most, least billing.Usage) {
	b, err := v.Bound(v.price)
	if err != nil { // which validate has refused
		return most, least
	}
	return b.Usage, b.Usage
}

func (v *videoOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return v.Prepared(), v.Request, 0
}

func (v *videoOperation) answer(data []byte) (_ []byte, _ billing.Usage, err error) {
	v.report, err = video.ReadSubmission(data)
	return nil, billing.Usage{}, err
}

// status is that of an accepted submission (api.md, States and transitions).
func (v *videoOperation) status() int {
	if v.Family() == video.FamilyBeta {
		return http.StatusAccepted
	}
	return http.StatusOK
}
