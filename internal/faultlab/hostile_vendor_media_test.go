package faultlab

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// pictureRequest is a request for pictures as its vendor reads it.
type pictureRequest struct {
	Model   string   `json:"model"`
	Prompt  string   `json:"prompt"`
	N       *float64 `json:"n"`
	Quality string   `json:"quality"`
	Stream  bool     `json:"stream"`
}

// tokensOfOne are the tokens of one picture, by its quality.
func (p *pictureRequest) tokensOfOne() int64 {
	switch p.Quality {
	case "low":
		return 272
	case "medium":
		return 1_056
	}
	return 4_160
}

// picture answers in OpenAI's wire for pictures.
func (c *vendorCall) picture() {
	var p pictureRequest
	if c.read(&p) {
		c.makePictures(&p, 0, "image_generation")
	}
}

// edit answers with changed pictures.
func (c *vendorCall) edit() {
	c.r.Body = http.NoBody
	form, err := readForm(c.r.Header.Get("Content-Type"), c.body)
	if err != nil {
		c.fail(http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	p := pictureRequest{Model: form.fields["model"], Prompt: form.fields["prompt"], Quality: form.fields["quality"], Stream: form.fields["stream"] == "true"}
	if n, err := strconv.ParseFloat(form.fields["n"], 64); err == nil {
		p.N = &n
	}
	c.makePictures(&p, form.files, "image_edit")
}

// makePictures makes pictures. Whoever leaves does not stop it.
func (c *vendorCall) makePictures(p *pictureRequest, shown int64, kind string) {
	c.bill.model = p.Model
	n := int64(1)
	if p.N != nil {
		n = int64(*p.N)
	}
	if p.Model != pieceImage && p.Model != tokenImage || n < 1 || n > 100 {
		c.fail(http.StatusBadRequest, "invalid_request_error", "no such model or n")
		return
	}
	const file = 150 // tokens of a picture that is shown: it is a small one
	input, output := int64(len(p.Prompt))/4, n*p.tokensOfOne()
	bills := func() {
		if p.Model == pieceImage {
			c.costs(billing.Image, "", n)
			return
		}
		c.costs(billing.Input, "", input)
		c.costs(billing.ImageInput, "", shown*file)
		c.costs(billing.ImageOutput, "", output)
	}
	if c.refuses(p.Prompt, bills) {
		c.left(p.Model, output)
		return
	}
	bills()
	if !c.wait(5 * time.Second) {
		c.left(p.Model, output)
		return
	}
	usage := fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d,"input_tokens_details":{"text_tokens":%d,"image_tokens":%d}}`,
		input+shown*file, output, input+shown*file+output, input, shown*file)
	if p.Model == pieceImage {
		usage = "null"
	}
	if p.Stream {
		c.w.Header().Set("Content-Type", "text/event-stream")
		for range n {
			c.event(kind+".completed", `{"type":"%s.completed","created_at":1,"b64_json":"aGk=","usage":%s}`, kind, usage)
		}
		return
	}
	c.answer(`{"created":1,"data":[%s],"usage":%s}`, strings.TrimSuffix(strings.Repeat(`{"b64_json":"aGk="},`, int(n)), ","), usage)
}

// left notes what the operator bears of pictures by tokens that nobody got: what
// they show, not what was sent, and nothing of what is sold by the piece.
func (c *vendorCall) left(model string, output int64) {
	if model == tokenImage && c.r.Context().Err() != nil {
		c.bears(Tolerance{Unreceived: cost(model, billing.ImageOutput, "", output)})
	}
}

// vectors answers with embeddings, in the wires of OpenAI and of Voyage.
func (c *vendorCall) vectors() {
	var a struct {
		Model  string          `json:"model"`
		Input  json.RawMessage `json:"input"`
		Format string          `json:"encoding_format"`
	}
	if !c.read(&a) {
		return
	}
	c.bill.model = a.Model
	var v any
	if hostilePrices[a.Model] == nil || json.Unmarshal(a.Input, &v) != nil {
		c.fail(http.StatusBadRequest, "invalid_request_error", "no such model or input")
		return
	}
	texts, prompt, tokens := embedded(v)
	bills := func() { c.costs(billing.Input, "", tokens) }
	if c.refuses(prompt, bills) {
		return
	}
	bills()
	if !c.wait(20 * time.Millisecond) {
		return
	}
	vector := "[0.1,0.2]"
	if a.Format == "base64" {
		vector = `"AAAAAAAAAAA="`
	}
	data := make([]string, texts)
	for i := range data {
		data[i] = fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector)
	}
	c.answer(`{"object":"list","data":[%s],"model":"m","usage":{"prompt_tokens":%d,"total_tokens":%d}}`, strings.Join(data, ","), tokens, tokens)
}

// embedded is what an input holds: a text, texts, tokens, or lists of them.
func embedded(v any) (texts int, prompt string, tokens int64) {
	all, ok := v.([]any)
	if s, is := v.(string); is {
		return 1, s, int64(len(s)) / 4
	}
	if !ok || len(all) == 0 {
		return 0, "", 0
	}
	if _, is := all[0].(float64); is {
		return 1, "", int64(len(all))
	}
	for _, item := range all {
		_, s, n := embedded(item)
		texts, prompt, tokens = texts+1, prompt+" "+s, tokens+n
	}
	return texts, prompt, tokens
}

// sound is a moment of nothing as WAV.
const sound = "RIFF\x2c\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0\x5d\x00\x00\x80\xbb\x00\x00\x02\x00\x10\x00data\x08\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08"

// speech answers in OpenAI's wire for speech.
func (c *vendorCall) speech() {
	var a struct {
		Model  string `json:"model"`
		Input  string `json:"input"`
		Format string `json:"response_format"`
	}
	if !c.read(&a) {
		return
	}
	if c.speaks(a.Model, a.Input) {
		kind, data := "audio/mpeg", "\xff\xfb\x90\x00"+strings.Repeat("\x00", 413) // which is the default
		switch a.Format {
		case "wav":
			kind, data = "audio/wav", sound
		case "pcm":
			kind, data = "audio/pcm", strings.Repeat("\x01\x02", 64)
		case "opus":
			kind, data = "audio/ogg", "OggS\x00\x02"+strings.Repeat("\x00", 64)
		case "aac":
			kind, data = "audio/aac", "\xff\xf1\x50\x80"+strings.Repeat("\x00", 64)
		case "flac":
			kind, data = "audio/flac", "fLaC\x00\x00\x00\x22"+strings.Repeat("\x00", 64)
		}
		c.w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(c.w, data) // who does not read it has gone
	}
}

// speaks bills the characters, whoever stays; false if there is no answer.
func (c *vendorCall) speaks(model, input string) bool {
	c.bill.model = model
	if hostilePrices[model] == nil {
		c.fail(http.StatusBadRequest, "InvalidParameter", "no such model")
		return false
	}
	bills := func() { c.costs(billing.Character, "", int64(len([]rune(input)))) }
	if c.refuses(input, bills) {
		return false
	}
	bills()
	return c.wait(270 * time.Millisecond)
}

// alpha answers in DashScope's wire, with a picture or with speech.
func (c *vendorCall) alpha() {
	var a struct {
		Model string `json:"model"`
		Input struct {
			Text     string          `json:"text"`
			Messages json.RawMessage `json:"messages"`
		} `json:"input"`
		Parameters struct {
			N *float64 `json:"n"`
		} `json:"parameters"`
	}
	if !c.read(&a) {
		return
	}
	if a.Model != alphaImage {
		if c.speaks(a.Model, a.Input.Text) {
			c.w.Header().Set("Content-Type", "text/event-stream")
			c.event("", `{"request_id":"r","output":{"finish_reason":"null","audio":{"data":%q}}}`, base64.StdEncoding.EncodeToString([]byte(sound)))
			c.event("", `{"request_id":"r","output":{"finish_reason":"stop","audio":{"data":""}},"usage":{"characters":%d}}`, len(a.Input.Text))
		}
		return
	}
	c.bill.model = a.Model
	n := int64(1)
	if a.Parameters.N != nil {
		n = max(1, int64(*a.Parameters.N))
	}
	var t content
	t.reads(a.Input.Messages, false)
	bills := func() { c.costs(billing.Image, "", n) }
	if c.refuses(t.text.String(), bills) {
		return
	}
	bills()
	if c.wait(4 * time.Second) {
		c.answer(`{"request_id":"r","output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://media.example/x.png"}]}}]},"usage":{"image_count":%d,"width":1024,"height":1024}}`, n)
	}
}

// task is a video at a vendor.
type task struct {
	due    time.Time
	answer string // when it is made
	young  string // before
}

// accepts takes a video in, and bills it: it is made whoever asks for it.
func (c *vendorCall) accepts(t *task) string {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	id := fmt.Sprintf("task-%d", len(c.v.tasks)+1)
	t.due = time.Now().Add(20 * time.Second)
	t.answer, t.young = strings.ReplaceAll(t.answer, "TASK", id), strings.ReplaceAll(t.young, "TASK", id)
	c.v.tasks[id] = t
	return id
}

// beta takes videos in DashScope's wire.
func (c *vendorCall) beta() {
	var a struct {
		Model string `json:"model"`
		Input struct {
			Prompt string `json:"prompt"`
		} `json:"input"`
		Parameters struct {
			Duration *float64 `json:"duration"`
			Size     string   `json:"size"`
			Sharp    string   `json:"resolution"`
		} `json:"parameters"`
	}
	if !c.read(&a) {
		return
	}
	c.bill.model = a.Model
	seconds, variant := int64(5), "720p"
	if a.Parameters.Duration != nil {
		seconds = int64(*a.Parameters.Duration)
	}
	if w, h, ok := strings.Cut(a.Parameters.Size, "*"); ok {
		x, _ := strconv.Atoi(w)
		y, _ := strconv.Atoi(h)
		if x*y > 1280*720*3/2 {
			variant = "1080p"
		}
	}
	if strings.EqualFold(a.Parameters.Sharp, "1080P") {
		variant = "1080p"
	}
	if a.Model != betaVideo || c.refuses(a.Input.Prompt, func() {}) {
		return
	}
	c.costs(billing.Second, variant, seconds)
	id := c.accepts(&task{
		answer: fmt.Sprintf(`{"request_id":"r","output":{"task_id":"TASK","task_status":"SUCCEEDED","video_url":"https://media.example/x.mp4"},"usage":{"duration":%d,"video_count":1,"SR":%s}}`, seconds, strings.TrimSuffix(variant, "p")),
		young:  `{"request_id":"r","output":{"task_id":"TASK","task_status":"RUNNING"}}`,
	})
	c.answer(`{"request_id":"r","output":{"task_id":%q,"task_status":"PENDING"}}`, id)
}

// gamma takes videos in Ark's wire.
func (c *vendorCall) gamma() {
	var a struct {
		Model    string          `json:"model"`
		Content  json.RawMessage `json:"content"`
		Duration *float64        `json:"duration"`
		Frames   *float64        `json:"frames"`
		Sharp    string          `json:"resolution"`
	}
	if !c.read(&a) {
		return
	}
	c.bill.model = a.Model
	frames := int64(5 * 24)
	if a.Duration != nil {
		frames = 24 * int64(*a.Duration)
	}
	if a.Frames != nil {
		frames = int64(*a.Frames)
	}
	points := map[string]int64{"480p": 864 * 480, "1080p": 1920 * 1080}[a.Sharp]
	if points == 0 {
		points = 1280 * 720
	}
	var t content
	t.reads(a.Content, false)
	if a.Model != gammaVideo || c.refuses(t.text.String(), func() {}) {
		return
	}
	tokens := points * frames / 1024
	c.costs(billing.Output, "", tokens)
	id := c.accepts(&task{
		answer: fmt.Sprintf(`{"id":"TASK","model":"m","status":"succeeded","error":null,"content":{"video_url":"https://media.example/x.mp4"},"usage":{"completion_tokens":%d,"total_tokens":%d}}`, tokens, tokens),
		young:  `{"id":"TASK","model":"m","status":"running","error":null,"content":null}`,
	})
	c.answer(`{"id":%q}`, id)
}

// progress tells how a video is.
func (c *vendorCall) progress(id string) {
	c.v.mu.Lock()
	t := c.v.tasks[id]
	c.v.mu.Unlock()
	switch {
	case t == nil:
		c.fail(http.StatusNotFound, "not_found", "no such task")
	case time.Now().Before(t.due):
		c.answer("%s", t.young)
	default:
		c.answer("%s", t.answer)
	}
}
