package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
)

type (
	sdkTool        = sdk.Tool
	sdkAnnotations = sdk.ToolAnnotations
)

// tool is one row of the table of tools. One that costs money has ask and
// answer, any other run.
type tool struct {
	name, title, about string
	fields             []field
	models             func(gateway.Model) bool // those that its argument "model" may name
	output             any                      // the JSON Schema of the structured result

	ask    func(a arguments) (question, error)
	answer func(c *call, r *gateway.Result) (*sdk.CallToolResult, error)
	run    func(c *call) (*sdk.CallToolResult, error)
}

// question is a request of the API: a body, or a form.
type question struct {
	op   upstream.Op
	body []byte
	form *upstream.Form
}

// paid reports whether a call costs money.
func (t *tool) paid() bool { return t.ask != nil }

// tools is the table of tools.
func tools() []*tool {
	return []*tool{
		chatTool(), imageTool(), editTool(), videoTool(), getVideoTool(), embeddingsTool(), speechTool(),
		modelsTool(), estimateTool(), balanceTool(),
	}
}

// modelField is the argument that names the model.
func modelField(about string) field {
	return field{name: "model", kind: text, required: true, about: about + " list_models says what each costs."}
}
