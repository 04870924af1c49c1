package dashscope

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// generateImage asks for images. The public wire of the alpha family is the vendor's:
// the body goes as it is, but for several texts, of which the vendor takes one.
func (u *Upstream) generateImage(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	resp, key, err := u.client.Post(ctx, u.generationURL, header(), joinMessageTexts(call.Body))
	if err != nil {
		return nil, err
	}
	return u.documentReply(ctx, resp, key)
}

// joinMessageTexts joins the texts of a message, of which the API allows several and
// the vendor one, by line feeds in the place of the first.
func joinMessageTexts(body upstream.Body) upstream.Body {
	input, err := rawjson.Index(body.Raw("input"), nil, nil)
	if err != nil {
		return body
	}
	messages := rawjson.Elements(input.Raw("messages"))
	if len(messages) != 1 {
		return body
	}
	message, err := rawjson.Index(messages[0], nil, nil)
	if err != nil {
		return body
	}
	content, joined := joinTexts(rawjson.Elements(message.Raw("content")))
	if !joined {
		return body
	}
	message = index(message.Apply(nil, rawjson.Set("content", content)))
	input = index(input.Apply(nil, rawjson.Set("messages", fmt.Appendf(nil, "[%s]", message.Src))))
	return body.Set("input", input.Src)
}

// joinTexts is content with one text; false if it has not several.
func joinTexts(blocks [][]byte) (content []byte, joined bool) {
	first, texts := -1, 0
	var all string
	var kept [][]byte
	for _, b := range blocks {
		block := index(b)
		text, ok := rawjson.String(block.Raw("text"))
		switch {
		case !ok:
			kept = append(kept, b)
			continue
		case texts == 0:
			first, kept, all = len(kept), append(kept, b), text
		default:
			all += "\n" + text
		}
		texts++
	}
	if texts < 2 {
		return nil, false
	}
	block := index(kept[first])
	kept[first] = block.Apply(nil, rawjson.Set("text", rawjson.Quote(nil, all)))
	return fmt.Appendf(nil, "[%s]", bytes.Join(kept, []byte{','})), true
}

// index is an object that was read before; empty if raw is none.
func index(raw []byte) rawjson.Object {
	o, _ := rawjson.Index(raw, nil, nil)
	return o
}
