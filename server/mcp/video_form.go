package mcp

import (
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

func askVideo(a arguments) (question, error) {
	var b body
	var err error
	if row := betaModel(a.text("model")); row != nil {
		b, err = betaForm(a, row)
	} else {
		b = gammaForm(a)
	}
	if err != nil {
		return question{}, err
	}
	data, err := b.bytes()
	return question{op: upstream.SubmitVideo, body: data}, err
}

// betaModel is the model's row in the beta family; nil if it is none of it.
func betaModel(id string) *video.Beta {
	for _, row := range video.BetaFamily() {
		if slices.Contains(row.IDs, id) {
			return &row
		}
	}
	return nil
}

// sources are the arguments that name files, in the order in which a request has
// them.
var sources = []string{"first_frame", "last_frame", "reference_images", "reference_videos", "audio"}

// urls are those of an argument that names one file, or several.
func urls(a arguments, name string) []string {
	if list := a.list(name); list != nil || !a.has(name) {
		return list
	}
	return []string{a.text(name)}
}

// gammaBlocks say how each source stands in a request of the gamma family.
var gammaBlocks = map[string]func(url string) video.Block{
	"first_frame":      func(url string) video.Block { return imageBlock(url, "first_frame") },
	"last_frame":       func(url string) video.Block { return imageBlock(url, "last_frame") },
	"reference_images": func(url string) video.Block { return imageBlock(url, "reference_image") },
	"reference_videos": func(url string) video.Block {
		return video.Block{Type: "video_url", VideoURL: &video.Link{URL: url}, Role: "reference_video"}
	},
	"audio": func(url string) video.Block { return video.Block{Type: "audio_url", AudioURL: &video.Link{URL: url}} },
}

func imageBlock(url, role string) video.Block {
	return video.Block{Type: "image_url", ImageURL: &video.Link{URL: url}, Role: role}
}

// gammaForm is the request of the gamma family, and of models that no table
// describes.
func gammaForm(a arguments) body {
	var content []video.Block
	if a.has("prompt") {
		content = append(content, video.Block{Type: "text", Text: a.text("prompt")})
	}
	for _, name := range sources {
		for _, url := range urls(a, name) {
			content = append(content, gammaBlocks[name](url))
		}
	}
	b := body{}.take(a, "model", "duration", "resolution", "seed")
	if content != nil {
		b["content"] = content
	}
	b.as(a, "aspect_ratio", "ratio")
	b.as(a, "with_sound", "generate_audio")
	return b
}

// The members of the beta family's input that hold files. A model has one of
// them, which decides where the others go.
const (
	media      = "media"
	imageURL   = "img_url"
	references = "reference_urls"
)

// betaInputs say for each of them where a source goes: to which member, and of
// which type it is in a list of media. A source without a row is not taken.
var betaInputs = []struct{ layout, source, member, medium string }{
	{media, "first_frame", media, "first_frame"},
	{media, "last_frame", media, "last_frame"},
	{media, "reference_images", media, "reference_image"},
	{media, "reference_videos", media, "reference_video"},
	{media, "audio", media, "driving_audio"},
	{imageURL, "first_frame", imageURL, ""},
	{imageURL, "audio", "audio_url", ""},
	{references, "reference_images", references, ""},
	{references, "reference_videos", references, ""},
}

// betaForm is the request of the beta family.
func betaForm(a arguments, row *video.Beta) (body, error) {
	layout := "" // from text only
	for _, need := range row.Needs {
		if need != "prompt" {
			layout = need
		}
	}
	input, lists := body{}.take(a, "prompt"), make(map[string][]any)
	for _, name := range sources {
		for _, url := range urls(a, name) {
			member, medium, ok := betaInput(layout, name)
			switch {
			case !ok:
				return nil, fault.Invalid(name, fmt.Sprintf("The model %q does not take %q. %s", clip(a.text("model")), name, takes(layout)))
			case medium != "":
				lists[member] = append(lists[member], body{"type": medium, "url": url})
			case member == references:
				lists[member] = append(lists[member], url)
			default:
				input[member] = url
			}
		}
	}
	for member, list := range lists {
		input[member] = list
	}
	b := body{"input": input}.take(a, "model", "duration", "resolution", "aspect_ratio")
	parameters := body{}.take(a, "seed")
	parameters.as(a, "with_sound", "audio")
	if len(parameters) > 0 {
		b["parameters"] = parameters
	}
	return b, nil
}

func betaInput(layout, source string) (member, medium string, ok bool) {
	for _, row := range betaInputs {
		if row.layout == layout && row.source == source {
			return row.member, row.medium, true
		}
	}
	return "", "", false
}

// takes says what a model of the layout is given besides a prompt.
func takes(layout string) string {
	list := ""
	for _, row := range betaInputs {
		if row.layout == layout {
			list += ", " + row.source
		}
	}
	if list == "" {
		return "It makes videos from a prompt only."
	}
	return "Besides a prompt it takes" + list[1:] + "."
}
