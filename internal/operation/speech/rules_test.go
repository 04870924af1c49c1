package speech

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/speech"
)

func TestEachModelHasItsVoices(t *testing.T) {
	for _, f := range Families {
		for _, voice := range slices.Concat(commonVoices, flashVoices, openAIVoices, []string{"nobody"}) {
			r, err := Parse(fmt.Appendf(nil, `{"model":%q,"input":"a","voice":%q}`, f.Models[0], voice))
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Contains(f.Voices, voice) || slices.Contains(openAIVoices, voice)
			if err := r.Check(&operation.Facts{}, nil, nil); (err == nil) != want || err != nil && !fault.Is(err, fault.EndpointModelMismatch) {
				t.Errorf("%s, %s: %v", f.Models[0], voice, err)
			}
		}
		if f.Voices[0] != "Cherry" || f.Limit != 600 || slices.Contains(slices.Sorted(slices.Values(f.Voices)), "") {
			t.Errorf("family %+v", f)
		}
	}
}

func TestTheIdOfAModelIsBounded(t *testing.T) {
	for id, want := range map[string]bool{strings.Repeat("m", 256): true, strings.Repeat("m", 257): false, `a\u0000b`: false} {
		r, err := Parse([]byte(`{"model":"` + id + `","input":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(&operation.Facts{}, nil, nil); (err == nil) != want {
			t.Errorf("%.10q of %d bytes: %v", id, len(id), err)
		}
	}
}

func TestNamesAreThoseThatAreGiven(t *testing.T) {
	r, err := Parse([]byte(`{"model":"m","input":"a","x":null,"y":1}`))
	if err != nil || !slices.Equal(r.Names(), []string{"model", "input", "y"}) {
		t.Errorf("%q, %v", r.Names(), err)
	}
	var many strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&many, `,"x%06d":1`, i)
	}
	if _, err := Parse([]byte(`{"model":"m","input":"a"` + many.String() + `}`)); fault.From(err).HTTPStatus() != 400 || !strings.Contains(err.Error(), "1024 members") {
		t.Errorf("%v, want a refusal of so many fields", err)
	}
}

func TestAnUpstreamGetsAVoice(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"alpha3-tts-flash","input":"a"}`:                                           `{"model":"alpha3-tts-flash","input":"a","voice":"Cherry"}`,
		`{"model":"alpha3-tts-flash","input":"a","voice":"alloy","x":1.0}`:                   `{"model":"alpha3-tts-flash","input":"a","voice":"Cherry","x":1.0}`,
		`{"model":"alpha3-tts-flash", "voice":"Radio Gol","input":"a","speed":2}`:            `{"model":"alpha3-tts-flash", "voice":"Radio Gol","input":"a","speed":2}`,
		`{"model":"alpha3-tts-instruct-flash","input":"a","voice":"","instructions":"slow"}`: `{"model":"alpha3-tts-instruct-flash","input":"a","voice":"Cherry","instructions":"slow"}`,
	} {
		r, err := Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		p := r.Parts(nil, 0)[0]
		if got, err := p.Outgoing(0).Body.Bytes(); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
		if p.Request.Voice == "" || p.Request.ResponseFormat != r.Format() || r.Voice == "Cherry" {
			t.Errorf("the view is %+v, of %+v", p.Request, r.Request)
		}
	}
}

func TestAnOperatorsVoicesReplaceThoseOfTheTable(t *testing.T) {
	r, err := Parse([]byte(`{"model":"alpha3-tts-flash","input":"a","voice":"Cherry"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(&operation.Facts{Voices: []string{"Ada"}}, nil, nil); !fault.Is(err, fault.EndpointModelMismatch) {
		t.Errorf("error %v", err)
	}
	if r, err = Parse([]byte(`{"model":"x","input":"a","voice":"alloy"}`)); err != nil || r.Check(&operation.Facts{Voices: []string{"Ada"}}, nil, nil) != nil || r.Parts([]string{"Ada"}, 0)[0].Request.Voice != "Ada" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAModelThatNoTableDescribesGetsTheCommonChecks(t *testing.T) {
	for body, want := range map[string]bool{
		`{"model":"x","input":"a"}`: true, `{"model":"x","input":"a","voice":{"id":"v"},"response_format":"opus","instructions":"i"}`: true,
		`{"model":"x","input":"a","voice":7}`: false, `{"model":"x","input":"a","response_format":"mid"}`: false, `{"model":"x","input":""}`: false,
		`{"model":"x","input":"a","stream_format":"audio"}`: true, `{"model":"x","input":"a","stream_format":"sse"}`: false,
	} {
		r, err := Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(&operation.Facts{}, nil, nil); (err == nil) != want {
			t.Errorf("%s: %v", body, err)
		}
		if want && len(r.Parts(nil, 0)) != 1 {
			t.Errorf("%s was split", body)
		}
	}
}

func TestATypedRequestIsReadAsItsBytes(t *testing.T) {
	for name, typed := range map[string]*speech.Request{
		"nothing":                  {},
		"every field":              {Model: "x", Input: "hé", Voice: "v", ResponseFormat: "opus", Instructions: "slow", Speed: 1.5},
		"a known model":            {Model: "alpha3-tts-flash", Input: "a", ResponseFormat: speech.WAV},
		"a model that is too long": {Model: strings.Repeat("m", 257), Input: "a"},
		"fields in Extra":          {Model: "x", Input: "a", Extra: []byte(`{"voice":"v","speed":2,"y":1.0}`)},
		"a wrong field in Extra":   {Model: "x", Input: "a", Extra: []byte(`{"stream_format":"sse"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(typed)
			if err != nil {
				t.Fatal(err)
			}
			want, err := Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Encode(typed)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Request, want.Request) || string(got.Source()) != string(data) {
				t.Errorf("got %+v of %s, want %+v of %s", got.Request, got.Source(), want.Request, data)
			}
			if g, w := fmt.Sprint(got.Check(&operation.Facts{}, nil, nil)), fmt.Sprint(want.Check(&operation.Facts{}, nil, nil)); g != w {
				t.Errorf("got %s, want %s", g, w)
			}
		})
	}
}
