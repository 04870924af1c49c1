package video

import "sync"

// Gamma is a row of the gamma family's table.
type Gamma struct {
	ID          string
	Resolutions []string // the smallest first
	Audio       bool     // generate_audio
	Draft       bool     // draft
	Continues   bool     // draft_task blocks
	Videos      bool     // video_url blocks
	Sounds      bool     // audio_url blocks
	// Unlisted says that api.md does not list what the model can: only the
	// common ranges are checked.
	Unlisted bool
}

// The range of the gamma family's duration (api.md), in seconds, and how many
// pictures a second has.
const (
	shortest = 4
	longest  = 15
	fps      = 24
)

// GammaFamily is the table of api.md, Video generation, gamma family. Where the
// table of models and that of blocks differ, that of models counts.
func GammaFamily() []Gamma {
	two, three := []string{p480, p720}, []string{p480, p720, p1080}
	return []Gamma{
		{ID: "gamma-2.5", Resolutions: three, Audio: true, Draft: true, Continues: true, Videos: true, Sounds: true, Unlisted: true},
		{ID: "gamma-2-0-260128", Resolutions: three, Audio: true, Videos: true, Sounds: true},
		{ID: "gamma-2-0-fast-260128", Resolutions: two, Audio: true, Sounds: true},
		{ID: "gamma-2-0-mini-260615", Resolutions: two, Audio: true, Videos: true, Sounds: true},
		{ID: "gamma-1-5-pro-251215", Resolutions: three, Audio: true, Draft: true, Continues: true},
		{ID: "gamma-1-0-pro-250528", Resolutions: three},
		{ID: "gamma-1-0-pro-fast-251015", Resolutions: two},
	}
}

// gammas are [GammaFamily], made once: nobody changes them.
var gammas = sync.OnceValue(GammaFamily)

// gamma is the model's row; nil if there is none.
func gamma(model string) *Gamma {
	for _, row := range gammas() {
		if row.ID == model {
			return &row
		}
	}
	return nil
}
