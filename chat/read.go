package chat

import "github.com/tollhouse-ai/gateway/internal/rawjson"

// seen is what one answer or chunk holds, gathered in the one pass that checks it.
type seen struct {
	choices  bool         // there is a choices array
	count    int          // its length
	quarters int64        // text in it, in quarter tokens
	texts    int          // the strings that it is in
	text     rawjson.Span // the last of them
	finished bool         // a choice has a finish_reason
	nested   []byte       // choices[].usage, where some vendors put it
}

// readChoices reads the choices member. inner is "message" or "delta".
func (s *seen) readChoices(rd *rawjson.Reader, src []byte, inner string) error {
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

func (s *seen) readChoice(rd *rawjson.Reader, src, name []byte, inner string) error {
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
func (s *seen) readText(rd *rawjson.Reader, src, name []byte) error {
	switch string(name) {
	case "tool_calls":
		if rd.Kind() == '[' {
			return rd.Array(func(int) error { return s.readCall(rd, src) })
		}
	case "content", "reasoning_content", "reasoning", "refusal":
		span, err := rd.Skip()
		if err == nil {
			s.wrote(span.Of(src), span)
		}
		return err
	}
	_, err := rd.Skip()
	return err
}

func (s *seen) readCall(rd *rawjson.Reader, src []byte) error {
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
				s.wrote(span.Of(src), span)
			}
			return err
		})
	})
}
