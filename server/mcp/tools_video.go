package mcp

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// waitField is the argument of both tools of videos.
var waitField = field{
	name: "wait", kind: boolean, defaultValue: false,
	description: "Wait for the video: for 45 seconds, or for some minutes if this program is told of the progress. A video that is not there then goes on: ask again with get_video.",
}

// videoTool is generate_video. It has the arguments of both families; a model takes some of
// them.
func videoTool() *tool {
	return &tool{
		name: "generate_video", title: "Make a video",
		description: "Starts to make a video from a description, and pictures or other videos where the model takes them. It takes minutes and goes on by itself, " +
			"whatever becomes of this call: the result has an id, with which get_video tells when it is there. It is charged only if it succeeds.",
		fields: []field{
			modelField("The model that makes the video. Of beta models, -t2v make it from text, -i2v from a first picture, -r2v from references."),
			{name: "prompt", kind: stringKind, description: "What the video is to show. Needed unless it is made from pictures."},
			{name: "duration", kind: integer, min: 1, max: 3600, description: "Seconds. It decides the cost. Most models make 2 to 15 seconds; if left out, beta models make 5."},
			{name: "resolution", kind: stringKind, enum: []string{"480p", "720p", "1080p"}, description: "It decides the cost. If left out, beta models make 720p."},
			{name: "aspect_ratio", kind: stringKind, description: "Such as 16:9, 9:16 or 1:1."},
			{name: "first_frame", kind: stringKind, description: "The https URL of a picture with which the video begins."},
			{name: "last_frame", kind: stringKind, description: "The https URL of a picture with which the video ends, where the model can do that."},
			{name: "reference_images", kind: stringList, max: 9, description: "https URLs of pictures of what appears in the video."},
			{name: "reference_videos", kind: stringList, max: 3, description: "https URLs of videos that the model is to follow."},
			{name: "audio", kind: stringKind, description: "The https URL of a sound that the video is to go with, where the model can do that."},
			{name: "with_sound", kind: boolean, description: "Whether the video is to have sound, where the model can choose. It may decide the cost."},
			{name: "seed", kind: integer, min: 0, max: 1<<32 - 1, description: "The same seed and prompt give a similar video."},
			waitField,
		},
		models:  ofKind(gateway.KindVideo),
		output:  outputSchema[videoResult](),
		request: videoRequest, answer: (*call).answerVideo,
	}
}

func getVideoTool() *tool {
	return &tool{
		name: "get_video", title: "Look after a video",
		description: "Tells how a video of generate_video goes, and where it can be fetched when it is there. Costs nothing. Look every 10 seconds or so, or wait.",
		fields: []field{
			{name: "id", kind: stringKind, required: true, max: 256, description: "The id that generate_video gave."},
			waitField,
		},
		output: outputSchema[videoResult](),
		run:    (*call).getVideo,
	}
}

// videoResult is the structured result of generate_video and get_video.
type videoResult struct {
	chargeInfo
	ID           string `json:"id" jsonschema:"the id of the video, for get_video"`
	Model        string `json:"model" jsonschema:"the model that makes the video"`
	Status       string `json:"status" jsonschema:"queued, processing or running: it is being made; succeeded: it is there; failed, cancelled or expired: there will be none, and nothing is charged"`
	VideoURL     string `json:"video_url,omitzero" jsonschema:"where the video can be fetched for 24 hours"`
	LastFrameURL string `json:"last_frame_url,omitzero" jsonschema:"where its last picture can be fetched"`
	Error        string `json:"error,omitzero" jsonschema:"why there will be no video"`
}

// answerVideo is the result of generate_video. While it waits for the video it gives its slot
// back, so that waiting callers keep no others out.
func (c *call) answerVideo(r *gateway.Response) (*sdk.CallToolResult, error) {
	var record video.Response
	if err := json.Unmarshal(r.Body, &record, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fault.Wrap(fault.BadGateway, "The answer is not a video record.", err)
	}
	p := c.receipt(r)
	p.Charge, p.Usage = "", nil // of a submission; the video is charged when it is there
	if !c.args.truth("wait") {
		return newVideoResult(p, &record), nil
	}
	c.entry.Release() // the video is under way, and others may run
	return newVideoResult(p, c.awaitVideo(&record)), nil
}

func (c *call) getVideo() (*sdk.CallToolResult, error) {
	record, err := c.g.Video(c.principalContext(), c.args.text("id"))
	if err != nil {
		return nil, err
	}
	if c.args.truth("wait") {
		record = c.awaitVideo(record)
	}
	return newVideoResult(chargeInfo{RequestID: record.RequestID, Currency: c.currency()}, record), nil
}

// defaultWait is how long a client is kept waiting that does not get the progress:
// less than the minute after which many give up.
const defaultWait = 45 * time.Second

// awaitVideo is the record when the video has ended, or as it is when the time is over. The
// video goes on when the client disconnects.
func (c *call) awaitVideo(record *video.Response) *video.Response {
	if video.State(record.Status).Terminal() {
		return record
	}
	most := defaultWait
	if c.progressToken() != nil {
		most = c.o.MaxWait
	}
	ctx, cancel := context.WithTimeout(c.principalContext(), most)
	defer cancel()
	defer c.notifyEvery("waiting for the video " + record.ID)()
	for r, err := range c.g.WaitVideo(ctx, record.ID) {
		if err != nil {
			break // the record as it was
		}
		record = r
	}
	return record
}

// newVideoResult is the record for a model.
func newVideoResult(p chargeInfo, r *video.Response) *sdk.CallToolResult {
	result := videoResult{chargeInfo: p, ID: r.ID, Model: r.Model, Status: string(r.Status), VideoURL: r.URL()}
	for _, clip := range r.Content {
		if clip.LastFrameURL != "" {
			result.LastFrameURL = clip.LastFrameURL
		}
	}
	result.RequestID = cmp.Or(r.RequestID, result.RequestID)
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
	return success(result, append(contents, textContent("%s", result.sentence()))...)
}

