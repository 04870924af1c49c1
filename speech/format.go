package speech

import (
	"bytes"
	"mime"
	"slices"
	"strings"
)

// The formats that api.md names. A model that no table describes may have the
// others of OpenAI's.
const (
	MP3 = "mp3"
	WAV = "wav"
)

var formats = []string{MP3, "opus", "aac", "flac", WAV, "pcm"}

// ContentTypes of the formats, by which an answer says what it is.
var contentTypes = map[string]string{
	MP3: "audio/mpeg", WAV: "audio/wav", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "pcm": "audio/pcm",
}

// ContentType is the media type of a format; bytes of no known kind for one
// that is unknown.
func ContentType(format string) string {
	if t := contentTypes[format]; t != "" {
		return t
	}
	return "application/octet-stream"
}

// FormatOf tells the format of audio by its first bytes, else by the content
// type that it came with; empty if neither is audio.
func FormatOf(start []byte, contentType string) string {
	switch {
	case bytes.HasPrefix(start, []byte("RIFF")) && len(start) >= 12 && string(start[8:12]) == "WAVE":
		return WAV
	case bytes.HasPrefix(start, []byte("ID3")):
		return MP3
	case bytes.HasPrefix(start, []byte("OggS")):
		return "opus"
	case bytes.HasPrefix(start, []byte("fLaC")):
		return "flac"
	}
	return named(contentType)
}

// named is the format of a content type.
func named(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	kind = strings.Replace(kind, "audio/x-", "audio/", 1)
	switch kind {
	case "audio/wave", "audio/vnd.wave":
		return WAV
	case "audio/mp3":
		return MP3
	case "audio/opus":
		return "opus"
	}
	i := slices.IndexFunc(formats, func(f string) bool { return contentTypes[f] == kind })
	if i < 0 {
		return ""
	}
	return formats[i]
}
