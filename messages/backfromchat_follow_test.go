package messages

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/sse"
)

// told is what a client makes of a stream of a message.
type told struct {
	message Response // as message_start has it, with the content that followed
	started bool
	open    bool // a block is open
	stopped bool // message_delta came
	over    bool // message_stop came
	usage   jsontext.Value
}

// follow reads events as a strict client does: it fails at the first that is out
// of order.
func follow(stream []byte) (told, error) {
	var c told
	events := sse.NewReader(bytes.NewReader(stream), 0)
	defer events.Release()
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err == nil {
			err = c.take(e.Name, e.Data)
		}
		if err != nil {
			return c, err
		}
	}
}

// heard is any event.
type heard struct {
	Type    string   `json:"type"`
	Index   int      `json:"index"`
	Message Response `json:"message"`
	Block   Block    `json:"content_block"`
	Delta   struct {
		Type       string  `json:"type"`
		Text       string  `json:"text"`
		Thinking   string  `json:"thinking"`
		Signature  string  `json:"signature"`
		Partial    string  `json:"partial_json"`
		StopReason *string `json:"stop_reason"`
	} `json:"delta"`
	Usage jsontext.Value `json:"usage"`
}

func (c *told) take(name string, data []byte) error {
	var e heard
	if err := json.Unmarshal(data, &e, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	wrong := fmt.Errorf("out of order: %s", data)
	switch {
	case e.Type != name || c.over:
		return wrong
	case e.Type == "message_start" && !c.started:
		c.started, c.message = true, e.Message
		if len(e.Message.Content) > 0 || e.Message.StopReason != nil {
			return wrong
		}
	case !c.started:
		return wrong
	case e.Type == hiddenEvent: // for the tap
	case e.Type == "content_block_start" && !c.open && !c.stopped && e.Index == len(c.message.Content):
		c.open, c.message.Content = true, append(c.message.Content, e.Block)
		c.message.Content[e.Index].Input = nil
	case e.Type == "content_block_delta" && c.open && e.Index == len(c.message.Content)-1:
		return c.message.Content[e.Index].add(&e)
	case e.Type == "content_block_stop" && c.open && e.Index == len(c.message.Content)-1:
		c.open = false
		b := &c.message.Content[e.Index]
		if b.Type == "thinking" && *b.Signature == "" {
			return fmt.Errorf("unsigned: %s", data)
		}
		if b.Type == "tool_use" && b.Input == nil {
			b.Input = jsontext.Value("{}")
		}
	case e.Type == "message_delta" && !c.open && !c.stopped && e.Delta.StopReason != nil:
		c.stopped, c.message.StopReason, c.usage = true, e.Delta.StopReason, e.Usage
	case e.Type == "message_stop" && c.stopped:
		c.over = true
	default:
		return wrong
	}
	return nil
}

// add puts a delta to the open block.
func (b *Block) add(e *heard) error {
	switch b.Type + " " + e.Delta.Type {
	case "text text_delta":
		b.Text += e.Delta.Text
	case "thinking thinking_delta":
		b.Thinking += e.Delta.Thinking
	case "thinking signature_delta":
		b.Signature = &e.Delta.Signature
	case "tool_use input_json_delta":
		b.Input = append(b.Input, e.Delta.Partial...)
	default:
		return fmt.Errorf("a %s in a block of %s", e.Delta.Type, b.Type)
	}
	return nil
}

// outline is content in short: its blocks one after the other.
func outline(blocks []Block) string {
	var b bytes.Buffer
	for i := range blocks {
		switch block := &blocks[i]; block.Type {
		case "text":
			fmt.Fprintf(&b, "text(%s)", block.Text)
		case "thinking":
			fmt.Fprintf(&b, "thinking(%s)", block.Thinking)
		case "tool_use":
			fmt.Fprintf(&b, "%s:%s(%s)", block.ID, block.Name, block.Input)
		default:
			fmt.Fprintf(&b, "?%s", block.Type)
		}
	}
	return b.String()
}
