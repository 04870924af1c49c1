package faultlab

import (
	"cmp"
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

// order is what a call asks a vendor to make that is no conversation. It is billed
// when the vendor begins, and made whoever waits for it.
type order struct {
	model, prompt string
	possible      bool // the vendor has the model, and can make so many
	units         []units
	takes         time.Duration
	answer        func()
	video         bool // nothing is billed before it is taken in
}

// units are what is billed of one unit of the price list.
type units struct {
	unit    billing.Unit
	variant string
	n       int64
}

// make makes what is asked for, and bills it.
func (c *vendorCall) make(o order) {
	c.bill.model = o.model
	if !o.possible || hostilePrices[o.model] == nil {
		c.fail(http.StatusBadRequest, "invalid_request_error", "no such model or number")
		return
	}
	bills := func() {
		for _, u := range o.units {
			c.costs(u.unit, u.variant, u.n)
		}
	}
	least := bills
	if o.video {
		least = func() {}
	}
	if c.refuses(o.prompt, least) {
		o.answer = nil
	} else if bills(); !c.wait(o.takes) {
		o.answer = nil
	}
	if o.answer != nil {
		o.answer()
	}
}

// number is one of a request; otherwise where it has none.
func number(n *float64, otherwise int64) int64 {
	if n == nil {
		return otherwise
	}
	return int64(*n)
}

// pictureRequest is a request for pictures as its vendor reads it.
type pictureRequest struct {
	Model   string   `json:"model"`
	Prompt  string   `json:"prompt"`
	N       *float64 `json:"n"`
	Quality string   `json:"quality"`
	Stream  bool     `json:"stream"`
}

// picture answers in OpenAI's wire for pictures.
func (c *vendorCall) picture() {
	var p pictureRequest
	if c.read(&p) {
		c.makePictures(&p, 0, "image_generation")
	}
}

// edit answers with changed images.
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

// makePictures makes pictures; shown is how many are changed. What nobody got of
// those that are sold by tokens is borne: what they show, not what was sent.
func (c *vendorCall) makePictures(p *pictureRequest, shown int64, kind string) {
	const file = 150 // tokens of a picture that is shown: it is a small one
	n := number(p.N, 1)
	each := cmp.Or(map[string]int64{"low": 272, "medium": 1_056}[p.Quality], 4_160)
	input, output := int64(len(p.Prompt))/4, n*each
	o := order{
		model: p.Model, prompt: p.Prompt, possible: (p.Model == pieceImage || p.Model == tokenImage) && n >= 1 && n <= 100, takes: 5 * time.Second,
		units: []units{{billing.Input, "", input}, {billing.ImageInput, "", shown * file}, {billing.ImageOutput, "", output}},
	}
	usage := fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d,"input_tokens_details":{"text_tokens":%d,"image_tokens":%d}}`,
		input+shown*file, output, input+shown*file+output, input, shown*file)
	if p.Model == pieceImage {
		o.units, usage = []units{{billing.Image, "", n}}, "null"
	}
	o.answer = func() {
		if !p.Stream {
			c.answer(`{"created":1,"data":[%s],"usage":%s}`, strings.TrimSuffix(strings.Repeat(`{"b64_json":"aGk="},`, int(n)), ","), usage)
			return
		}
		c.w.Header().Set("Content-Type", "text/event-stream")
		for range n {
			c.event(kind+".completed", `{"type":"%s.completed","created_at":1,"b64_json":"aGk=","usage":%s}`, kind, usage)
		}
	}
	c.make(o)
}

// vectors answers with embeddings, in the wires of OpenAI and of Voyage.
func (c *vendorCall) vectors() {
	var a struct {
		Model  string `json:"model"`
		Input  any    `json:"input"`
		Format string `json:"encoding_format"`
	}
	if !c.read(&a) {
		return
	}
	texts, prompt, tokens := embedded(a.Input)
	c.make(order{
		model: a.Model, prompt: prompt, possible: a.Input != nil, takes: 20 * time.Millisecond, units: []units{{billing.Input, "", tokens}},
		answer: func() {
			vector := "[0.1,0.2]"
			if a.Format == "base64" {
				vector = `"AAAAAAAAAAA="`
			}
			data := make([]string, texts)
			for i := range data {
				data[i] = fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector)
			}
			c.answer(`{"object":"list","data":[%s],"model":"m","usage":{"prompt_tokens":%d,"total_tokens":%d}}`, strings.Join(data, ","), tokens, tokens)
		},
	})
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

// wav is a moment of nothing.
const wav = "RIFF\x2c\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0\x5d\x00\x00\x80\xbb\x00\x00\x02\x00\x10\x00data\x08\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08"

// sounds are moments of nothing, by format; that of none is MP3.
var sounds = map[string]struct{ kind, data string }{
	"":     {"audio/mpeg", "\xff\xfb\x90\x00" + strings.Repeat("\x00", 413)},
	"mp3":  {"audio/mpeg", "\xff\xfb\x90\x00" + strings.Repeat("\x00", 413)},
	"wav":  {"audio/wav", wav},
	"pcm":  {"audio/pcm", strings.Repeat("\x01\x02", 64)},
	"opus": {"audio/ogg", "OggS\x00\x02" + strings.Repeat("\x00", 64)},
	"aac":  {"audio/aac", "\xff\xf1\x50\x80" + strings.Repeat("\x00", 64)},
	"flac": {"audio/flac", "fLaC\x00\x00\x00\x22" + strings.Repeat("\x00", 64)},
}

// speech answers in OpenAI's wire for speech.
func (c *vendorCall) speech() {
	var a struct {
		Model  string `json:"model"`
		Input  string `json:"input"`
		Format string `json:"response_format"`
	}
	if c.read(&a) {
		c.makeSpeech(a.Model, a.Input, func() {
			sound, known := sounds[a.Format]
			if !known {
				sound = sounds[""]
			}
			c.w.Header().Set("Content-Type", sound.kind)
			_, _ = io.WriteString(c.w, sound.data) // who does not read it has gone
		})
	}
}

func (c *vendorCall) makeSpeech(model, input string, answer func()) {
	c.make(order{
		model: model, prompt: input, possible: true, takes: 270 * time.Millisecond, answer: answer,
		units: []units{{billing.Character, "", int64(len([]rune(input)))}},
	})
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
		c.makeSpeech(a.Model, a.Input.Text, func() {
			c.w.Header().Set("Content-Type", "text/event-stream")
			c.event("", `{"request_id":"r","output":{"finish_reason":"null","audio":{"data":%q}}}`, base64.StdEncoding.EncodeToString([]byte(wav)))
			c.event("", `{"request_id":"r","output":{"finish_reason":"stop","audio":{"data":""}},"usage":{"characters":%d}}`, len(a.Input.Text))
		})
		return
	}
	var t content
	t.reads(a.Input.Messages, false)
	n := max(1, number(a.Parameters.N, 1))
	c.make(order{
		model: a.Model, prompt: t.text.String(), possible: true, takes: 4 * time.Second, units: []units{{billing.Image, "", n}},
		answer: func() {
			c.answer(`{"request_id":"r","output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://media.example/x.png"}]}}]},"usage":{"image_count":%d,"width":1024,"height":1024}}`, n)
		},
	})
}

// task is a video at a vendor.
type task struct {
	due    time.Time
	answer string // when it is made
	young  string // before
}

// makeVideo takes a video in, which is made whoever asks for it. TASK stands for
// its id in the answers.
func (c *vendorCall) makeVideo(model, prompt string, of units, taken, young, answer string) {
	c.make(order{model: model, prompt: prompt, possible: true, video: true, units: []units{of}, answer: func() {
		c.v.mu.Lock()
		id := fmt.Sprintf("task-%d", len(c.v.tasks)+1)
		named := func(text string) string { return strings.ReplaceAll(text, "TASK", id) }
		c.v.tasks[id] = &task{due: time.Now().Add(20 * time.Second), answer: named(answer), young: named(young)}
		c.v.mu.Unlock()
		c.answer("%s", named(taken))
	}})
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
	seconds, variant := number(a.Parameters.Duration, 5), "720p"
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
	c.makeVideo(a.Model, a.Input.Prompt, units{billing.Second, variant, seconds},
		`{"request_id":"r","output":{"task_id":"TASK","task_status":"PENDING"}}`,
		`{"request_id":"r","output":{"task_id":"TASK","task_status":"RUNNING"}}`,
		fmt.Sprintf(`{"request_id":"r","output":{"task_id":"TASK","task_status":"SUCCEEDED","video_url":"https://media.example/x.mp4"},"usage":{"duration":%d,"video_count":1,"SR":%s}}`, seconds, strings.TrimSuffix(variant, "p")))
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
	var t content
	t.reads(a.Content, false)
	frames := number(a.Frames, 24*number(a.Duration, 5))
	points := cmp.Or(map[string]int64{"480p": 864 * 480, "1080p": 1920 * 1080}[a.Sharp], 1280*720)
	tokens := points * frames / 1024
	c.makeVideo(a.Model, t.text.String(), units{billing.Output, "", tokens}, `{"id":"TASK"}`,
		`{"id":"TASK","model":"m","status":"running","error":null,"content":null}`,
		fmt.Sprintf(`{"id":"TASK","model":"m","status":"succeeded","error":null,"content":{"video_url":"https://media.example/x.mp4"},"usage":{"completion_tokens":%d,"total_tokens":%d}}`, tokens, tokens))
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
