package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/tollhouse-ai/gateway/video"
)

// wish is what the flags say of a video.
type wish struct {
	set                 *pflag.FlagSet
	model, prompt, from string
	resolution, webhook string
	duration            uint32
}

func (w *wish) flags(c *command) {
	f := c.flags
	w.set = f
	f.StringVar(&w.model, "model", "", "the model (required, here or in the body)")
	f.StringVar(&w.prompt, "prompt", "", "what the video is to show")
	f.StringVar(&w.from, "body", "", "a file with the request's other fields as JSON, or - for standard input")
	f.Uint32Var(&w.duration, "duration", 0, "seconds; default the model's")
	f.StringVar(&w.resolution, "resolution", "", "such as 720p; default the model's")
	f.StringVar(&w.webhook, "webhook", "", "the address that is told when the video has ended")
}

// body is the request: that of the file, and the fields of the flags. What both
// say is a mistake, even if they say the same.
func (w *wish) body(stdin io.Reader) ([]byte, error) {
	data, err := w.read(stdin)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("--body %s is not a JSON object of the API's fields", w.from)
	}
	var own struct {
		Model string `json:"model"`
	}
	_ = json.Unmarshal(fields["model"], &own.Model) // the server says what is wrong with it
	if fields["model"] == nil && w.model == "" {
		return nil, usagef("--model is missing: `tollhouse models` lists those that there are")
	}
	said, err := w.fields(own.Model)
	if err != nil || len(said) == 0 {
		return data, err // as it was written
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if fields[name] != nil {
			return nil, usagef("the body has %q already: leave it or the flag out", name)
		}
		fields[name] = said[name]
	}
	return json.Marshal(fields)
}

// read is the JSON of --body; an empty object without it.
func (w *wish) read(stdin io.Reader) ([]byte, error) {
	switch {
	case w.from == "" && w.prompt == "":
		return nil, usagef("--prompt or --body is missing: it says what the video is to show")
	case w.from == "":
		return []byte("{}"), nil
	case w.from == "-" && stdin == nil:
		return nil, errors.New("there is no standard input to read the request from")
	case w.from == "-":
		return io.ReadAll(stdin)
	}
	return os.ReadFile(w.from)
}

// fields are those that the flags give, in the form of the model's family.
func (w *wish) fields(model string) (map[string]json.RawMessage, error) {
	fields := map[string]any{}
	add := func(flag, name string, value any) {
		if w.set.Changed(flag) {
			fields[name] = value
		}
	}
	add("model", "model", w.model)
	add("duration", "duration", w.duration)
	add("resolution", "resolution", w.resolution)
	add("webhook", "webhook_url", w.webhook)
	if w.model != "" {
		model = w.model
	}
	if isBeta(model) {
		add("prompt", "input", map[string]string{"prompt": w.prompt})
	} else {
		add("prompt", "content", []video.Block{{Type: "text", Text: w.prompt}})
	}
	raw := map[string]json.RawMessage{}
	for name, value := range fields {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		raw[name] = data
	}
	return raw, nil
}

// isBeta reports whether a model takes its prompt in `input`.
func isBeta(model string) bool {
	return slices.ContainsFunc(video.Families(), func(f video.Family) bool {
		return f.Name == video.FamilyBeta && slices.Contains(f.Models, model)
	})
}
