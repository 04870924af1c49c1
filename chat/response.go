package chat

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Response is a chat completion. Fields that are not named here are in Extra, here
// and in its parts.
type Response struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`  // "chat.completion"
	Created int64          `json:"created"` // Unix seconds
	Model   string         `json:"model"`   // public id
	Choices []Choice       `json:"choices"`
	Usage   *Usage         `json:"usage,omitzero"`
	Extra   jsontext.Value `json:",embed"`

	// Raw is the answer as it came, but for the model's id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Choice is one candidate.
type Choice struct {
	Index        int64          `json:"index"`
	Message      Message        `json:"message"`
	FinishReason string         `json:"finish_reason"` // stop, length, tool_calls, content_filter
	Extra        jsontext.Value `json:",embed"`
}

// Usage is the upstream's count of tokens. PromptTokens includes cached tokens,
// CompletionTokens includes reasoning.
type Usage struct {
	PromptTokens            int64              `json:"prompt_tokens"`
	CompletionTokens        int64              `json:"completion_tokens"`
	TotalTokens             int64              `json:"total_tokens"`
	PromptTokensDetails     *PromptDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionTokensDetails *CompletionDetails `json:"completion_tokens_details,omitzero"`
	Extra                   jsontext.Value     `json:",embed"`
}

// PromptDetails says how the prompt was served.
type PromptDetails struct {
	CachedTokens int64          `json:"cached_tokens"`
	Extra        jsontext.Value `json:",embed"`
}

// CompletionDetails says what the completion consists of.
type CompletionDetails struct {
	ReasoningTokens int64          `json:"reasoning_tokens"`
	Extra           jsontext.Value `json:",embed"`
}

// Chunk is one piece of a streamed completion.
type Chunk struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"` // "chat.completion.chunk"
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []ChunkChoice  `json:"choices"`        // empty in the usage chunk
	Usage   *Usage         `json:"usage,omitzero"` // only if asked for
	Extra   jsontext.Value `json:",embed"`

	// Raw is the chunk as it came, but for the model's id.
	Raw jsontext.Value `json:"-"`
}

// ChunkChoice is one candidate's piece.
type ChunkChoice struct {
	Index        int64          `json:"index"`
	Delta        Message        `json:"delta"`
	FinishReason string         `json:"-"` // see MarshalJSON: null until the last piece
	Extra        jsontext.Value `json:"-"`
}

// wireChoice is ChunkChoice on the wire, where an open choice has a null reason.
type wireChoice struct {
	Index        int64          `json:"index"`
	Delta        Message        `json:"delta"`
	FinishReason *string        `json:"finish_reason"`
	Extra        jsontext.Value `json:",embed"`
}

// MarshalJSON writes an empty FinishReason as null.
func (c ChunkChoice) MarshalJSON() ([]byte, error) {
	w := wireChoice{Index: c.Index, Delta: c.Delta, Extra: c.Extra}
	if c.FinishReason != "" {
		w.FinishReason = &c.FinishReason
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a null finish_reason as empty.
func (c *ChunkChoice) UnmarshalJSON(data []byte) error {
	var w wireChoice
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*c = ChunkChoice{Index: w.Index, Delta: w.Delta, Extra: w.Extra}
	if w.FinishReason != nil {
		c.FinishReason = *w.FinishReason
	}
	return nil
}

// Answer is a checked, non-streamed completion.
type Answer struct {
	Body  []byte // as the upstream sent it, with the public model id
	Usage billing.Usage
	Said  int64 // output tokens by the text alone, whatever the upstream reports
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b MediaBound) (Answer, error) {
	var s answerScan
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	err := rawjson.IndexInto(o, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "choices" {
			return s.readChoices(rd, data, "message")
		}
		_, err := rd.Skip()
		return err
	})
	if err := answer.Whole(o, err); err != nil {
		return Answer{}, err
	}
	if !s.choices {
		return Answer{}, answer.Bad("The upstream's answer has no choices.", nil)
	}
	var p report
	p.read(o.Raw("usage"))
	p.read(s.nested)
	var few [2]rawjson.Edit
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), r.publicEdits(few[:0], o)...)
	return Answer{body, r.usage(&p, s.text.Quarters, b), tokencount.Tokens(s.text.Quarters)}, nil
}

// publicEdits are the edits that every answer and chunk gets: the public
// model id, and no `"error": null`, which kills clients.
func (r *Request) publicEdits(edits []rawjson.Edit, o *rawjson.Object) []rawjson.Edit {
	if model := o.Raw("model"); model != nil {
		edits = append(edits, rawjson.Set("model", r.parsed.Model(r.Model)))
	}
	if o.Raw("error") != nil {
		edits = append(edits, rawjson.Delete("error"))
	}
	return edits
}

// answerScan is what one answer or chunk holds, gathered in the one pass that checks it.
type answerScan struct {
	choices  bool // there is a choices array
	count    int  // its length
	text     completion.Text
	finished bool   // a choice has a finish_reason
	nested   []byte // choices[].usage, where some vendors put it
}

// readChoices reads the choices member. inner is "message" or "delta".
func (s *answerScan) readChoices(rd *rawjson.Reader, src []byte, inner string) error {
	if rd.Kind() != '[' {
		_, err := rd.Skip()
		return err
	}
	s.choices = true
	return rd.Array(func(int) error {
		s.count++
		if rd.Kind() != '{' {
			_, err := rd.Skip()
			return err
		}
		return rd.Object(func(name []byte, _ rawjson.Span) error { return s.readChoice(rd, src, name, inner) })
	})
}

func (s *answerScan) readChoice(rd *rawjson.Reader, src, name []byte, inner string) error {
	if string(name) == inner && rd.Kind() == '{' {
		return rd.Object(func(name []byte, _ rawjson.Span) error { return s.readText(rd, src, name) })
	}
	reason, usage := string(name) == "finish_reason", string(name) == "usage"
	span, err := rd.Skip()
	switch {
	case err != nil:
	case reason:
		s.finished = s.finished || !rawjson.IsNull(span.Of(src))
	case usage && !rawjson.IsNull(span.Of(src)):
		s.nested = span.Of(src)
	}
	return err
}

// readText counts the members of a message or delta that the model wrote.
func (s *answerScan) readText(rd *rawjson.Reader, src, name []byte) error {
	switch string(name) {
	case "tool_calls":
		if rd.Kind() == '[' {
			return rd.Array(func(int) error { return s.readCall(rd, src) })
		}
	case "content", "reasoning_content", "reasoning", "refusal":
		span, err := rd.Skip()
		if err == nil {
			s.text.Add(span.Of(src), span)
		}
		return err
	}
	_, err := rd.Skip()
	return err
}

func (s *answerScan) readCall(rd *rawjson.Reader, src []byte) error {
	if rd.Kind() != '{' {
		_, err := rd.Skip()
		return err
	}
	return rd.Object(func(name []byte, _ rawjson.Span) error {
		if string(name) != "function" || rd.Kind() != '{' {
			_, err := rd.Skip()
			return err
		}
		return rd.Object(func(name []byte, _ rawjson.Span) error {
			written := string(name) == "name" || string(name) == "arguments"
			span, err := rd.Skip()
			if err == nil && written {
				s.text.Add(span.Of(src), span)
			}
			return err
		})
	})
}
