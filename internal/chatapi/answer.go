package chatapi

import (
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b chat.MediaBound) (completion.Answer, error) {
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
		return completion.Answer{}, err
	}
	if !s.choices {
		return completion.Answer{}, answer.Bad("The upstream's answer has no choices.", nil)
	}
	var p Report
	p.Read(o.Raw("usage"))
	p.Read(s.nested)
	var few [2]rawjson.Edit
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), r.publicEdits(few[:0], o)...)
	return completion.Answer{Body: body, Usage: r.usage(&p, s.text.Quarters, b), Said: tokencount.Tokens(s.text.Quarters)}, nil
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
