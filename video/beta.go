package video

import (
	"slices"
	"sync"
)

// Beta is a row of the beta family's table: models that obey the same rules.
type Beta struct {
	IDs   []string
	Needs []string // the members that `input` must have
	// Prompt is the most characters of the prompt.
	Prompt int
	// Size says that resolution and aspect ratio go upstream as
	// parameters.size; else the resolution goes as parameters.resolution.
	Size bool
	// Ratio says that the aspect ratio goes upstream as parameters.ratio. Without
	// it and Size, the picture that is animated has the ratio.
	Ratio bool
	// Sound says that parameters.audio may ask for a silent video, which is
	// cheaper.
	Sound       bool
	Resolutions []string // the smallest first
	// Priced says that 1080p is there only where it has a price.
	Priced            bool
	Durations         []int64 // the only lengths there are, in seconds; nil for all from Shortest to Longest
	Shortest, Longest int64   // seconds
	// Clip is the longest video that is made with a reference video; 0 means
	// Longest.
	Clip int64
}

// The defaults of the beta family (api.md).
const (
	usualDuration   = 5
	usualResolution = p720
	usualRatio      = "16:9"
)

// BetaFamily is the table of api.md, Video generation, beta family, with the
// limits of the vendor's pages. The suffix of an id decides its input, its
// version the layout of its parameters.
func BetaFamily() []Beta {
	small, all := []string{p720, p1080}, []string{p480, p720, p1080}
	text, media, image, references := []string{"prompt"}, []string{"media"}, []string{"img_url"}, []string{"prompt", "reference_urls"}
	preview := []int64{5, 10}
	return []Beta{
		{IDs: []string{"beta2.7-t2v", "beta2.7-t2v-2026-04-25"}, Needs: text, Prompt: 5000, Ratio: true, Resolutions: small, Priced: true, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.7-i2v", "beta2.7-i2v-2026-04-25"}, Needs: media, Prompt: 5000, Resolutions: small, Priced: true, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.7-r2v"}, Needs: []string{"prompt", "media"}, Prompt: 5000, Ratio: true, Resolutions: small, Priced: true, Shortest: 2, Longest: 15, Clip: 10},
		{IDs: []string{"beta2.6-t2v"}, Needs: text, Prompt: 1500, Size: true, Resolutions: small, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.6-i2v"}, Needs: image, Prompt: 1500, Resolutions: small, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.6-i2v-flash"}, Needs: image, Prompt: 1500, Sound: true, Resolutions: small, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.6-r2v"}, Needs: references, Prompt: 1500, Size: true, Resolutions: small, Shortest: 2, Longest: 10},
		{IDs: []string{"beta2.6-r2v-flash"}, Needs: references, Prompt: 1500, Size: true, Sound: true, Resolutions: small, Shortest: 2, Longest: 10},
		{IDs: []string{"beta2.5-t2v-preview"}, Needs: text, Prompt: 1500, Size: true, Resolutions: all, Durations: preview, Shortest: 5, Longest: 10},
		{IDs: []string{"beta2.5-i2v-preview"}, Needs: image, Prompt: 1500, Resolutions: all, Durations: preview, Shortest: 5, Longest: 10},
	}
}

// media are the types of the 2.7 layout's media: those of api.md, and what else
// the vendor's pages name.
var media = []string{"reference_video", "reference_image", "first_frame", "driving_audio", "last_frame", "first_clip", "reference_voice"}

// betas are [BetaFamily], made once: nobody changes them.
var betas = sync.OnceValue(BetaFamily)

// beta is the model's row; nil if there is none.
func beta(model string) *Beta {
	for _, row := range betas() {
		if slices.Contains(row.IDs, model) {
			return &row
		}
	}
	return nil
}
