package messages

import (
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// sourceFate is what becomes of an image or document by where it is.
type sourceFate struct {
	block, source string
	kind          string
	note          string
	parts         func(b *Block) []chat.Part // nil if it is refused
}

// sourceFates are the sources that are known. Any other is refused: an
// attachment that got lost would be worse than a 400.
var sourceFates = []sourceFate{
	{"image", "base64", fateCarried, "image_url with a data URI", func(b *Block) []chat.Part { return picture(dataURI(b)) }},
	{"image", "url", fateCarried, "image_url", func(b *Block) []chat.Part { return picture(b.Source.URL) }},
	{"image", "file", fateRefused, "the file lies at another vendor", nil},
	{"document", "base64", fateCarried, "file with a data URI, named by the title", fileParts},
	{"document", "text", fateCarried, "text", func(b *Block) []chat.Part { return append(heading(b, true), textPart(b.Source.Data)) }},
	{"document", "url", fateRefused, "chat's file part holds data only, and the gateway fetches nothing", nil},
	{"document", "content", fateRefused, "chat has no document made of blocks", nil},
	{"document", "file", fateRefused, "the file lies at another vendor", nil},
}

// media carries an image or a document.
func (t *outbound) media(b *Block) error {
	if b.Source == nil {
		return refusedField(t.at+".source", "an object")
	}
	for _, f := range sourceFates {
		if f.block == b.Type && f.source == b.Source.Type && f.parts != nil {
			t.turn.parts = append(t.turn.parts, f.parts(b)...)
			return nil
		}
	}
	return refusedField(t.at+".source.type", "a source of "+b.Type+"s that this model's upstream can take: "+rule.Words(sourcesOf(b.Type)))
}

// sourcesOf are the sources of a block that are carried.
func sourcesOf(block string) (types []string) {
	for _, f := range sourceFates {
		if f.block == block && f.parts != nil {
			types = append(types, f.source)
		}
	}
	return types
}

func picture(link string) []chat.Part {
	return []chat.Part{{Type: "image_url", ImageURL: &chat.Link{URL: link}}}
}

func dataURI(b *Block) string { return "data:" + b.Source.MediaType + ";base64," + b.Source.Data }

// fileParts is a document that is not text.
func fileParts(b *Block) []chat.Part {
	name := b.Title
	if name == "" {
		name = "document"
	}
	if b.Source.MediaType == "application/pdf" && !strings.HasSuffix(strings.ToLower(name), ".pdf") {
		name += ".pdf" // some vendors go by the name
	}
	file, err := json.Marshal(struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
	}{name, dataURI(b)})
	if err != nil { // strings that were decoded can be encoded
		file = []byte("{}")
	}
	return append(heading(b, false), chat.Part{Type: "file", File: file})
}

// heading is what a document says of itself before its content.
func heading(b *Block, title bool) (parts []chat.Part) {
	if title && b.Title != "" {
		parts = append(parts, textPart(b.Title))
	}
	if o, err := rawjson.Index(b.Extra, nil, nil); err == nil {
		if context, _ := rawjson.String(o.Raw("context")); context != "" {
			parts = append(parts, textPart(context))
		}
	}
	return parts
}
