// Package speech is what the gateway does with requests of package speech and with the audio
// that answers them. It has the rules of fields, models and voices, the cutting of long texts,
// and the forms of audio.
package speech

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request.
type Request struct {
	speech.Request
	body    upstream.Body
	object  rawjson.Object
	problem rule.Problem // the first rule that the request breaks
	family  Family       // of the model
}

// fields is the table of the fields, their rules and their places. The voice of a model
// without a table may be an object that names a voice of its owner's.
var fields = rule.Fields[Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *Request) any { return &r.Model }},
	{Name: "input", Check: rule.String(), Into: func(r *Request) any { return &r.Input }},
	{Name: "voice", Into: func(r *Request) any { return &r.Voice }},
	{Name: "response_format", Check: rule.String(), Into: func(r *Request) any { return &r.ResponseFormat }},
	{Name: "instructions", Check: rule.String(), Into: func(r *Request) any { return &r.Instructions }},
	{Name: "stream_format", Check: rule.OneOf("audio")}, // the answer is bytes, never events
	{Name: "speed", Check: rule.Number(-math.MaxFloat64, math.MaxFloat64), Into: func(r *Request) any { return &r.Speed }},
}

// Parse reads a request body in one pass. It fails with a 400 that names the
// byte offset if data is not one strict JSON object; other rules are for
// [Request.Check]. The Request refers to data, which must not change any
// more.
func Parse(data []byte) (*Request, error) { return read(data, nil) }

// Encode marshals a typed request and checks the bytes as [Parse] does.
func Encode(typed *speech.Request) (*Request, error) {
	type members speech.Request
	return rule.Encode(typed, (*members)(typed), len(typed.Extra) > 0, read)
}

// read indexes and checks a request body. The fields are typed's, or are decoded
// if that is nil.
func read(data []byte, typed *speech.Request) (*Request, error) {
	r := new(Request)
	if err := rule.Read(&r.object, rule.Small, data, "", nil); err != nil {
		return nil, err
	}
	r.body = upstream.ObjectBody(r.object)
	if typed != nil {
		r.Request = *typed
	}
	fields.Read(r, &r.object, &r.problem, typed != nil)
	if typed != nil && r.problem.Found() { // a field that breaks its rule stays unset
		return read(data, nil)
	}
	r.family = familyOf(r.Model)
	return r, nil
}

// Check reports the first rule of the API that the request breaks, nil if
// there is none.
func (r *Request) Check(m *operation.Facts, _ *billing.Price, _ operation.Channels) error {
	if err := r.problem.Err(); err != nil {
		return err
	}
	if r.Model == "" {
		return rule.NoModel()
	}
	if strings.TrimSpace(r.Input) == "" {
		return endpointMismatch("input", `"input" is empty: it is the text to speak.`)
	}
	if err := r.checkFormat(); err != nil {
		return err
	}
	if r.Instructions != "" && !r.family.Instructed {
		return fault.Invalid("instructions", fmt.Sprintf("The model %q takes no \"instructions\"; alpha3-tts-instruct-flash does.", r.Model))
	}
	_, err := r.selectVoice(m.Voices)
	return err
}

func (r *Request) checkFormat() error {
	raw, f := r.object.Raw("response_format"), &r.family
	switch {
	case rawjson.IsNull(raw):
		return nil
	case len(f.Formats) == 0:
		return fault.Invalid("response_format", fmt.Sprintf("The model %q does not take \"response_format\": it always speaks %s.", r.Model, f.Default))
	case !rule.OneOf(f.Formats...).OK(raw):
		return fault.Invalid("response_format", fmt.Sprintf("\"response_format\" must be %s.", rule.Words(f.Formats)))
	}
	return nil
}

// endpointMismatch is the refusal that the public API has for what this
// endpoint cannot speak.
func endpointMismatch(param, message string) *fault.Error {
	return &fault.Error{Code: fault.EndpointModelMismatch, Param: param, Message: message}
}

// UnknownModel is the refusal of a model that there is not.
func UnknownModel(model string) error {
	return endpointMismatch("model", fmt.Sprintf("There is no model %.64q for speech; GET /v1/models lists those that there are.", model))
}

// CannotEncode is the refusal of an MP3 that cannot be made.
func CannotEncode(why error) error {
	return fault.Wrap(fault.InvalidRequest,
		`This model gives WAV, and this server cannot make an MP3 of it: ask for "response_format": "wav".`, why).With(func(e *fault.Error) { e.Param = "response_format" })
}

// Format is the format that the answer is to have.
func (r *Request) Format() string {
	if r.ResponseFormat != "" {
		return r.ResponseFormat
	}
	return r.family.Default
}

// Characters is what is billed: the Unicode code points of the input.
func (r *Request) Characters() int64 { return int64(utf8.RuneCountInString(r.Input)) }

