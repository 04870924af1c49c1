package sim

import (
	"fmt"
	"strings"

	"github.com/tollhouse-ai/gateway/chat"
)

const honesty = "This is a simulated answer: no model was called. "

// text is the text of an answer; never empty.
func (u *Upstream) text(r *chat.Request) string {
	text := ""
	if u.o.Text != nil {
		text = u.o.Text(r)
	}
	if strings.TrimSpace(text) == "" {
		text = honesty + quoted(r)
	}
	return text
}

// quoted repeats the last message.
func quoted(r *chat.Request) string {
	m := last(r)
	said := clip(m.Content.String())
	switch m.Role {
	case "tool":
		return fmt.Sprintf(`The tool answered: "%s"`, said)
	case "assistant":
		return fmt.Sprintf(`It goes on from: "%s"`, said)
	}
	text := fmt.Sprintf(`You said: "%s"`, said)
	if shown := shown(&m); shown != "" {
		text += " With it came " + shown + "."
	}
	return text
}

// shown names the media of a message: "1 image and 2 other files".
func shown(m *chat.Message) string {
	var parts []string
	images, others := media(m)
	for _, p := range []struct {
		n         int64
		one, many string
	}{{images, "image", "images"}, {others, "other file", "other files"}} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	return strings.Join(parts, " and ")
}

// thoughts is the reasoning of a model that thinks.
func thoughts(r *chat.Request) string {
	m := last(r)
	return fmt.Sprintf("This is simulated reasoning: nobody thinks here. The last message has %d tokens.", messageTokens(&m))
}

// last is the last message; Validate has seen that there is one.
func last(r *chat.Request) chat.Message { return r.Messages[len(r.Messages)-1] }

// clip bounds how much of a message is repeated.
func clip(s string) string {
	const most = 200
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most]) + "…"
}
