package video

import (
	"fmt"
	"math"
	"net/url"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/video"
)

// The times that a caller may give a task, in seconds. Those of the gamma family are its
// vendor's. For a model without a table, a vendor remembers the task no longer than
// mostExpiry.
const (
	leastGammaExpiry = 60 * 60
	mostGammaExpiry  = 3 * 24 * 60 * 60
	mostExpiry       = 7 * 24 * 60 * 60
)

var anInteger = rule.Check{Text: "an integer", OK: func(raw []byte) bool { _, ok := rawjson.Int(raw); return ok }}

// common are the rules of every model: what names it, what the gateway itself
// reads, and what is billed.
var common = rule.Table{
	{Name: "model", Check: rule.ModelID()},
	{Name: "duration", Check: anInteger},
	{Name: "resolution", Check: rule.String()},
	{Name: "webhook_url", Check: rule.String()},
	{Name: "wait", Check: rule.Bool()},
}

// gammaFields is the table of the fields and their rules, as far as kind and
// range go.
var gammaFields = rule.Table{
	{Name: "prompt", Check: rule.String()},
	{Name: "content", Check: rule.Array()},
	{Name: "ratio", Check: rule.String()},
	{Name: "generate_audio", Check: rule.Bool()},
	{Name: "draft", Check: rule.Bool()},
	{Name: "seed", Check: rule.Integer(0, math.MaxUint32)},
	{Name: "camera_fixed", Check: rule.Bool()},
	{Name: "watermark", Check: rule.Bool()},
	{Name: "return_last_frame", Check: rule.Bool()},
	{Name: "frames", Check: anInteger},
	{Name: "callback_url", Check: rule.String()},
	{Name: "safety_identifier", Check: rule.String()},
	{Name: "priority", Check: rule.String()},
	{Name: "execution_expires_after", Check: rule.Integer(leastGammaExpiry, mostGammaExpiry)},
}

// betaFields and betaParameters are the tables of the fields and their rules.
var (
	betaFields = rule.Table{
		{Name: "aspect_ratio", Check: rule.String()},
		{Name: "input", Check: rule.Object()},
		{Name: "parameters", Check: rule.Object()},
		{Name: "execution_expires_after", Check: rule.Check{
			Text: "left out: the vendor of this model has no such time",
			OK:   func([]byte) bool { return false },
		}},
	}
	betaParameters = rule.Table{
		{Name: "duration", Check: anInteger},
		{Name: "resolution", Check: rule.String()},
		{Name: "size", Check: rule.String()},
		{Name: "ratio", Check: rule.String()},
		{Name: "audio", Check: rule.Bool()},
		{Name: "shot_type", Check: rule.String()},
		{Name: "prompt_extend", Check: rule.Bool()},
		{Name: "watermark", Check: rule.Bool()},
		{Name: "seed", Check: rule.Integer(0, math.MaxUint32)},
	}
)

// unknownFields are what of a model that no table describes may be billed.
var unknownFields = rule.Table{
	{Name: "duration", Check: rule.Integer(1, unknownMost)},
	{Name: "frames", Check: rule.Integer(1, unknownMost*fps+1)},
	{Name: "resolution", Check: rule.String()},
	{Name: "generate_audio", Check: rule.Bool()},
	{Name: "draft", Check: rule.Bool()},
	{Name: "execution_expires_after", Check: rule.Integer(1, mostExpiry)},
}

// checkFields checks the members of an object by a table.
func (r *Request) checkFields(table rule.Table, o *rawjson.Object, prefix string) {
	for _, f := range table {
		if raw := o.Raw(f.Name); !rawjson.IsNull(raw) && !f.Check.OK(raw) {
			r.mustBe(invalidParameter, prefix+f.Name, f.Check.Text)
		}
	}
}

// readFields fills the fields. What is wrong in kind was noted, or is the
// business of a model that no table describes, and stays unread.
func (r *Request) readFields() {
	for name, to := range map[string]any{
		"model": &r.Model, "resolution": &r.Resolution, "aspect_ratio": &r.AspectRatio, "webhook_url": &r.WebhookURL,
		"prompt": &r.Prompt, "ratio": &r.Ratio, "callback_url": &r.CallbackURL,
		"safety_identifier": &r.SafetyIdentifier, "priority": &r.Priority,
		"duration": &r.Duration, "frames": &r.Frames, "execution_expires_after": &r.ExecutionExpiresAfter, "seed": &r.Seed,
		"draft": &r.Draft, "camera_fixed": &r.CameraFixed, "watermark": &r.Watermark,
		"return_last_frame": &r.ReturnLastFrame, "wait": &r.Wait, "generate_audio": &r.GenerateAudio,
		"input": &r.Input, "parameters": &r.Parameters,
	} {
		if raw := r.object.Raw(name); !rawjson.IsNull(raw) {
			rule.Set(to, raw, false)
		}
	}
}

