package ark

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// translated is the body in the vendor's form, which is the public one but for
// the role of a sound, the name of a draft's id, and a priority that is a
// number. Whatever else there is stays byte for byte.
func translated(body upstream.Body) upstream.Body {
	if content := blocks(body.Raw("content")); content != nil {
		body = body.Set("content", content)
	}
	if text, ok := rawjson.String(body.Raw("priority")); ok {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			body = body.Set("priority", strconv.AppendInt(nil, n, 10))
		}
	}
	return body
}

// blocks are those of content, an array, with the ones in the vendor's form that
// are not; nil if there are none.
func blocks(content []byte) (changed []byte) {
	done := 0
	rawjson.Each(content, func(_ int, at rawjson.Span) {
		if b := block(at.Of(content)); b != nil {
			changed = append(append(changed, content[done:at.Start]...), b...)
			done = at.End
		}
	})
	if done == 0 {
		return nil
	}
	return append(changed, content[done:]...)
}

// block is a content block in the vendor's form; nil if it is so already.
func block(raw []byte) []byte {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil // it is no object: for the vendor to refuse
	}
	switch kind, _ := rawjson.String(o.Raw("type")); kind {
	case "audio_url":
		if rawjson.IsNull(o.Raw("role")) {
			return o.Apply(nil, rawjson.Set("role", []byte(`"reference_audio"`)))
		}
	case "draft_task":
		draft, err := rawjson.Index(o.Raw("draft_task"), nil, nil)
		if err == nil && draft.Raw("task_id") != nil {
			return o.Apply(nil, rawjson.Set("draft_task", draft.Apply(nil, rawjson.Rename("task_id", "id"))))
		}
	}
	return nil
}
