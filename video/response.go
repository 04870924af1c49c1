package video

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

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
	Content   []Clip         `json:"content,omitzero"`    // of a task that succeeded
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

// Clip is one video: the address where it can be fetched for 24 hours.
type Clip struct {
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
