package mcp

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

func embeddingsTool() *tool {
	return &tool{
		name: "create_embeddings", title: "Embed texts",
		about: "Makes a vector of each text, by which texts can be compared. The vectors are in the structured result only.",
		fields: []field{
			modelField("The embedding model. Vectors of different models cannot be compared."),
			{name: "input", kind: texts, required: true, high: 256, about: "The texts."},
			{name: "dimensions", kind: integer, low: 1, high: 16384, about: "The length of the vectors, where the model can choose."},
		},
		models: kinds(gateway.KindEmbeddings),
		output: outputOf[embeddingsResult](),
		ask: func(a arguments) (question, error) {
			data, err := body{}.take(a, "model", "input", "dimensions").bytes()
			return question{op: upstream.Embeddings, body: data}, err
		},
		answer: (*call).answerEmbeddings,
	}
}

// embeddingsResult is the structured result of create_embeddings.
type embeddingsResult struct {
	paid
	Model      string      `json:"model" jsonschema:"the model that made the vectors"`
	Dimensions int         `json:"dimensions" jsonschema:"the length of each vector"`
	Embeddings [][]float32 `json:"embeddings" jsonschema:"one vector for each text, in the order of the texts"`
}

func (c *call) answerEmbeddings(r *gateway.Result) (*sdk.CallToolResult, error) {
	var answer embeddings.Response
	if err := json.Unmarshal(r.Body, &answer, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fault.Wrap(fault.BadGateway, "The model's answer is not of the form of embeddings. It was charged.", err)
	}
	result := embeddingsResult{Model: c.args.text("model"), Embeddings: make([][]float32, len(answer.Data))}
	var size int64
	for _, e := range answer.Data {
		if e.Index < 0 || e.Index >= int64(len(answer.Data)) {
			return nil, fault.New(fault.BadGateway, "The model's answer numbers its vectors wrongly. It was charged.")
		}
		const digits = 12 // of a number, about
		size += int64(len(e.Embedding)) * digits
		result.Embeddings[e.Index], result.Dimensions = e.Embedding, len(e.Embedding)
	}
	r.Release()
	if err := c.fits(size, "Embed fewer texts at a time. These were charged."); err != nil {
		return nil, err
	}
	result.paid = c.receipt(r)
	return success(result, say("%d vectors of %d numbers each are in the structured result. %s", len(result.Embeddings), result.Dimensions, result.line())), nil
}
