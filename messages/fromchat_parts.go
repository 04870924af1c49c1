package messages

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// What a message may consist of, by its role.
var (
	anyPart  = []string{"text", "image_url", "file"}
	textOnly = []string{"text"}
)

// blocks are a message's content.
func (b *chatTurns) blocks(m *chat.Message, i int, allowed []string) ([]Block, error) {
	content := fmt.Sprintf("messages[%d].content", i)
	if m.Content.IsNull() {
		return nil, nil
	}
	if s, ok := rawjson.String(m.Content.Raw()); ok {
		if blank(s) {
			return nil, nil
		}
		return []Block{{Type: "text", Text: s}}, nil
	}
	var parts []chat.Part
	if err := json.Unmarshal(m.Content.Raw(), &parts, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, refusedField(content+dotted(err), "of the form that the API describes")
	}
	blocks := make([]Block, 0, len(parts))
	for j := range parts {
		p := chatPart{t: b.t, Part: &parts[j], param: fmt.Sprintf("%s[%d]", content, j)}
		if !slices.Contains(allowed, p.Type) {
			return nil, refusedField(p.param+".type", rule.Words(allowed)+" in a message of role "+m.Role+" for this model")
		}
		block, err := p.block()
		if err != nil {
			return nil, err
		}
		if block.Type != "" {
			blocks = append(blocks, block)
		}
	}
	return blocks, nil
}

// chatPart is one content block of a chat message.
type chatPart struct {
	t *chatCall
	*chat.Part
	param string
}

// block translates the part; one without a type if there is nothing to send.
func (p *chatPart) block() (block Block, err error) {
	switch p.Type {
	case "text":
		if blank(p.Text) {
			return Block{}, nil
		}
		block = Block{Type: "text", Text: p.Text}
	case "image_url":
		block, err = p.image()
	case "file":
		block, err = p.document()
	}
	const cacheControl = "cache_control"
	p.t.dropMembers(p.Extra, "messages.content.", cacheControl)
	if o, e := rawjson.Index(p.Extra, nil, nil); e == nil && !rawjson.IsNull(o.Raw(cacheControl)) {
		block.CacheControl = o.Raw(cacheControl)
	}
	return block, err
}

// imageTypes are the pictures that the upstream reads.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

func (p *chatPart) image() (Block, error) {
	param := p.param + ".image_url.url"
	if p.ImageURL == nil {
		return Block{}, refusedField(param, "an absolute http, https or data URL")
	}
	if o, err := rawjson.Index(p.ImageURL.Extra, nil, nil); err == nil {
		if detail := o.Raw("detail"); !rawjson.IsNull(detail) && string(detail) != `"auto"` {
			p.t.drop("messages.content.image_url.detail")
		}
		p.t.dropMembers(p.ImageURL.Extra, "messages.content.image_url.", "detail")
	}
	scheme, _, _ := strings.Cut(p.ImageURL.URL, ":")
	switch strings.ToLower(scheme) {
	case "http", "https":
		return Block{Type: "image", Source: &MediaSource{Type: "url", URL: p.ImageURL.URL}}, nil
	case "data":
	default:
		return Block{}, refusedField(param, "an http, https or data URL for this model")
	}
	kind, data, ok := dataURL(p.ImageURL.URL)
	if kind == "image/jpg" { // no registered name, but a common one
		kind = "image/jpeg"
	}
	if !ok || !slices.Contains(imageTypes, kind) {
		return Block{}, refusedField(param, "a base64 data URL of type "+strings.Join(imageTypes, ", ")+" for this model")
	}
	return Block{Type: "image", Source: &MediaSource{Type: "base64", MediaType: kind, Data: data}}, nil
}

// document is a file that the caller sends along. The upstream knows no other.
func (p *chatPart) document() (Block, error) {
	var file struct {
		Data  string         `json:"file_data"`
		Name  string         `json:"filename"`
		ID    string         `json:"file_id"`
		Extra jsontext.Value `json:",embed"`
	}
	if err := json.Unmarshal(p.File, &file, jsontext.AllowDuplicateNames(true)); err != nil {
		return Block{}, refusedField(p.param+".file", `an object such as {"filename":…,"file_data":"data:application/pdf;base64,…"}`)
	}
	if file.ID != "" {
		return Block{}, refusedField(p.param+".file.file_id", `absent for this model, which takes "file_data"`)
	}
	p.t.dropMembers(file.Extra, "messages.content.file.")
	block := Block{Type: "document", Title: file.Name}
	kind, data, ok := dataURL(file.Data)
	switch {
	case ok && kind == "application/pdf":
		block.Source = &MediaSource{Type: "base64", MediaType: kind, Data: data}
		return block, nil
	case ok && kind == "text/plain":
		text, err := base64.StdEncoding.DecodeString(data)
		if err == nil && utf8.Valid(text) && !blank(string(text)) {
			block.Source = &MediaSource{Type: "text", MediaType: kind, Data: string(text)}
			return block, nil
		}
	}
	return Block{}, refusedField(p.param+".file.file_data", "a base64 data URL of type application/pdf or text/plain (UTF-8) for this model")
}

// dataURL takes a base64 data URL apart; false if it is none.
func dataURL(s string) (kind, data string, ok bool) {
	const scheme = "data:"
	if len(s) < len(scheme) || !strings.EqualFold(s[:len(scheme)], scheme) {
		return "", "", false
	}
	head, data, ok := strings.Cut(s[len(scheme):], ",")
	head = strings.ToLower(head)
	kind, _, _ = strings.Cut(head, ";")
	return strings.TrimSpace(kind), data, ok && data != "" && strings.HasSuffix(head, ";base64")
}
