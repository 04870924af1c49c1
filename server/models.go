package server

import (
	"time"

	gateway "github.com/tollhouse-ai/gateway"
)

// modelObject is one model, with what OpenAI's and Anthropic's clients read.
type modelObject struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

func toModel(m gateway.Model) modelObject {
	return modelObject{
		ID: m.ID, Object: "model", Created: m.Created.Unix(), OwnedBy: m.OwnedBy,
		Type: "model", DisplayName: m.DisplayName, CreatedAt: m.Created.UTC().Format(time.RFC3339),
	}
}

// listModels is GET /v1/models.
func (x *httpExchange) listModels() error {
	models, err := x.h.gateway.Models(x.response.Context())
	if err != nil {
		return err
	}
	list := struct {
		Object  string        `json:"object"`
		Data    []modelObject `json:"data"`
		HasMore bool          `json:"has_more"`
		FirstID *string       `json:"first_id"`
		LastID  *string       `json:"last_id"`
	}{Object: "list", Data: make([]modelObject, len(models))}
	for i, m := range models {
		list.Data[i] = toModel(m)
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return x.writeJSON(list)
}

// showModel is GET /v1/models/{id}.
func (x *httpExchange) showModel() error {
	m, err := x.h.gateway.Model(x.response.Context(), x.id)
	if err != nil {
		return err
	}
	return x.writeJSON(toModel(m))
}
