package video

import (
	"fmt"
	"strconv"
	"strings"
)

// The resolutions of api.md.
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
