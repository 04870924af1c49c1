package chat

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Tool is a Go function that a model can call in a [Loop]. Make one with [NewTool]. It is as
// safe for concurrent use as its function.
type Tool struct {
	function Function
	err      error // why there is no schema of the arguments
	run      func(ctx context.Context, arguments string) (string, error)
}

// Function is what the model is told of the tool.
func (t Tool) Function() Function { return t.function }

// NewTool makes a tool of a function. The model gets a JSON Schema of In, made of its `json` and
// `jsonschema` tags as by [Into]. Arguments that do not fit it go back to the model, and f does
// not run. An In that is no object is the argument "value". The result is sent to the model as
// JSON, or as it is if Out is a string.
//
// f must be safe for concurrent use: calls of one answer run together. Its error goes to the
// model, and must not say what a user may not read. After a panic the model is told that the
// tool failed, and no more.
//
// A [Loop] with a tool whose In JSON Schema cannot describe fails before its first call.
func NewTool[In, Out any](name, description string, f func(ctx context.Context, in In) (Out, error)) Tool {
	arguments, err := argumentsOf(reflect.TypeFor[In]())
	if err != nil {
		return Tool{function: Function{Name: name}, err: err}
	}
	return Tool{
		function: Function{Name: name, Description: description, Parameters: arguments.wire},
		run: func(ctx context.Context, text string) (string, error) {
			if strings.TrimSpace(text) == "" { // as some models write no arguments
				text = "{}"
			}
			var in In
			if err := arguments.decode(text, &in); err != nil {
				return "", fmt.Errorf("the arguments do not fit the schema: %w", err)
			}
			out, err := f(ctx, in)
			if err != nil {
				return "", err
			}
			if text, ok := any(out).(string); ok {
				return text, nil
			}
			data, err := stdjson.Marshal(out)
			if err != nil {
				return "", errFailed
			}
			return string(data), nil
		},
	}
}

// errFailed is what a model is told of a tool that panicked, or whose result is no JSON.
var errFailed = errors.New("the tool failed")

// result is what the model is told of one call: the tool's result, or its error.
func (t *Tool) result(ctx context.Context, arguments string) (text string) {
	text = errFailed.Error() // also where the tool ends its goroutine
	defer func() { _ = recover() }()
	out, err := t.run(ctx, arguments)
	switch {
	case errors.Is(err, errFailed):
	case err != nil:
		const most = 4_096
		text = "error: " + safetext.Truncate(err.Error(), most)
	default:
		text = out
	}
	return text
}
