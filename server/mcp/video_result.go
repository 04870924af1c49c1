package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/video"
)

func getVideoTool() *tool {
	return &tool{
		name: "get_video", title: "Look after a video",
		about: "Tells how a video of generate_video goes, and where it can be fetched when it is there. Costs nothing. Look every 10 seconds or so, or wait.",
		fields: []field{
			{name: "id", kind: text, required: true, high: 256, about: "The id that generate_video gave."},
			waitField,
		},
		output: outputOf[videoResult](),
		run:    (*call).getVideo,
	}
}

// videoResult is the structured result of generate_video and get_video.
type videoResult struct {
	paid
	ID           string `json:"id" jsonschema:"the id of the video, for get_video"`
	Model        string `json:"model" jsonschema:"the model that makes the video"`
	Status       string `json:"status" jsonschema:"queued, processing or running: it is being made; succeeded: it is there; failed, cancelled or expired: there will be none, and nothing is charged"`
	VideoURL     string `json:"video_url,omitzero" jsonschema:"where the video can be fetched for 24 hours"`
	LastFrameURL string `json:"last_frame_url,omitzero" jsonschema:"where its last picture can be fetched"`
	Error        string `json:"error,omitzero" jsonschema:"why there will be no video"`
}

func (c *call) answerVideo(r *gateway.Result) (*sdk.CallToolResult, error) {
	var record video.Response
	if err := json.Unmarshal(r.Body, &record, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fault.Wrap(fault.BadGateway, "The answer is not of the form of a video record.", err)
	}
	p := c.receipt(r)
	p.Charge, p.Usage = "", nil // of a submission; the video is charged when it is there
	if !c.args.truth("wait") {
		return shown(p, &record), nil
	}
	c.x.Leave() // the video is under way, and others may run
	return shown(p, c.await(&record)), nil
}

func (c *call) getVideo() (*sdk.CallToolResult, error) {
	record, err := c.g.Video(c.own(), c.args.text("id"))
	if err != nil {
		return nil, err
	}
	if c.args.truth("wait") {
		record = c.await(record)
	}
	return shown(paid{RequestID: record.RequestID, Currency: c.currency()}, record), nil
}

// patience is how long a client is kept waiting that is not told of the progress:
// less than the minute after which many give up.
const patience = 45 * time.Second

// await is the record when the video has ended, or as it is when the time is
// over. The video goes on whoever leaves.
func (c *call) await(record *video.Response) *video.Response {
	if video.State(record.Status).Terminal() {
		return record
	}
	most := patience
	if c.token() != nil {
		most = c.o.MaxWait
	}
	ctx, cancel := context.WithTimeout(c.own(), most)
	defer cancel()
	defer c.tick("waiting for the video " + record.ID)()
	for r, err := range c.g.WaitVideo(ctx, record.ID) {
		if err != nil {
			break // the record as it was
		}
		record = r
	}
	return record
}

// shown is the record for a model.
func shown(p paid, r *video.Response) *sdk.CallToolResult {
	result := videoResult{paid: p, ID: r.ID, Model: r.Model, Status: string(r.Status), VideoURL: r.URL()}
	for _, clip := range r.Content {
		if clip.LastFrameURL != "" {
			result.LastFrameURL = clip.LastFrameURL
		}
	}
	if r.RequestID != "" {
		result.RequestID = r.RequestID
	}
	if r.Status == video.Succeeded {
		result.Charge = r.Charge.String()
	}
	if r.Error != nil {
		result.Error = fmt.Sprintf("%s: %s", r.Error.Code, r.Error.Message)
	}
	var contents []sdk.Content
	for i, clip := range r.Content {
		if clip.VideoURL != "" {
			contents = append(contents, &sdk.ResourceLink{
				URI: clip.VideoURL, Name: fmt.Sprintf("video-%d", i+1), Title: "The video", Description: "Valid for 24 hours.", MIMEType: "video/mp4",
			})
		}
	}
	return success(result, append(contents, say("%s", result.sentence()))...)
}

// sentence says how the video is.
func (r *videoResult) sentence() string {
	switch video.State(r.Status) {
	case video.Succeeded:
		return fmt.Sprintf("The video %s is there. %s", r.ID, r.line())
	case video.Failed, video.Cancelled, video.Expired:
		return fmt.Sprintf("There will be no video %s: it is %s, and nothing is charged. %s (%s)", r.ID, r.Status, r.Error, r.line())
	}
	return fmt.Sprintf("The video %s is being made (%s). Call get_video with this id in a while. %s", r.ID, r.Status, r.line())
}