// Names are the top-level members, in order; those that are null count as absent.
func (r *Request) Names() []string {
	var names []string
	for _, m := range r.object.Members {
		if !rawjson.IsNull(m.Value.Of(r.object.Src)) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Source is the body as the caller sent it; nil for a Request that did not come
// from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.object.Src }

// Family is a group of models that obey the same rules.
type Family struct {
	Models []string // public ids
	// Formats are the values of response_format; none if the field is refused.
	Formats []string
	// Default is the format of an answer where the request names none.
	Default string
	// Instructed says that `instructions` are taken.
	Instructed bool
	// Limit is the most characters of one upstream call; 0 means no limit.
	Limit int
	// Voices are the preset voices; the first is the default. Without any, the request's voice
	// is passed on.
	Voices []string
}

// limit is the most characters of one call of the vendor's models.
const limit = 600

// Families are the models that the gateway knows, with the limits and voices of
// their vendor's page. They are read-only.
var Families = []Family{
	{
		Models: []string{"alpha3-tts-flash"}, Formats: []string{speech.MP3, speech.WAV}, Default: speech.MP3,
		Limit: limit, Voices: slices.Concat(commonVoices, flashVoices),
	},
	{Models: []string{"alpha3-tts-instruct-flash"}, Default: speech.WAV, Instructed: true, Limit: limit, Voices: commonVoices},
}

var commonVoices = []string{
	"Cherry", "Serena", "Ethan", "Chelsie", "Momo", "Vivian", "Moon", "Maia", "Kai", "Nofish", "Bella", "Eldric Sage",
	"Mia", "Mochi", "Bellona", "Vincent", "Bunny", "Neil", "Elias", "Arthur", "Nini", "Seren", "Pip", "Stella",
}

var flashVoices = []string{
	"Jennifer", "Ryan", "Katerina", "Aiden", "Bodega", "Sonrisa", "Alek", "Dolce", "Sohee", "Ono Anna", "Lenn", "Emilien",
	"Andre", "Radio Gol", "Jada", "Dylan", "Li", "Marcus", "Roy", "Peter", "Sunny", "Eric", "Rocky", "Kiki",
}

// openAIVoices are the names that OpenAI's clients send; they mean the default
// preset of a model that has presets.
var openAIVoices = []string{
	"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse",
}

// familyOf is the model's; for one that no table describes it is OpenAI's.
func familyOf(model string) Family {
	for _, f := range Families {
		if slices.Contains(f.Models, model) {
			return f
		}
	}
	return Family{Formats: formats, Default: speech.MP3, Instructed: true}
}

// selectVoice returns the voice to use. It is the voice that the request names, or the default
// preset if it names none or one of OpenAI's. listed are the operator's voices of the model;
// nil means its family's. Without any, the upstream decides.
func (r *Request) selectVoice(listed []string) (string, error) {
	if listed == nil {
		listed = r.family.Voices
	}
	raw := r.object.Raw("voice")
	switch {
	case len(listed) == 0:
		return r.Voice, checkPassedVoice(raw)
	case rawjson.IsNull(raw):
		return listed[0], nil
	case raw[0] != '"':
		return "", endpointMismatch("voice", "\"voice\" must be a string, the name of a preset voice.")
	case r.Voice == "", slices.Contains(openAIVoices, r.Voice) && !slices.Contains(listed, r.Voice):
		return listed[0], nil
	case slices.Contains(listed, r.Voice):
		return r.Voice, nil
	}
	return "", endpointMismatch("voice", fmt.Sprintf("The model %q has no voice %.64q; it has %s.", r.Model, r.Voice, rule.Words(listed)))
}

// checkPassedVoice reports whether a voice can be passed on: a name, or an object.
func checkPassedVoice(raw []byte) error {
	if rawjson.IsNull(raw) || raw[0] == '"' || raw[0] == '{' {
		return nil
	}
	return endpointMismatch("voice", "\"voice\" must be a string or an object.")
}

// Unpriced refuses the first member that chooses another model or account than
// the gateway has priced, unless pass lets it through. pass gets the name as the
// table spells it and as the caller does.
func (r *Request) Unpriced(_ http.Header, pass func(name, spelled string) bool) error {
	return rule.CheckUnpriced(&r.object, rule.Other, nil, pass)
}

// ReadCall is the request of a call: the body's, as the channel edited it.
func ReadCall(call *upstream.Call) (*Request, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	r, err := Parse(data)
	if err != nil {
		return nil, err
	}
	view, ok := call.Request.(*speech.Request)
	r.TakesWAV = !ok || view.TakesWAV
	if ok {
		r.ResponseFormat = view.ResponseFormat
	}
	return r, nil
}