// given reports whether a member of the request is there and not null.
func (r *Request) given(name string) bool { return !rawjson.IsNull(r.object.Raw(name)) }

// Check reports the first rule of the API that the request breaks, nil if
// there is none. A variant of the video that has no price is one.
func (r *Request) Check(m *operation.Facts, p *billing.Price, _ operation.Channels) error {
	checked := *r // so that the request stays as it is
	r = &checked
	if r.Model == "" && !r.given("model") {
		r.problem = rule.Problem{} // it comes before any other
		r.missing("model", "the id of the model; GET /v1/models lists those that there are")
	}
	if r.Family() != video.FamilyBeta {
		r.checkListed("ratio", r.Ratio, m.Ratios)
		r.checkListed("priority", r.Priority, m.Priorities)
	}
	if r.given("webhook_url") {
		r.checkWebhook(m.AllowPrivate)
	}
	if err := r.problem.Err(); err != nil {
		return err
	}
	_, err := r.Bound(p)
	return err
}

// checkListed checks a word against the operator's list.
func (r *Request) checkListed(param, word string, allowed []string) {
	if word != "" && len(allowed) > 0 && !slices.Contains(allowed, word) {
		r.mustBe(notInEnum, param, rule.Words(allowed))
	}
}

// checkWebhook refuses an address that no webhook could reach, so that the caller learns it
// now. Whether the address that a name stands for is public, is decided when it is dialled.
func (r *Request) checkWebhook(private bool) {
	const param = "webhook_url"
	if !isURL(r.WebhookURL) {
		r.mustBe(urlInvalid, param, anAddress)
	} else if err := webhook.CheckURL(r.WebhookURL, private); err != nil {
		r.fail(urlInvalid, param, "%q cannot be used: %s.", param, err)
	}
}

// checkResolution checks a resolution that was named.
func (r *Request) checkResolution(word string) {
	all := []string{p480, p720, p1080}
	switch has := r.row.Resolutions; {
	case !slices.Contains(all, word):
		r.mustBe(notInEnum, "resolution", rule.Words(all))
	case !slices.Contains(has, word):
		r.fail(resolutionNotSupported, "resolution", "The model %q makes videos of %s, not of %s.", r.Model, rule.Words(has), word)
	}
}

// checkLink checks that a value is an address.
func (r *Request) checkLink(param string, raw []byte) {
	text, ok := rawjson.String(raw)
	switch {
	case !ok:
		r.mustBe(invalidParameter, param, "a string")
	case !isURL(text):
		r.mustBe(urlInvalid, param, anAddress)
	}
}

// contradict notes that the request says two things of one.
func (r *Request) contradict(param, otherwise string) {
	r.problem.Refuse(param, fmt.Sprintf("%q contradicts %s: say the same, or say it once.", param, otherwise))
}

// fail notes a problem.
func (r *Request) fail(code fault.Code, param, format string, args ...any) {
	r.problem.Fail(refusal(code, param, format, args...))
}

// mustBe notes a problem by what would be right.
func (r *Request) mustBe(code fault.Code, param, be string) {
	r.fail(code, param, "%q must be %s.", param, be)
}

// missing notes a field that is required and not there.
func (r *Request) missing(param, what string) {
	r.fail(missingRequired, param, "%q is missing: it is %s.", param, what)
}

// refusal is a 400 about a field.
func refusal(code fault.Code, param, format string, args ...any) *fault.Error {
	return &fault.Error{Code: code, Status: 400, Param: param, Message: fmt.Sprintf(format, args...)}
}

// The codes of video errors that the gateway itself gives, all with status 400.
// The table is both families': its row notInEnum names aspect_ratio, which only
// beta has. A contradiction within a request is a fault.InvalidRequest.
const (
	invalidParameter       fault.Code = "InvalidParameter"                        // a value of the wrong kind, or one that the model does not take
	missingRequired        fault.Code = "InvalidParameter.MissingRequired"        // a required field is absent
	notInEnum              fault.Code = "InvalidParameter.NotInEnum"              // a word that is not one of those allowed
	promptTooLong          fault.Code = "InvalidParameter.PromptTooLong"          // more characters than the model takes
	urlInvalid             fault.Code = "InvalidParameter.UrlInvalid"             // no address, or not http(s)
	resolutionNotSupported fault.Code = "InvalidParameter.ResolutionNotSupported" // the model does not have the resolution
	durationOutOfRange     fault.Code = "InvalidParameter.DurationOutOfRange"     // the model does not make videos of that length
	contentEmpty           fault.Code = "InvalidParameter.ContentEmpty"           // neither a prompt nor content
	unsupportedRole        fault.Code = "InvalidParameter.UnsupportedRole"        // the role of a content block
)

// maxURL is the longest address, in bytes: signed ones are long.
const maxURL = 8192

// isURL reports whether text is an http or https address.
func isURL(text string) bool {
	if len(text) > maxURL {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != ""
}

// anAddress is what is not one where it must be.
const anAddress = "an http or https address"
