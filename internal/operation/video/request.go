// Package video is what the gateway does with requests of package video and with their tasks.
// It has the rules of fields and model families, the bounds of a price, and what upstreams
// report of a task. It also has the task's life from submission to its end.
package video

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Request is a parsed request.
type Request struct {
	video.Request
	body       upstream.Body
	object     rawjson.Object
	parameters rawjson.Object // of the beta family, and of models that no table describes
	content    []byte         // the JSON of the blocks; nil if there are none
	drafts     []draft        // the tasks that content names
	problem    rule.Problem   // the first rule that the request breaks
	row        *Model         // nil if no table describes the model
	asked      asked
}

// asked is what the request asks for, as far as it is billed.
type asked struct {
	seconds    int64  // 0: left open
	resolution string // "720p"; empty: left open
	ratio      string // "16:9"; empty: left open
	sound      *bool  // nil: left open
	draft      bool
}

// draft is the id of a task in the JSON of content.
type draft struct {
	id string
	at rawjson.Span // in the source
}

// strict is [rule.Small] for more members: those that decide the price or name a task have no
// case variants either. An upstream that minds no case would read another request than the one
// that was checked. In input, a reference decides the price.
var strict = &rawjson.Rules{
	Unique: true, Nested: append([]string{"input"}, rule.Small.Nested...), Bounds: rule.Small.Bounds,
	Billed: append([]string{"img_url", "audio_url", "reference_urls", "media"}, rule.Small.Billed...),
}

// Parse reads a request body. It fails with a 400 that names the byte offset if
// data is not one strict JSON object; other rules are for [Request.Check].
// The Request refers to data, which must not change any more.
func Parse(data []byte) (*Request, error) {
	o, err := rawjson.Index(data, strict, nil)
	if err != nil {
		return nil, rule.Unacceptable(err)
	}
	r := &Request{object: o, body: upstream.ObjectBody(o)}
	r.checkFields(common, &o, "")
	r.readFields()
	r.row = ModelOf(r.Model)
	switch r.Family() {
	case video.FamilyBeta:
		r.readBeta()
	case video.FamilyGamma:
		r.readGamma()
	default:
		r.readUnknown()
	}
	return r, nil
}

// Encode marshals a typed request and reads it again as [Parse] does.
func Encode(typed *video.Request) (*Request, error) {
	type members video.Request
	return rule.Encode(typed, (*members)(typed), true, func(data []byte, _ *video.Request) (*Request, error) { return Parse(data) })
}

// Field is the JSON of any top-level member; nil if there is none.
func (r *Request) Field(name string) []byte { return r.object.Raw(name) }

// Source is the body as the caller sent it; nil for a Request that did not come
// from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.object.Src }

// Family is the name of the model's family; empty for a model that no table
// describes.
func (r *Request) Family() string {
	if r.row == nil {
		return ""
	}
	return r.row.Family
}

// lifetime is how long the caller lets the task take
// (execution_expires_after, 48 hours by default). What its vendor makes
// nonetheless is charged ([End]).
func (r *Request) lifetime() time.Duration {
	if r.ExecutionExpiresAfter > 0 {
		return time.Duration(r.ExecutionExpiresAfter) * time.Second
	}
	return defaultLifetime
}

// Fingerprint is that of the request by a key, for the duplicate window.
func (r *Request) Fingerprint(key string) (f [32]byte) {
	h := sha256.New()
	h.Write([]byte(key)) // a hash takes everything
	h.Write([]byte{0})
	h.Write(r.Source())
	h.Sum(f[:0])
	return f
}

// Task is the request's part of a new task, which starts at now: the pipeline adds
// the rest. b is what [Request.Bound] found.
func (r *Request) Task(b Bound, now time.Time) video.Task {
	t := video.Task{
		Model: r.Model, Family: r.Family(), State: video.Submitting,
		CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Add(r.lifetime()),
		Bound: b.Usage, Tokens: b.Tokens, Open: b.Open, WebhookURL: r.WebhookURL,
	}
	seed := r.object.Raw("seed")
	if r.Family() == video.FamilyBeta {
		seed = r.parameters.Raw("seed")
	}
	if !rawjson.IsNull(seed) {
		t.Seed = slices.Clone(seed)
	}
	return t
}

