package faultlab

import (
	"fmt"
	"strings"

	"github.com/tollhouse-ai/gateway/upstream"
)

// expiry is the time that the lab's callers give a video of the gamma family, in
// seconds. It is the vendor's to obey.
const expiry = 3600

// Body is what the client sends; nil where that is a form.
func (c *Case) Body() []byte {
	model := traits[c.Kind].model
	rest := ""
	if c.Stream {
		rest += `,"stream":true`
	}
	switch {
	case c.Kind.Talks():
		if c.MaxTokens > 0 {
			rest += fmt.Sprintf(`,"max_tokens":%d`, c.MaxTokens)
		}
		if c.ShowUsage && c.Stream && c.Kind.op() == upstream.ChatCompletion {
			rest += `,"stream_options":{"include_usage":true}`
		}
		return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, model, c.Prompt, rest)
	case c.Kind == Embeddings:
		texts := make([]string, c.Texts)
		for i := range texts {
			texts[i] = fmt.Sprintf("%q", c.textAt(i))
		}
		return fmt.Appendf(nil, `{"model":%q,"input":[%s]}`, model, strings.Join(texts, ","))
	case c.Kind == Speech:
		return fmt.Appendf(nil, `{"model":%q,"input":%q,"voice":"alloy","instructions":"%s."}`, model, c.Prompt, c.Tag)
	case c.Kind == Beta:
		return fmt.Appendf(nil, `{"model":%q,"duration":%d,"resolution":"720p","input":{"prompt":%q}}`, model, c.Seconds, c.Prompt)
	case c.Kind == Gamma:
		return fmt.Appendf(nil, `{"model":%q,"duration":%d,"resolution":"480p","execution_expires_after":%d,"content":[{"type":"text","text":%q}]}`, model, c.Seconds, expiry, c.Prompt)
	case c.Kind == Edit:
		return nil
	}
	if c.Kind == Image {
		rest += `,"quality":"low","size":"1024x1024"`
	}
	if c.Partials > 0 {
		rest += fmt.Sprintf(`,"partial_images":%d`, c.Partials)
	}
	return fmt.Appendf(nil, `{"model":%q,"prompt":%q,"n":%d%s}`, model, c.Prompt, c.Pictures, rest)
}

// textAt is one of the texts that are embedded. It tells its place.
func (c *Case) textAt(i int) string { return fmt.Sprintf("t%02d %s", i, c.Prompt) }

// pixels is a picture of 16 by 16 points, as far as anybody looks at it.
const picture = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x00\x00\x00\x00\x3a\x98\xa0\xbd" +
	"\x00\x00\x00\x0cIDATx\x9cc`\xa0\x1c\x00\x00\x01\x10\x00\x01\x00\x00\x00\x00IEND\xaeB`\x82"

// Form is the form of an edit.
func (c *Case) Form() *upstream.Form {
	file := upstream.Field("image", picture)
	file.Filename = "a.png"
	parts := []upstream.Part{
		upstream.Field("model", traits[c.Kind].model), upstream.Field("prompt", c.Prompt),
		upstream.Field("quality", "low"), upstream.Field("size", "1024x1024"), file,
	}
	if c.Stream {
		parts = append(parts, upstream.Field("stream", "true"), upstream.Field("partial_images", fmt.Sprint(c.Partials)))
	}
	return upstream.NewForm(parts, nil)
}
