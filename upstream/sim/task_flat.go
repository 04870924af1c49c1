package sim

import (
	"encoding/base64"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// flatTask is the answer of the vendor whose task is the whole document.
type flatTask struct {
	ID        string       `json:"id"`
	Model     string       `json:"model,omitzero"`
	Status    string       `json:"status,omitzero"`
	Error     *flatError   `json:"error,omitzero"`
	Content   *flatContent `json:"content,omitzero"`
	Usage     *flatUsage   `json:"usage,omitzero"`
	CreatedAt int64        `json:"created_at,omitzero"`
	UpdatedAt int64        `json:"updated_at,omitzero"`
	Tier      string       `json:"service_tier,omitzero"`

	// Of a video that is there:
	Seed       jsontext.Value `json:"seed,omitzero"`
	Resolution string         `json:"resolution,omitzero"`
	Ratio      string         `json:"ratio,omitzero"`
	Duration   int64          `json:"duration,omitzero"`
	Frames     int64          `json:"frames,omitzero"`
	FPS        int64          `json:"framespersecond,omitzero"`
	Sound      *bool          `json:"generate_audio,omitzero"`
	Draft      *bool          `json:"draft,omitzero"`
}

type flatError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type flatContent struct {
	VideoURL     string `json:"video_url,omitzero"`
	LastFrameURL string `json:"last_frame_url,omitzero"`
}

type flatUsage struct {
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

func (t *task) toldFlat(p phase, now time.Time, total time.Duration, report Report) flatTask {
	r := flatTask{
		ID: t.id, Model: t.model, Status: t.word(p), CreatedAt: t.begun.Unix(), UpdatedAt: now.Unix(), Tier: "default",
	}
	if p < hasEnded {
		return r
	}
	r.UpdatedAt = t.begun.Add(total).Unix()
	switch t.ending {
	case VideoFailed:
		r.Error = &flatError{"InternalServiceError", failureText}
	case VideoMade, VideoEmpty:
		r.Content, r.Usage, r.Seed = &flatContent{VideoURL: t.link()}, t.flatUsage(report), t.seed
		if t.lastFrame {
			r.Content.LastFrameURL = pngURL + base64.StdEncoding.EncodeToString(picture(t.text(), videoWidth, videoHeight))
		}
		r.Resolution, r.Ratio, r.Frames, r.FPS, r.Sound, r.Draft = t.resolution, t.ratio, t.frames, fps, &t.sound, &t.draft
		if t.frames == 0 {
			r.Duration = t.seconds
		}
	}
	return r
}

// flatUsage counts tokens as the vendor does: pixels times pictures through 1024.
func (t *task) flatUsage(report Report) *flatUsage {
	switch report {
	case Withheld:
		return nil
	case ZeroUsage:
		return &flatUsage{}
	}
	frames := t.frames
	if frames == 0 {
		frames = fps*t.seconds + 1
	}
	n := pixels[t.resolution] * frames / 1024
	return &flatUsage{n, n}
}
