package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// embeddingsOperation adapts embeddings to the pipeline.
type embeddingsOperation struct {
	unstreamed
	*embeddings.Request
}

func parseEmbeddings(_ *Gateway, data []byte) (operation, error) {
	r, err := embeddings.Parse(data)
	return embeddingsOperation{Request: r}, err
}

func (e embeddingsOperation) op() upstream.Op         { return upstream.Embeddings }
func (e embeddingsOperation) model() string           { return e.Model }
func (e embeddingsOperation) source() []byte          { return e.Source() }
func (e embeddingsOperation) unknownModel() error     { return noModel(e.Model) }
func (e embeddingsOperation) validate(m *Model) error { return e.Validate(m.Dimensions) }
func (e embeddingsOperation) input() billing.Usage {
	return billing.Usage{Input: e.Estimate(), Estimated: true}
}

func (e embeddingsOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return e.Unpriced(pass)
}

func (e embeddingsOperation) bound(*Model) (most, least billing.Usage) {
	most = billing.Usage{Input: e.InputBound()}
	return most, most
}

func (e embeddingsOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return e.Prepared(), e.Request, 0
}

// implausible counts are above what the bytes of the input can be.
func (e embeddingsOperation) implausible(_ *Model, u billing.Usage) bool {
	return u.Input > 2*e.InputBound()+countSlack || u.Output > 0
}

func (e embeddingsOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := e.ReadAnswer(getBody(), data)
	return a.Body, a.Usage, err
}

func (e embeddingsOperation) split(m *Model) ([]operation, error) {
	parts := e.Split(m.Batch)
	ops := make([]operation, len(parts))
	for i, p := range parts {
		ops[i] = embeddingsOperation{Request: p}
	}
	return ops, nil
}

func (e embeddingsOperation) join(answers [][]byte) ([]byte, error) { return e.Join(answers) }
