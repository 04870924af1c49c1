package images

import (
	"strings"
)

// Family is a group of models that obey the same rules.
type Family struct {
	Models []Model
	// Messages says that the request has the form of `input.messages`; else it
	// has OpenAI's.
	Messages bool
	Sizes    []string // the sizes there are; nil means every W x H
	// Quality are the most output tokens that an image takes, where the vendor
	// counts them. The first row that fits counts.
	Quality []Cost
	// Edit says how the family changes images on the endpoint of edits; nil
	// means that it does not.
	Edit *EditRules
}

// EditRules are what a family takes on the endpoint of image edits.
type EditRules struct {
	Images    int      // the most images of one call
	Prompt    int      // the most characters of a prompt
	Sizes     []string // the sizes there are
	MostBytes int64    // of one image
	// Legacy says that it is the family of the vendor's first model. It takes square PNG files
	// only, and chooses neither format nor background. It answers with links if asked to, and
	// counts no tokens.
	Legacy bool
}

// Model is one public id and how many reference images it takes.
type Model struct {
	ID              string
	Fewest, Largest int // reference images; no image may be given where Largest is 0
}

// Cost is the most output tokens of one image. Empty members fit everything.
type Cost struct {
	Quality string
	Pixels  int64 // up to so many, where the size is named
	Tokens  int64
}

// Families are the models that the gateway knows for the generation and the
// editing of images, with the limits of their vendor's pages. They are read-only.
var Families = []Family{
	{
		Models: []Model{
			{"alpha-image-2.0", 0, 0}, {"alpha-image-2.0-pro", 0, 0}, {"alpha-image-max", 0, 0},
			{"alpha-image-edit", 1, 3}, {"alpha-image-edit-plus", 1, 3}, {"alpha-image-edit-max", 1, 3},
		},
		Messages: true,
		Sizes:    []string{"1024*1024", "1664*928", "1472*1140", "1328*1328", "1140*1472", "928*1664", "1280*720", "720*1280"},
	},
	{
		Models: []Model{{ID: "imagegen-1"}}, Sizes: []string{"auto", "1024x1024", "1024x1536", "1536x1024"},
		Quality: []Cost{{"low", 0, 408}, {"medium", 0, 1584}, {"", square, 4160}, {"", 0, 6240}},
		Edit:    editsOf16,
	},
	{
		Models:  []Model{{ID: "imagegen-2"}},
		Quality: []Cost{{"", 1536 * 1024, 7024}, {"", 0, 16_384}},
		Edit:    editsOf16,
	},
	{
		Models: []Model{{ID: "imagegen-legacy-2"}}, Sizes: []string{"256x256", "512x512", "1024x1024"},
		Edit: &EditRules{
			Images: 1, Prompt: 1_000, Sizes: []string{"auto", "256x256", "512x512", "1024x1024"},
			MostBytes: 4 << 20, Legacy: true,
		},
	},
}

// editsOf16 are the rules of the models that take up to 16 images.
var editsOf16 = &EditRules{
	Images: 16, Prompt: 32_000, MostBytes: maxImageBytes,
	Sizes: []string{"auto", "1024x1024", "1024x1536", "1536x1024"},
}

// The largest image and mask that the vendor takes, in bytes.
const (
	maxImageBytes = 50 << 20
	maxMaskBytes  = 4 << 20
)

const square = 1024 * 1024

// unknownCost is what an image of a model that no table describes takes at
// most: a guess, since its vendor is not known.
const unknownCost = 16_384

// FamilyOf is the model's, and its row there. One that no table describes takes
// the form of request that its name suggests.
func FamilyOf(model string) (f Family, m Model, known bool) {
	for _, f := range Families {
		for _, m := range f.Models {
			if m.ID == model {
				return f, m, true
			}
		}
	}
	return Family{Messages: strings.HasPrefix(model, "alpha-")}, Model{ID: model, Largest: -1}, false
}