// Outgoing is what an upstream gets: the caller's body without webhook_url and wait, which no
// upstream knows. Top-level fields of the beta family go into parameters, where its upstream
// wants them. The prompt of the gamma family becomes a text block.
func (r *Request) Outgoing(int64) operation.Outgoing {
	body := r.body
	removed := []string{"webhook_url", "wait"}
	switch {
	case r.Family() == video.FamilyBeta:
		removed = append(removed, "duration", "resolution", "aspect_ratio")
		if parameters := r.preparedParameters(); parameters != nil {
			body = body.Set("parameters", parameters)
		}
	case r.Family() == video.FamilyGamma && r.object.Raw("prompt") != nil:
		removed = append(removed, "prompt")
		if strings.TrimSpace(r.Prompt) != "" {
			body = body.Set("content", r.promptBlock())
		}
	}
	for _, name := range removed {
		if r.object.Raw(name) != nil {
			body = body.Delete(name)
		}
	}
	return operation.Outgoing{Body: body, View: &r.Request}
}

// promptBlock is content with the prompt as its first block.
func (r *Request) promptBlock() []byte {
	first := slices.Concat([]byte(`[{"type":"text","text":`), r.object.Raw("prompt"), []byte(`}`))
	rest := r.object.Raw("content")
	if len(rawjson.Elements(rest)) == 0 {
		return append(first, ']')
	}
	return slices.Concat(first, []byte(","), rest[1:])
}

// preparedParameters is parameters with what they lack; nil if they lack
// nothing.
func (r *Request) preparedParameters() []byte {
	given := r.parameters
	if given.Src == nil {
		given, _ = rawjson.Index([]byte("{}"), nil, nil) // which is a JSON object
	}
	var edits []rawjson.Edit
	want := func(name string, value []byte) {
		if rawjson.IsNull(given.Raw(name)) {
			edits = append(edits, rawjson.Set(name, value))
		}
	}
	want("duration", strconv.AppendInt(nil, r.asked.seconds, 10))
	if r.row.Ratio {
		want("ratio", rawjson.Quote(nil, r.asked.ratio))
	}
	if r.row.Size {
		s, _ := sizeOf(r.asked.resolution, r.asked.ratio)
		want("size", rawjson.Quote(nil, s.String()))
	} else {
		want("resolution", rawjson.Quote(nil, strings.ToUpper(r.asked.resolution)))
	}
	if len(edits) == 0 {
		return nil
	}
	return given.Apply(nil, edits...)
}

// DraftTasks are the ids of the tasks that content continues: ids of ours or of
// an upstream, as the caller knows them. Each must be the account's own.
func (r *Request) DraftTasks() []string {
	var ids []string
	for _, d := range r.drafts {
		ids = append(ids, d.id)
	}
	return ids
}

// WithDraftTasks is the request with the upstream's ids in place of those that
// the caller knows, where upstreamID has them. The Request itself stays.
func (r *Request) WithDraftTasks(upstreamID map[string]string) (*Request, error) {
	var b []byte
	src, done := r.Source(), 0
	for _, d := range r.drafts {
		id, ok := upstreamID[d.id]
		if !ok || id == d.id {
			continue
		}
		b = append(b, src[done:d.at.Start]...)
		b = rawjson.Quote(b, id)
		done = d.at.End
	}
	if done == 0 {
		return r, nil
	}
	return Parse(append(b, src[done:]...))
}

// Unpriced refuses the first member that chooses another model or account than
// the gateway has priced, unless pass lets it through. pass gets the name as the
// table spells it and as the caller does.
func (r *Request) Unpriced(_ http.Header, pass func(name, spelled string) bool) error {
	return rule.CheckUnpriced(&r.object, rule.Other, nil, pass)
}
