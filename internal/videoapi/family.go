package videoapi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/video"
)

// Family is a group of models with one form of request and of answer.
type Family struct {
	Name   string
	Models []string // public ids
}

// Families are the families of models that the gateway knows.
func Families() []Family {
	b, g := Family{Name: video.FamilyBeta}, Family{Name: video.FamilyGamma}
	for _, row := range BetaFamily() {
		b.Models = append(b.Models, row.IDs...)
	}
	for _, row := range gammaFamily() {
		g.Models = append(g.Models, row.ID)
	}
	return []Family{b, g}
}

// What is taken for granted of a model that no table describes.
const (
	unknownLongest    = 30      // seconds of a request that does not say
	unknownMost       = 60 * 60 // seconds that a request may say
	unknownResolution = p1080   // of a request that does not say
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
	// LongestWithReference is the longest video that is made with a reference
	// video; 0 means Longest.
	LongestWithReference int64
}

// The defaults of the beta family.
const (
	usualDuration   = 5
	usualResolution = p720
	usualRatio      = "16:9"
)

// BetaFamily is the table of the beta family, with the limits of the vendor's
// pages. The suffix of an id decides its input, its version the layout of its
// parameters.
func BetaFamily() []Beta {
	small, all := []string{p720, p1080}, []string{p480, p720, p1080}
	text, media, image, references := []string{"prompt"}, []string{"media"}, []string{"img_url"}, []string{"prompt", "reference_urls"}
	preview := []int64{5, 10}
	return []Beta{
		{IDs: []string{"beta2.7-t2v", "beta2.7-t2v-2026-04-25"}, Needs: text, Prompt: 5000, Ratio: true, Resolutions: small, Priced: true, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.7-i2v", "beta2.7-i2v-2026-04-25"}, Needs: media, Prompt: 5000, Resolutions: small, Priced: true, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.7-r2v"}, Needs: []string{"prompt", "media"}, Prompt: 5000, Ratio: true, Resolutions: small, Priced: true, Shortest: 2, Longest: 15, LongestWithReference: 10},
		{IDs: []string{"beta2.6-t2v"}, Needs: text, Prompt: 1500, Size: true, Resolutions: small, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.6-i2v"}, Needs: image, Prompt: 1500, Resolutions: small, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.6-i2v-flash"}, Needs: image, Prompt: 1500, Sound: true, Resolutions: small, Shortest: 2, Longest: 15},
		{IDs: []string{"beta2.6-r2v"}, Needs: references, Prompt: 1500, Size: true, Resolutions: small, Shortest: 2, Longest: 10},
		{IDs: []string{"beta2.6-r2v-flash"}, Needs: references, Prompt: 1500, Size: true, Sound: true, Resolutions: small, Shortest: 2, Longest: 10},
		{IDs: []string{"beta2.5-t2v-preview"}, Needs: text, Prompt: 1500, Size: true, Resolutions: all, Durations: preview, Shortest: 5, Longest: 10},
		{IDs: []string{"beta2.5-i2v-preview"}, Needs: image, Prompt: 1500, Resolutions: all, Durations: preview, Shortest: 5, Longest: 10},
	}
}

// media are the types of the 2.7 layout's media: those of the public API, and
// what else the vendor's pages name.
var media = []string{"reference_video", "reference_image", "first_frame", "driving_audio", "last_frame", "first_clip", "reference_voice"}

// betas are [BetaFamily], made once; read only.
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

// Gamma is a row of the gamma family's table.
type Gamma struct {
	ID          string
	Resolutions []string // the smallest first
	Audio       bool     // generate_audio
	Draft       bool     // draft
	Continues   bool     // draft_task blocks
	Videos      bool     // video_url blocks
	Sounds      bool     // audio_url blocks
	// Unlisted says that no page of the vendor lists what the model can: only
	// the common ranges are checked.
	Unlisted bool
}

// The range of the gamma family's duration, in seconds, and how many pictures a
// second has.
const (
	shortest = 4
	longest  = 15
	fps      = 24
)

// gammaFamily is the table of the gamma family. Where the table of models and
// that of blocks differ, that of models counts.
func gammaFamily() []Gamma {
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

// gammas are [gammaFamily], made once; read only.
var gammas = sync.OnceValue(gammaFamily)

// gamma is the model's row; nil if there is none.
func gamma(model string) *Gamma {
	for _, row := range gammas() {
		if row.ID == model {
			return &row
		}
	}
	return nil
}

// The resolutions of the public API.
const (
	p480  = "480p"
	p720  = "720p"
	p1080 = "1080p"
)

// class is a resolution and the most pixels of a picture that has it.
type class struct {
	resolution string
	pixels     int64
}

// classes are in the order of their size. The API names the first three; models
// that no table describes may have the others.
var classes = []class{{p480, 864 * 480}, {p720, 1280 * 720}, {p1080, 1920 * 1080}, {"2k", 2560 * 1440}, {"4k", 3840 * 2160}}

// pixels are those of a resolution; of one that has no row, those of the
// largest.
func pixels(resolution string) int64 {
	for _, c := range classes {
		if c.resolution == resolution {
			return c.pixels
		}
	}
	return classes[len(classes)-1].pixels
}

// size is the form in which some of the beta family's upstream takes resolution
// and aspect ratio.
type size struct {
	resolution, ratio string
	width, height     int64
}

func (s size) String() string { return fmt.Sprintf("%d*%d", s.width, s.height) }

// sizes are those of the upstream's pages.
var sizes = []size{
	{p480, "16:9", 832, 480}, {p480, "9:16", 480, 832}, {p480, "1:1", 624, 624},
	{p720, "16:9", 1280, 720}, {p720, "9:16", 720, 1280}, {p720, "1:1", 960, 960}, {p720, "4:3", 1088, 832}, {p720, "3:4", 832, 1088},
	{p1080, "16:9", 1920, 1080}, {p1080, "9:16", 1080, 1920}, {p1080, "1:1", 1440, 1440}, {p1080, "4:3", 1632, 1248}, {p1080, "3:4", 1248, 1632},
}

// ratios are the aspect ratios of the beta family.
var ratios = []string{"16:9", "9:16", "1:1", "4:3", "3:4"}

// sizeOf is the size of a resolution and an aspect ratio.
func sizeOf(resolution, ratio string) (size, bool) {
	for _, s := range sizes {
		if s.resolution == resolution && s.ratio == ratio {
			return s, true
		}
	}
	return size{}, false
}

// readSize reads "1280*720". The class of a size that has no row is the first
// that holds its pixels, and its ratio that of its sides.
func readSize(text string) (size, bool) {
	const most = 1 << 14 // pixels of a side
	w, h, _ := strings.Cut(text, "*")
	width, err1 := strconv.ParseUint(w, 10, 32)
	height, err2 := strconv.ParseUint(h, 10, 32)
	if err1 != nil || err2 != nil || width == 0 || height == 0 || width > most || height > most {
		return size{}, false
	}
	s := size{width: int64(width), height: int64(height)}
	if s.String() != text { // no sign, no leading zero
		return size{}, false
	}
	for _, known := range sizes {
		if known.width == s.width && known.height == s.height {
			return known, true
		}
	}
	s.resolution = classes[len(classes)-1].resolution
	for _, c := range classes {
		if s.width*s.height <= c.pixels {
			s.resolution = c.resolution
			break
		}
	}
	a, b := s.width, s.height
	for b != 0 {
		a, b = b, a%b
	}
	s.ratio = fmt.Sprintf("%d:%d", s.width/a, s.height/a)
	return s, true
}
