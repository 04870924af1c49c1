// Package all lists the endpoints of the gateway.
package all

import (
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/internal/operation/embeddings"
	"github.com/tollhouse-ai/gateway/internal/operation/images"
	"github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/operation/moderations"
	"github.com/tollhouse-ai/gateway/internal/operation/rerank"
	"github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/upstream"
)

// specs are all endpoints, in the order of the API's documentation.
var specs = []*operation.Spec{
	&chat.Spec, &messages.Spec, &messages.CountSpec, &responses.Spec, &responses.CountSpec, &embeddings.Spec,
	&images.Spec, &images.EditSpec, &video.Spec, &speech.Spec, &rerank.Spec, &moderations.Spec,
}

// Specs are all endpoints, in the order of the API's documentation. They are read-only.
func Specs() []*operation.Spec { return specs }

// Find is the endpoint of an operation; nil if there is none.
func Find(op upstream.Op) *operation.Spec {
	for _, s := range specs {
		if s.Op == op {
			return s
		}
	}
	return nil
}
