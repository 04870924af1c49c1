package translate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// fromChat translates a chat completion request for an upstream that speaks only
// Messages, as fromChatFields says field by field. defaultMax is max_tokens where the
// caller sets none. dropped names the fields that could not be carried, each
// once and without indexes. It fails with a 400 that names the field where
// leaving it out would change what the caller asked for.
func fromChat(c *chat.Request, defaultMax int64) (r *messages.Request, dropped []string, err error) {
	if !c.Body.IsObject() { // typed: what has no field of its own is found in the JSON alone
		encoded, err := chatapi.Encode(c)
		if err != nil {
			return nil, nil, err
		}
		c = encoded.Request
	}
	t := &messagesRequestBuilder{c: c, r: &messages.Request{}, defaultMax: defaultMax}
	for _, step := range [...]func() error{t.conversation, t.fields, t.tools, t.toolChoice, t.responseFormat, t.vendorFields} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	fromChatFields.unmapped(c.Body.Members(), "", func(name string, _ []byte) { t.drop(name) })
	t.dropped.Sort() // whichever of the two passes found them
	return t.r, t.dropped.List(), nil
}

// messagesRequestBuilder is a chat completion request on its way into Messages.
type messagesRequestBuilder struct {
	c          *chat.Request
	r          *messages.Request
	defaultMax int64
	dropped    dropped.Fields
}

// dropUnknown drops the members of an object that its type does not name, but for
// those that the table carries. An empty list asks for nothing where the field is
// not listed. path ends in a point.
func (t *messagesRequestBuilder) dropUnknown(path string, extra []byte) {
	if o, err := rawjson.Index(extra, nil, nil); err == nil {
		fromChatFields.unmapped(o.All(), path, func(name string, raw []byte) {
			if string(raw) != "[]" || fromChatFields.find(path+name).field != "" {
				t.drop(path + name)
			}
		})
	}
}

// drop notes a field that is not carried.
func (t *messagesRequestBuilder) drop(name string) { t.dropped.Note(name) }

// refusedField is the 400 for a field whose loss would change the answer.
func refusedField(param, must string) error {
	return fault.Invalid(param, fmt.Sprintf("%q must be %s.", param, must))
}

// fields carries what has the same meaning under another name.
func (t *messagesRequestBuilder) fields() error {
	c := t.c
	t.r.Model, t.r.TopP, t.r.Stream = c.Model, c.TopP, c.Stream
	if c.Temperature != nil && *c.Temperature > 1 {
		t.drop("temperature")
	} else {
		t.r.Temperature = c.Temperature
	}
	if t.r.MaxTokens = c.OutputBound(); t.r.MaxTokens == 0 {
		t.r.MaxTokens = t.defaultMax
	}
	if c.N > 1 {
		return refusedField("n", "1: this model gives one candidate per call")
	}
	for _, s := range c.Stop {
		if blank(s) {
			t.drop("stop")
		} else {
			t.r.StopSequences = append(t.r.StopSequences, s)
		}
	}
	switch raw := c.Field("reasoning_effort"); {
	case rawjson.IsNull(raw):
	case slices.Contains(efforts, c.ReasoningEffort):
		t.outputConfig().Effort = c.ReasoningEffort
	default:
		t.drop("reasoning_effort")
	}
	if c.User != "" {
		t.r.Metadata = &messages.Metadata{UserID: c.User}
	}
	return nil
}

// blank reports whether a text has no visible character.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

// efforts are the upstream's words for reasoning_effort.
var efforts = []string{"low", "medium", "high", "xhigh", "max"}

// outputConfig is the request's, made at its first use.
func (t *messagesRequestBuilder) outputConfig() *messages.OutputConfig {
	if t.r.OutputConfig == nil {
		t.r.OutputConfig = &messages.OutputConfig{}
	}
	return t.r.OutputConfig
}

// responseFormat carries a schema. A mode that the upstream does not have is
// refused: a caller who parses the answer must not get prose.
func (t *messagesRequestBuilder) responseFormat() error {
	if rawjson.IsNull(t.c.ResponseFormat) {
		return nil
	}
	var format struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema jsontext.Value `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(t.c.ResponseFormat, &format, jsontext.AllowDuplicateNames(true)); err != nil {
		return refusedField("response_format", `an object such as {"type":"json_schema","json_schema":{"name":…,"schema":…}}`)
	}
	switch format.Type {
	case "text":
		return nil
	case "json_schema":
	default:
		return refusedField("response_format.type", `"text" or "json_schema": this model has no other mode, and keeps to a schema where one is given`)
	}
	schema := format.JSONSchema.Schema
	if !isObject(schema) {
		return refusedField("response_format.json_schema.schema", "a JSON Schema object without repeated names")
	}
	t.outputConfig().Format = &messages.OutputFormat{Type: "json_schema", Schema: schema}
	return nil
}

// isObject reports whether raw is one strict JSON object.
func isObject(raw jsontext.Value) bool { return raw.IsValid() && raw.Kind() == '{' }

// vendorFields carries fields that the upstream has and chat does not name. Other
// vendors have some of the same name and another form, which the upstream would
// refuse.
func (t *messagesRequestBuilder) vendorFields() error {
	raw := t.c.Field("service_tier")
	switch tier, _ := rawjson.String(raw); {
	case rawjson.IsNull(raw):
	case tier == "auto", tier == "standard_only":
		t.r.ServiceTier = tier
	default:
		t.drop("service_tier")
	}
	if raw = t.c.Field("thinking"); !rawjson.IsNull(raw) {
		var th messages.Thinking
		if json.Unmarshal(raw, &th) == nil && t.validThinking(&th) {
			t.r.Thinking = &th
		} else {
			t.drop("thinking")
		}
	}
	raw = t.c.Field("top_k")
	switch n, ok := rawjson.Int(raw); {
	case rawjson.IsNull(raw):
	case ok && n > 0:
		t.r.TopK = &n
	default:
		t.drop("top_k")
	}
	return nil
}

// validThinking reports whether the upstream takes a switch for thinking.
func (t *messagesRequestBuilder) validThinking(th *messages.Thinking) bool {
	switch th.Type {
	case "enabled":
		return th.BudgetTokens >= 1024 && th.BudgetTokens < t.r.MaxTokens
	case "adaptive", "disabled":
		return th.BudgetTokens == 0
	}
	return false
}
