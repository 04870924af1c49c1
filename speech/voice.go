package speech

import (
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// preset is the voice that speaks: the one that the request names, or the
// default preset where it names none or one of OpenAI's. listed are the voices
// that the operator gives the model; nil means its family's. Without any, the
// voice is the upstream's business.
func (r *Request) preset(listed []string) (string, error) {
	if listed == nil {
		f, _ := family(r.Model)
		listed = f.Voices
	}
	raw := r.parsed.object.Raw("voice")
	switch {
	case len(listed) == 0:
		return r.Voice, passable(raw)
	case rawjson.IsNull(raw):
		return listed[0], nil
	case raw[0] != '"':
		return "", mismatch("voice", "\"voice\" must be a string, the name of a preset voice.")
	case r.Voice == "", slices.Contains(openAIVoices(), r.Voice) && !slices.Contains(listed, r.Voice):
		return listed[0], nil
	case slices.Contains(listed, r.Voice):
		return r.Voice, nil
	}
	return "", mismatch("voice", fmt.Sprintf("The model %q has no voice %.64q; it has %s.", r.Model, r.Voice, rule.Words(listed)))
}

// passable reports whether a voice can be passed on: a name, or an object.
func passable(raw []byte) error {
	if rawjson.IsNull(raw) || raw[0] == '"' || raw[0] == '{' {
		return nil
	}
	return mismatch("voice", "\"voice\" must be a string or an object.")
}