// sentence says how the video is.
func (r *videoResult) sentence() string {
	switch video.State(r.Status) {
	case video.Succeeded:
		return fmt.Sprintf("The video %s is there. %s", r.ID, r.receiptLine())
	case video.Failed, video.Cancelled, video.Expired:
		return fmt.Sprintf("There will be no video %s: it is %s, and nothing is charged. %s (%s)", r.ID, r.Status, r.Error, r.receiptLine())
	}
	return fmt.Sprintf("The video %s is being made (%s). Call get_video with this id in a while. %s", r.ID, r.Status, r.receiptLine())
}

// videoRequest makes the request in the form of the model's family.
func videoRequest(a arguments) (*gateway.Request, error) {
	row := videoop.ModelOf(a.text("model"))
	if row == nil || row.Family != video.FamilyBeta {
		return gammaVideoBody(a).request(upstream.SubmitVideo)
	}
	b, err := betaVideoBody(a, row)
	if err != nil {
		return nil, err
	}
	return b.request(upstream.SubmitVideo)
}

// sources are the arguments that name files, in the order in which a request has
// them.
var sources = []string{"first_frame", "last_frame", "reference_images", "reference_videos", "audio"}

// urls are those of an argument that names one file, or several.
func urls(a arguments, name string) []string {
	if list := a.list(name); list != nil || !a.has(name) {
		return list
	}
	return []string{a.text(name)}
}

// gammaBlocks say how each source stands in a request of the gamma family.
var gammaBlocks = map[string]func(url string) video.Block{
	"first_frame":      func(url string) video.Block { return imageBlock(url, "first_frame") },
	"last_frame":       func(url string) video.Block { return imageBlock(url, "last_frame") },
	"reference_images": func(url string) video.Block { return imageBlock(url, "reference_image") },
	"reference_videos": func(url string) video.Block {
		return video.Block{Type: "video_url", VideoURL: &video.Link{URL: url}, Role: "reference_video"}
	},
	"audio": func(url string) video.Block { return video.Block{Type: "audio_url", AudioURL: &video.Link{URL: url}} },
}

func imageBlock(url, role string) video.Block {
	return video.Block{Type: "image_url", ImageURL: &video.Link{URL: url}, Role: role}
}

// gammaVideoBody is the request of the gamma family, and of models that no table
// describes.
func gammaVideoBody(a arguments) body {
	var content []video.Block
	if a.has("prompt") {
		content = append(content, video.Block{Type: "text", Text: a.text("prompt")})
	}
	for _, name := range sources {
		for _, url := range urls(a, name) {
			content = append(content, gammaBlocks[name](url))
		}
	}
	b := body{}.copy(a, "model", "duration", "resolution", "seed")
	if content != nil {
		b["content"] = content
	}
	b.copyAs(a, "aspect_ratio", "ratio")
	b.copyAs(a, "with_sound", "generate_audio")
	return b
}

// The members of the beta family's input that hold files. A model has one of
// them, which decides where the others go.
const (
	media      = "media"
	imageURL   = "img_url"
	references = "reference_urls"
)

// betaInputs say for each layout where a source goes: to which member, and with which type in
// a list of media. A source without a row is refused.
var betaInputs = []struct{ layout, source, member, medium string }{
	{media, "first_frame", media, "first_frame"},
	{media, "last_frame", media, "last_frame"},
	{media, "reference_images", media, "reference_image"},
	{media, "reference_videos", media, "reference_video"},
	{media, "audio", media, "driving_audio"},
	{imageURL, "first_frame", imageURL, ""},
	{imageURL, "audio", "audio_url", ""},
	{references, "reference_images", references, ""},
	{references, "reference_videos", references, ""},
}

// betaVideoBody is the request of the beta family.
func betaVideoBody(a arguments, row *videoop.Model) (body, error) {
	layout := "" // from text only
	for _, need := range row.Needs {
		if need != "prompt" {
			layout = need
		}
	}
	input, lists := body{}.copy(a, "prompt"), make(map[string][]any)
	for _, name := range sources {
		for _, url := range urls(a, name) {
			member, medium, ok := betaInput(layout, name)
			switch {
			case !ok:
				return nil, fault.Invalid(name, fmt.Sprintf("The model %q does not take %q. %s", safetext.Quoted(a.text("model")), name, betaSources(layout)))
			case medium != "":
				lists[member] = append(lists[member], body{"type": medium, "url": url})
			case member == references:
				lists[member] = append(lists[member], url)
			default:
				input[member] = url
			}
		}
	}
	for member, list := range lists {
		input[member] = list
	}
	b := body{"input": input}.copy(a, "model", "duration", "resolution", "aspect_ratio")
	parameters := body{}.copy(a, "seed")
	parameters.copyAs(a, "with_sound", "audio")
	if len(parameters) > 0 {
		b["parameters"] = parameters
	}
	return b, nil
}

// betaInput is the row of betaInputs for a source; false where the layout does not take it.
func betaInput(layout, source string) (member, medium string, ok bool) {
	for _, row := range betaInputs {
		if row.layout == layout && row.source == source {
			return row.member, row.medium, true
		}
	}
	return "", "", false
}

// betaSources says what a model of the layout is given besides a prompt.
func betaSources(layout string) string {
	list := ""
	for _, row := range betaInputs {
		if row.layout == layout {
			list += ", " + row.source
		}
	}
	if list == "" {
		return "It makes videos from a prompt only."
	}
	return "Besides a prompt it takes" + list[1:] + "."
}
