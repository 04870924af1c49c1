package videoapi

import (
	"fmt"
	"math"
	"net/url"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/webhook"
)

// The times that a caller may give a task, in seconds. Those of the gamma
// family are its vendor's; of a model that no table describes a vendor
// remembers the task no longer than mostExpiry.
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

// fields checks the members of an object by a table.
func (r *Request) fields(table rule.Table, o *rawjson.Object, prefix string) {
	for _, f := range table {
		if raw := o.Raw(f.Name); !rawjson.IsNull(raw) && !f.Check.OK(raw) {
			r.parsed.problem.Fail(mustBe(InvalidParameter, prefix+f.Name, f.Check.Text))
		}
	}
}

// readFields fills the fields. What is wrong in kind was noted, or is the
// business of a model that no table describes, and stays unread.
func (r *Request) readFields() {
	o := &r.parsed.object
	for name, to := range map[string]*string{
		"model": &r.Model, "resolution": &r.Resolution, "aspect_ratio": &r.AspectRatio, "webhook_url": &r.WebhookURL,
		"prompt": &r.Prompt, "ratio": &r.Ratio, "callback_url": &r.CallbackURL,
		"safety_identifier": &r.SafetyIdentifier, "priority": &r.Priority,
	} {
		*to, _ = rawjson.String(o.Raw(name))
	}
	for name, to := range map[string]*int64{
		"duration": &r.Duration, "frames": &r.Frames, "execution_expires_after": &r.ExecutionExpiresAfter,
	} {
		*to, _ = rawjson.Int(o.Raw(name))
	}
	for name, to := range map[string]*bool{
		"draft": &r.Draft, "camera_fixed": &r.CameraFixed, "watermark": &r.Watermark,
		"return_last_frame": &r.ReturnLastFrame, "wait": &r.Wait,
	} {
		*to = string(o.Raw(name)) == "true"
	}
	for name, to := range map[string]*jsontext.Value{"input": &r.Input, "parameters": &r.Parameters} {
		if raw := o.Raw(name); !rawjson.IsNull(raw) {
			*to = raw
		}
	}
	if n, ok := rawjson.Int(o.Raw("seed")); ok {
		r.Seed = &n
	}
	r.GenerateAudio = boolean(o.Raw("generate_audio"))
}

// boolean reads true or false; nil for anything else.
func boolean(raw []byte) *bool {
	if s := string(raw); s != "true" && s != "false" {
		return nil
	}
	is := raw[0] == 't'
	return &is
}

// given reports whether a member of the request is there and not null.
func (r *Request) given(name string) bool { return !rawjson.IsNull(r.Field(name)) }

// ModelConfig is what the operator says of a model and of webhooks. The zero
// value has the strict rules of a model without a price.
type ModelConfig struct {
	Ratios     []string // the values of `ratio`; none means all
	Priorities []string // the values of `priority`; none means all
	// AllowPrivate allows a webhook_url with http, another port or a private
	// address.
	AllowPrivate bool
	Price        *billing.Price
}

// Validate reports the first rule of the API that the request breaks, nil if
// there is none. A variant of the video that has no price is one.
func (r *Request) Validate(f ModelConfig) error {
	if r.Model == "" && !r.given("model") {
		return missing("model", "the id of the model; GET /v1/models lists those that there are")
	}
	if err := r.parsed.problem.Err(); err != nil {
		return err
	}
	if err := listed("ratio", r.Ratio, f.Ratios); err != nil && r.parsed.beta == nil {
		return err
	}
	if err := listed("priority", r.Priority, f.Priorities); err != nil && r.parsed.beta == nil {
		return err
	}
	if r.given("webhook_url") {
		if err := checkWebhook(r.WebhookURL, f.AllowPrivate); err != nil {
			return err
		}
	}
	_, err := r.Bound(f.Price)
	return err
}

// listed checks a word against the operator's list.
func listed(param, word string, allowed []string) error {
	if word == "" || len(allowed) == 0 || slices.Contains(allowed, word) {
		return nil
	}
	return mustBe(NotInEnum, param, rule.Words(allowed))
}

// checkResolution checks a resolution that was named.
func (r *Request) checkResolution(word string, has []string) {
	all := []string{p480, p720, p1080}
	switch {
	case !slices.Contains(all, word):
		r.parsed.problem.Fail(mustBe(NotInEnum, "resolution", rule.Words(all)))
	case !slices.Contains(has, word):
		r.parsed.problem.Fail(refusal(ResolutionNotSupported, "resolution",
			fmt.Sprintf("The model %q makes videos of %s, not of %s.", r.Model, rule.Words(has), word)))
	}
}

// contradict notes that the request says two things of one.
func (r *Request) contradict(param, otherwise string) {
	r.parsed.problem.Refuse(param, fmt.Sprintf("%q contradicts %s: say the same, or say it once.", param, otherwise))
}

// The codes of video errors that the gateway itself gives, all with status 400.
// The table is both families': its row NotInEnum names aspect_ratio, which only
// beta has. A contradiction within a request is a fault.InvalidRequest.
const (
	InvalidParameter       fault.Code = "InvalidParameter"                        // a value of the wrong kind, or one that the model does not take
	MissingRequired        fault.Code = "InvalidParameter.MissingRequired"        // a required field is absent
	NotInEnum              fault.Code = "InvalidParameter.NotInEnum"              // a word that is not one of those allowed
	PromptTooLong          fault.Code = "InvalidParameter.PromptTooLong"          // more characters than the model takes
	URLInvalid             fault.Code = "InvalidParameter.UrlInvalid"             // no address, or not http(s)
	ResolutionNotSupported fault.Code = "InvalidParameter.ResolutionNotSupported" // the model does not have the resolution
	DurationOutOfRange     fault.Code = "InvalidParameter.DurationOutOfRange"     // the model does not make videos of that length
	ContentEmpty           fault.Code = "InvalidParameter.ContentEmpty"           // neither a prompt nor content
	UnsupportedRole        fault.Code = "InvalidParameter.UnsupportedRole"        // the role of a content block
)

// refusal is a 400 about a field.
func refusal(code fault.Code, param, message string) *fault.Error {
	return &fault.Error{Code: code, Status: 400, Param: param, Message: message}
}

// mustBe is a refusal whose message is made of what would be right.
func mustBe(code fault.Code, param, be string) *fault.Error {
	return refusal(code, param, fmt.Sprintf("%q must be %s.", param, be))
}

// missing is the refusal of a request that lacks a field.
func missing(param, what string) *fault.Error {
	return refusal(MissingRequired, param, fmt.Sprintf("%q is missing: it is %s.", param, what))
}

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

// notURL is the refusal of what is no address.
func notURL(param string) *fault.Error {
	return mustBe(URLInvalid, param, "an http or https address")
}

// checkWebhook refuses an address to which no notice would ever go, so that the
// caller hears of it now. Whether the address that a name stands for is public,
// is decided when it is dialled.
func checkWebhook(text string, private bool) error {
	const param = "webhook_url"
	if !isURL(text) {
		return notURL(param)
	}
	if err := webhook.CheckURL(text, private); err != nil {
		return refusal(URLInvalid, param, fmt.Sprintf("%q cannot be used: %s.", param, err))
	}
	return nil
}
