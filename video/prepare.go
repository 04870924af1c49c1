package video

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Prepared is the request's body as an upstream gets it: the caller's, but for
// webhook_url and wait, which no upstream knows, what the beta family says at
// the top and its upstream wants in parameters, and the prompt of the gamma
// family, which becomes a text block.
func (r *Request) Prepared() upstream.Body {
	p := &r.parsed
	body := p.body
	away := []string{"webhook_url", "wait"}
	switch {
	case p.beta != nil:
		away = append(away, "duration", "resolution", "aspect_ratio")
		if parameters := r.preparedParameters(); parameters != nil {
			body = body.Set("parameters", parameters)
		}
	case p.gamma != nil && r.Field("prompt") != nil:
		away = append(away, "prompt")
		if strings.TrimSpace(r.Prompt) != "" {
			body = body.Set("content", r.promptBlock(p.object.Raw("prompt")))
		}
	}
	for _, name := range away {
		if r.Field(name) != nil {
			body = body.Delete(name)
		}
	}
	return body
}

// promptBlock is content with the prompt as its first block.
func (r *Request) promptBlock(prompt []byte) []byte {
	first := slices.Concat([]byte(`[{"type":"text","text":`), prompt, []byte(`}`))
	rest := r.Field("content")
	if len(rawjson.Elements(rest)) == 0 {
		return append(first, ']')
	}
	return slices.Concat(first, []byte(","), rest[1:])
}

// preparedParameters is parameters with what they lack; nil if they lack
// nothing.
func (r *Request) preparedParameters() []byte {
	p := &r.parsed
	want := map[string]string{"duration": strconv.FormatInt(p.asked.seconds, 10)}
	if p.beta.Size {
		s, _ := sizeOf(p.asked.resolution, p.asked.ratio)
		want["size"] = string(rawjson.Quote(nil, s.String()))
	} else {
		want["resolution"] = string(rawjson.Quote(nil, strings.ToUpper(p.asked.resolution)))
	}
	if p.beta.Ratio {
		want["ratio"] = string(rawjson.Quote(nil, p.asked.ratio))
	}
	given := p.parameters
	if given.Src == nil {
		given, _ = rawjson.Index([]byte("{}"), nil, nil) // which is a JSON object
	}
	var edits []rawjson.Edit
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if rawjson.IsNull(given.Raw(name)) {
			edits = append(edits, rawjson.Set(name, []byte(want[name])))
		}
	}
	if len(edits) == 0 {
		return nil
	}
	return given.Apply(nil, edits...)
}

// DraftTasks are the ids of the tasks that content continues: ids of ours or of
// an upstream, as the caller knows them. Each must be the account's own.
func (r *Request) DraftTasks() []string {
	var ids []string
	for _, d := range r.parsed.drafts {
		ids = append(ids, d.id)
	}
	return ids
}

// WithDraftTasks is the request with the upstream's ids in place of those that
// the caller knows, where upstreamID has them. The Request itself stays.
func (r *Request) WithDraftTasks(upstreamID map[string]string) (*Request, error) {
	var b []byte
	src, done := r.Source(), 0
	for _, d := range r.parsed.drafts {
		id, ok := upstreamID[d.id]
		if !ok || id == d.id {
			continue
		}
		b = append(b, src[done:d.at.Start]...)
		b = rawjson.Quote(b, id)
		done = d.at.End
	}
	if done == 0 {
		return r, nil
	}
	return Parse(append(b, src[done:]...))
}
