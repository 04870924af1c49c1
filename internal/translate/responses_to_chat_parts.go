package translate

import (
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/responses"
)

// partRow says what becomes of a part of one type in one place.
type partRow struct {
	place, part string
	action      string
	note        string
	carry       func(p *responses.Part, at string) (chat.Part, error)
}

// itemParts are the parts that are known. Any other is refused.
var itemParts = []partRow{
	{inSystem, "input_text", carried, "text", textOf},
	{inSystem, "text", carried, "text", textOf},
	{inSystem, "output_text", carried, "text", textOf},
	{inUser, "input_text", carried, "text", textOf},
	{inUser, "text", carried, "text", textOf},
	{inUser, "output_text", carried, "text", textOf},
	{inUser, "input_image", carried, "image_url", pictureOf},
	{inUser, "input_file", carried, "file", fileOf},
	{inUser, "input_audio", carried, "input_audio or audio_url", audioOf},
	{inAssistant, "output_text", carried, "text", textOf},
	{inAssistant, "input_text", carried, "text", textOf},
	{inAssistant, "text", carried, "text", textOf},
	{inAssistant, "refusal", carried, "refusal", refusalOf},
	{inResult, "input_text", carried, "text; several are joined by a line break", textOf},
	{inResult, "text", carried, "text", textOf},
	{inResult, "output_text", carried, "text", textOf},
	{inResult, "input_image", carried, "image_url of the user message that follows", pictureOf},
	{inResult, "input_file", carried, "file of the user message that follows", fileOf},
	{inResult, "input_audio", carried, "input_audio or audio_url of the user message that follows", audioOf},
}

// parts are a content's parts, as chat has them.
func (b *completionBuilder) parts(place string, c responses.Content, at string) ([]chat.Part, error) {
	if text, ok := rawjson.String(c); ok {
		return []chat.Part{textPart(text)}, nil
	}
	var list []responses.Part
	if err := decodeList(c, &list, at); err != nil {
		return nil, err
	}
	parts := make([]chat.Part, 0, len(list))
	for i := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		row := slices.IndexFunc(itemParts, func(r partRow) bool { return r.place == place && r.part == list[i].Type })
		if row < 0 {
			var takes []string
			for _, r := range itemParts {
				if r.place == place {
					takes = append(takes, r.part)
				}
			}
			return nil, refusal(at+".type", "a part that this model's upstream can take in a "+place+": "+rule.Words(takes))
		}
		part, err := itemParts[row].carry(&list[i], at)
		if err != nil {
			return nil, err
		}
		b.dropUnknown("input.content.", list[i].Extra)
		if part.Type != "text" || part.Text != "" { // vendors refuse a part that says nothing
			parts = append(parts, part)
		}
	}
	return parts, nil
}

func textOf(p *responses.Part, _ string) (chat.Part, error) { return textPart(p.Text), nil }

func refusalOf(p *responses.Part, _ string) (chat.Part, error) {
	return chat.Part{Type: p.Type, Text: p.Refusal}, nil
}

// elsewhere refuses a file that lies at another vendor.
func elsewhere(p *responses.Part, at string) error {
	if p.FileID == "" {
		return nil
	}
	return refusal(at+".file_id", "absent for this model: the file lies at another vendor. Send its content instead")
}

func pictureOf(p *responses.Part, at string) (chat.Part, error) {
	if err := elsewhere(p, at); err != nil {
		return chat.Part{}, err
	}
	link := &chat.Link{URL: p.ImageURL}
	detail := p.Detail
	if detail == "original" { // of which chat knows nothing
		detail = "high"
	}
	if detail != "" && detail != "auto" {
		link.Extra = edited([]byte("{}"), rawjson.Set("detail", rawjson.Quote(nil, detail)))
	}
	return chat.Part{Type: "image_url", ImageURL: link}, nil
}

func fileOf(p *responses.Part, at string) (chat.Part, error) {
	if err := elsewhere(p, at); err != nil {
		return chat.Part{}, err
	}
	if p.FileURL != "" {
		return chat.Part{}, refusal(at+".file_url", `absent for this model: the gateway fetches nothing. Send "file_data" instead`)
	}
	return filePart(p.Filename, p.FileData), nil
}

func audioOf(p *responses.Part, _ string) (chat.Part, error) {
	if p.AudioURL != "" {
		return chat.Part{Type: "audio_url", AudioURL: &chat.Link{URL: p.AudioURL}}, nil
	}
	var sound []rawjson.Edit
	for _, name := range []string{"data", "format"} { // what else it holds was not looked at
		if raw := member(p.InputAudio, name); raw != nil {
			sound = append(sound, rawjson.Set(name, raw))
		}
	}
	return chat.Part{Type: "input_audio", InputAudio: edited([]byte("{}"), sound...)}, nil
}
