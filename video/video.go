// Package video has the requests and the records of the video capability: its wire
// types. What a store of its tasks implements is here too.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	task, err := g.SubmitVideo(ctx, &video.Request{Model: "my-model", Input: jsontext.Value(`{"prompt":"Waves."}`)})
//	for task, err := range g.WaitVideo(ctx, task.ID) { // until it has ended: then task.URL()
package video

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

// Request is a request for a video: the fields of both families. A field that
// the API does not name goes into Extra and travels unchanged.
type Request struct {
	Model      string `json:"model"`
	Duration   int64  `json:"duration,omitzero"`    // seconds; 0: beta 5, gamma what the upstream chooses
	Resolution string `json:"resolution,omitzero"`  // "720p"
	WebhookURL string `json:"webhook_url,omitzero"` // where the gateway tells the end
	Wait       bool   `json:"wait,omitzero"`        // read by the gateway: it answers when the video is there

	// Of the beta family.
	AspectRatio string         `json:"aspect_ratio,omitzero"` // "16:9"
	Input       jsontext.Value `json:"input,omitzero"`        // an object
	Parameters  jsontext.Value `json:"parameters,omitzero"`   // an object

	// Of the gamma family.
	Prompt                string  `json:"prompt,omitzero"` // becomes a text block
	Content               []Block `json:"content,omitzero"`
	Ratio                 string  `json:"ratio,omitzero"`
	GenerateAudio         *bool   `json:"generate_audio,omitzero"`
	Draft                 bool    `json:"draft,omitzero"`
	Seed                  *int64  `json:"seed,omitzero"`
	CameraFixed           bool    `json:"camera_fixed,omitzero"`
	Watermark             bool    `json:"watermark,omitzero"`
	ReturnLastFrame       bool    `json:"return_last_frame,omitzero"`
	Frames                int64   `json:"frames,omitzero"`
	CallbackURL           string  `json:"callback_url,omitzero"`            // where the upstream itself tells the end
	ExecutionExpiresAfter int64   `json:"execution_expires_after,omitzero"` // seconds
	SafetyIdentifier      string  `json:"safety_identifier,omitzero"`
	Priority              string  `json:"priority,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (r Request) MarshalJSON() ([]byte, error) {
	type members Request
	return json.Marshal(members(r))
}

// Block is one input of the gamma family.
type Block struct {
	Type      string         `json:"type"` // text, image_url, video_url, audio_url or draft_task
	Text      string         `json:"text,omitzero"`
	ImageURL  *Link          `json:"image_url,omitzero"`
	VideoURL  *Link          `json:"video_url,omitzero"`
	AudioURL  *Link          `json:"audio_url,omitzero"`
	DraftTask *DraftTask     `json:"draft_task,omitzero"`
	Role      string         `json:"role,omitzero"` // first_frame, last_frame, reference_image or reference_video
	Extra     jsontext.Value `json:",embed"`
}

// Link is the http(s) address of a file, which the upstream fetches.
type Link struct {
	URL   string         `json:"url"`
	Extra jsontext.Value `json:",embed"`
}

// DraftTask names an earlier task of the account.
type DraftTask struct {
	TaskID string         `json:"task_id"`
	Extra  jsontext.Value `json:",embed"`
}

// Response is the record of a video task. Fields that the API does not name are
// in Extra, here and in its parts.
type Response struct {
	ID        string         `json:"id"`
	Object    string         `json:"object"` // "video.generation"
	Model     string         `json:"model"`  // public id
	Status    State          `json:"status"`
	CreatedAt int64          `json:"created_at"` // Unix seconds, as are those below
	UpdatedAt int64          `json:"updated_at"`
	ExpiresAt int64          `json:"expires_at,omitzero"` // when the task ends if the video is not there
	Content   []Output       `json:"content,omitzero"`    // of a task that succeeded
	Usage     jsontext.Value `json:"usage,omitzero"`      // the upstream's own count, an object
	Seed      jsontext.Value `json:"seed,omitzero"`
	Error     *Failure       `json:"error,omitzero"` // of a task that failed or expired
	Extra     jsontext.Value `json:",embed"`

	// Raw is the record as JSON.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the video cost the account; zero until it is there.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Output is one video: the address where it can be fetched for 24 hours.
type Output struct {
	VideoURL     string         `json:"video_url,omitzero"`
	LastFrameURL string         `json:"last_frame_url,omitzero"`
	Extra        jsontext.Value `json:",embed"`
}

// URL is the address of the video; empty if there is none.
func (r *Response) URL() string {
	for _, c := range r.Content {
		if c.VideoURL != "" {
			return c.VideoURL
		}
	}
	return ""
}
