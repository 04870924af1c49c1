package video

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/video"
)

// Model is a row of the table of models, with the limits of the vendors' pages:
// models that obey the same rules. It is read-only.
type Model struct {
	IDs         []string // public ids
	Family      string   // video.FamilyBeta or video.FamilyGamma
	Resolutions []string // the smallest first
	// Priced says that 1080p exists only if it has a price.
	Priced            bool
	Shortest, Longest int64   // seconds
	Durations         []int64 // the only lengths there are, in seconds; nil for all from Shortest to Longest
	// LongestWithReference is the longest video that is made with a reference
	// video; 0 means Longest.
	LongestWithReference int64
	// Sound says that the video has sound unless the request turns it off, which is cheaper.
	// The beta family has parameters.audio for it, the gamma family generate_audio.
	Sound bool

	// Needs are the members that `input` of the beta family must have.
	Needs []string
	// Prompt is the most characters of the beta family's prompt.
	Prompt int
	// Size says that resolution and aspect ratio go upstream as
	// parameters.size; else the resolution goes as parameters.resolution.
	Size bool
	// Ratio says that the aspect ratio goes upstream as parameters.ratio. Without it and Size,
	// the animated image has the ratio.
	Ratio bool

	Draft     bool // of the gamma family: draft
	Continues bool // draft_task blocks
	Videos    bool // video_url blocks
	Sounds    bool // audio_url blocks
}

// Models are all rows. The suffix of an id of the beta family decides its input, its version
// the layout of its parameters. For the gamma family, the vendor's table of models wins over
// that of blocks. No page lists what gamma-2.5 can, so only the common ranges are checked.
func Models() []Model { return models() }

// models are [Models], made once.
var models = sync.OnceValue(func() []Model {
	var (
		two, high, three = []string{p480, p720}, []string{p720, p1080}, []string{p480, p720, p1080}
		text, media      = []string{"prompt"}, []string{"media"}
		image            = []string{"img_url"}
		references       = []string{"prompt", "reference_urls"}
		preview          = []int64{5, 10}
	)
	const beta, gamma = video.FamilyBeta, video.FamilyGamma
	return []Model{
		{Family: beta, IDs: []string{"beta2.7-t2v", "beta2.7-t2v-2026-04-25"}, Needs: text, Prompt: 5000, Ratio: true, Resolutions: high, Priced: true, Shortest: 2, Longest: 15},
		{Family: beta, IDs: []string{"beta2.7-i2v", "beta2.7-i2v-2026-04-25"}, Needs: media, Prompt: 5000, Resolutions: high, Priced: true, Shortest: 2, Longest: 15},
		{Family: beta, IDs: []string{"beta2.7-r2v"}, Needs: []string{"prompt", "media"}, Prompt: 5000, Ratio: true, Resolutions: high, Priced: true, Shortest: 2, Longest: 15, LongestWithReference: 10},
		{Family: beta, IDs: []string{"beta2.6-t2v"}, Needs: text, Prompt: 1500, Size: true, Resolutions: high, Shortest: 2, Longest: 15},
		{Family: beta, IDs: []string{"beta2.6-i2v"}, Needs: image, Prompt: 1500, Resolutions: high, Shortest: 2, Longest: 15},
		{Family: beta, IDs: []string{"beta2.6-i2v-flash"}, Needs: image, Prompt: 1500, Sound: true, Resolutions: high, Shortest: 2, Longest: 15},
		{Family: beta, IDs: []string{"beta2.6-r2v"}, Needs: references, Prompt: 1500, Size: true, Resolutions: high, Shortest: 2, Longest: 10},
		{Family: beta, IDs: []string{"beta2.6-r2v-flash"}, Needs: references, Prompt: 1500, Size: true, Sound: true, Resolutions: high, Shortest: 2, Longest: 10},
		{Family: beta, IDs: []string{"beta2.5-t2v-preview"}, Needs: text, Prompt: 1500, Size: true, Resolutions: three, Durations: preview, Shortest: 5, Longest: 10},
		{Family: beta, IDs: []string{"beta2.5-i2v-preview"}, Needs: image, Prompt: 1500, Resolutions: three, Durations: preview, Shortest: 5, Longest: 10},
		{Family: gamma, IDs: []string{"gamma-2.5"}, Resolutions: three, Shortest: 4, Longest: 15, Sound: true, Draft: true, Continues: true, Videos: true, Sounds: true},
		{Family: gamma, IDs: []string{"gamma-2-0-260128"}, Resolutions: three, Shortest: 4, Longest: 15, Sound: true, Videos: true, Sounds: true},
		{Family: gamma, IDs: []string{"gamma-2-0-fast-260128"}, Resolutions: two, Shortest: 4, Longest: 15, Sound: true, Sounds: true},
		{Family: gamma, IDs: []string{"gamma-2-0-mini-260615"}, Resolutions: two, Shortest: 4, Longest: 15, Sound: true, Videos: true, Sounds: true},
		{Family: gamma, IDs: []string{"gamma-1-5-pro-251215"}, Resolutions: three, Shortest: 4, Longest: 15, Sound: true, Draft: true, Continues: true},
		{Family: gamma, IDs: []string{"gamma-1-0-pro-250528"}, Resolutions: three, Shortest: 4, Longest: 15},
		{Family: gamma, IDs: []string{"gamma-1-0-pro-fast-251015"}, Resolutions: two, Shortest: 4, Longest: 15},
	}
})

// ModelOf is the model's row; nil if no table describes it.
func ModelOf(id string) *Model {
	all := Models()
	for i := range all {
		if slices.Contains(all[i].IDs, id) {
			return &all[i]
		}
	}
	return nil
}

// What is taken for granted of a model that no table describes.
const (
	unknownLongest    = 30      // seconds of a request that does not say
	unknownMost       = 60 * 60 // seconds that a request may say
	unknownResolution = p1080   // of a request that does not say
)

// The defaults of the beta family.
const (
	usualDuration   = 5
	usualResolution = p720
	usualRatio      = "16:9"
)

// fps is how many frames a second has.
const fps = 24

// The resolutions of the public API.
const (
	p480  = "480p"
	p720  = "720p"
	p1080 = "1080p"
)

// class is a resolution and the most pixels of a frame that has it.
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
