package video

import (
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/video"
)

func TestBodiesThatSayTwiceWhatIsBilledAreRefusedWithAnOffset(t *testing.T) {
	for body, at := range map[string]string{
		`[]`: "byte 0", `{"model":"m"} x`: "byte 14",
		`{"model":"m","duration":4,"duration":5}`:         "byte 26",
		`{"model":"m","Duration":4}`:                      "byte 13",
		`{"model":"m","resolution":"a","RESOLUTION":"b"}`: "byte 30",
		`{"model":"m","Aspect_Ratio":"a"}`:                "byte 13",
		`{"model":"m","Frames":1}`:                        "byte 13",
		`{"model":"m","DRAFT":true}`:                      "byte 13",
		`{"model":"m","Generate_Audio":true}`:             "byte 13",
		`{"model":"m","Ratio":"1:1"}`:                     "byte 13",
		`{"parameters":{"duration":1,"duration":2}}`:      "byte 28",
		`{"parameters":{"Size":"a"}}`:                     "byte 15",
		`{"parameters":{"Audio":true}}`:                   "byte 15",
		`{"parameters":{"Ratio":"a"}}`:                    "byte 15",
		`{"input":{"Media":[]}}`:                          "byte 10",
		`{"input":{"media":[],"media":[]}}`:               "byte 21",
		`{"Prompt":"a"}`:                                  "byte 1",
		`{"Webhook_URL":"a"}`:                             "byte 1",
	} {
		if f := refused([]byte(body), operation.Facts{}, nil); f == nil || f.Code != fault.InvalidRequest || f.HTTPStatus() != 400 || !strings.Contains(f.Message, at+").") {
			t.Errorf("%s: %v, want %s", body, f, at)
		}
	}
	for _, body := range []string{
		`{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a","Text":"b"}]}`,
		`{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a","text":"b"}]}`,
		`{"model":"gamma-2-0-260128","content":[{"type":"image_url","image_url":{"url":"https://x.example/a.png","URL":"b"}}]}`,
		`{"model":"beta2.7-i2v","input":{"media":[{"type":"first_frame","TYPE":"reference_video","url":"https://x.example/a.png"}]}}`,
		`{"model":"beta2.7-i2v","input":{"media":[{"type":"first_frame","type":"reference_video","url":"https://x.example/a.png"}]}}`,
	} {
		if f := refused([]byte(body), operation.Facts{}, nil); f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, " of it).") {
			t.Errorf("%s: %v", body, f)
		}
	}
	// What is deeper passes as it was sent.
	deep := `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a","Duration":1,"Duration":2}]}`
	if f := refused([]byte(deep), operation.Facts{}, nil); f != nil {
		t.Error(f)
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	const t2v = `{"model":"beta2.6-t2v","input":{"prompt":"a"},`
	for members, param := range map[string]string{
		`"duration":5,"parameters":{"duration":5}}`:                         "",
		`"duration":5,"parameters":{"duration":6}}`:                         "parameters.duration",
		`"parameters":{"duration":10}}`:                                     "parameters.duration",
		`"resolution":"1080p","parameters":{"resolution":"1080P"}}`:         "",
		`"resolution":"1080p","parameters":{"resolution":"720P"}}`:          "parameters.resolution",
		`"resolution":"1080p","parameters":{"size":"1920*1080"}}`:           "",
		`"resolution":"720p","parameters":{"size":"1280*721"}}`:             "parameters.size",
		`"resolution":"720p","parameters":{"size":"640*360"}}`:              "parameters.size",
		`"aspect_ratio":"9:16","parameters":{"size":"720*1280"}}`:           "",
		`"aspect_ratio":"9:16","parameters":{"size":"1280*720"}}`:           "parameters.size",
		`"aspect_ratio":"9:16","parameters":{"ratio":"9:16"}}`:              "",
		`"aspect_ratio":"9:16","parameters":{"ratio":"1:1"}}`:               "parameters.ratio",
		`"parameters":{"ratio":"1:1","size":"1280*720"}}`:                   "parameters.size",
		`"parameters":{"ratio":"1:1","size":"960*960"}}`:                    "",
		`"aspect_ratio":"9:16","duration":null,"parameters":{"size":null}}`: "",
	} {
		f := refused([]byte(t2v+members), operation.Facts{}, nil)
		if param == "" && f != nil || param != "" && (f == nil || f.Param != param || f.Code != fault.InvalidRequest || f.HTTPStatus() != 400) {
			t.Errorf("%s: %v, want one about %q", members, f, param)
		}
	}
	for body, want := range map[string]bool{
		`{"model":"gamma-1-0-pro-250528","prompt":"a","frames":121,"duration":5}`:                           true,
		`{"model":"gamma-1-0-pro-250528","prompt":"a","frames":121,"duration":6}`:                           false,
		`{"model":"clip-9","duration":5,"parameters":{"duration":5,"resolution":"720P","size":"1280*720"}}`: true,
		`{"model":"clip-9","duration":5,"parameters":{"duration":6}}`:                                       false,
		`{"model":"clip-9","resolution":"1080p","parameters":{"size":"1280*720"}}`:                          false,
		`{"model":"clip-9","resolution":"1080p","parameters":{"resolution":"720p"}}`:                        false,
	} {
		if f := refused([]byte(body), operation.Facts{}, nil); (f == nil) != want || f != nil && f.Code != fault.InvalidRequest {
			t.Errorf("%s: %v", body, f)
		}
	}
}

func TestTheRulesOfOneModelOnly(t *testing.T) {
	reference := least("beta2.7-r2v").with(fields{"input": fields{"prompt": "a", "media": []any{fields{"type": "reference_video", "url": picture}}}})
	square := least("beta2.5-t2v-preview").with(fields{"resolution": "480p"})
	for _, c := range []struct {
		name string
		body fields
		code fault.Code
	}{
		{"ten seconds with a reference video", reference.with(fields{"duration": 10}), ""},
		{"eleven", reference.with(fields{"duration": 11}), durationOutOfRange},
		{"480p of 1:1", square.with(fields{"aspect_ratio": "1:1"}), ""},
		{"480p of 4:3 has no size", square.with(fields{"aspect_ratio": "4:3"}), notInEnum},
		{"a prompt of 1500 characters", least("beta2.6-t2v").with(fields{"input": fields{"prompt": strings.Repeat("ä", 1500)}}), ""},
		{"of 1501", least("beta2.6-t2v").with(fields{"input": fields{"prompt": strings.Repeat("ä", 1501)}}), promptTooLong},
	} {
		f := refused(c.body.json(t), operation.Facts{}, nil)
		if c.code == "" && f != nil || c.code != "" && (f == nil || f.Code != c.code) {
			t.Errorf("%s: %v, want %q", c.name, f, c.code)
		}
	}
}

// What else CheckURL refuses is in internal/webhook.
func TestAWebhookURLThatNoDeliveryCouldReachIsRefused(t *testing.T) {
	for text, want := range map[string]string{ // "strict", "private" or "never" allowed
		"https://hooks.example/x?a=b": "strict",
		"http://hooks.example/":       "private",
		"https://127.0.0.1/":          "private",
		"https://127.1/":              "never",
		"https:///x":                  "never",
		"":                            "never",
		"https://h.example/" + strings.Repeat("a", maxURL): "never",
	} {
		body := least("beta2.6-t2v").with(fields{"webhook_url": text}).json(t)
		strict, private := refused(body, operation.Facts{}, nil), refused(body, operation.Facts{AllowPrivate: true}, nil)
		if (strict == nil) != (want == "strict") || (private == nil) != (want != "never") {
			t.Errorf("%s: %v, with private addresses %v; want %s", safetext.Truncate(text, 50), strict, private, want)
		}
		if strict != nil && (strict.Code != urlInvalid || strict.Param != "webhook_url") {
			t.Errorf("%s: %+v", safetext.Truncate(text, 50), strict)
		}
	}
}

func TestATypedRequestObeysTheSameRules(t *testing.T) {
	seed := int64(0)
	typed := &video.Request{
		Model: "gamma-2-0-260128", Duration: 5, Seed: &seed, Wait: true,
		Content: []video.Block{{Type: "text", Text: "a boat"}, {Type: "image_url", ImageURL: &video.Link{URL: picture}, Role: "first_frame"}},
		Extra:   []byte(`{"x":1.0}`),
	}
	r, err := Encode(typed)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(&operation.Facts{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	sent, err := r.Outgoing(0).Body.Bytes()
	want := `{"model":"gamma-2-0-260128","duration":5,"content":[{"type":"text","text":"a boat"},{"type":"image_url","image_url":{"url":"` + picture + `"},"role":"first_frame"}],"seed":0,"x":1.0}`
	if err != nil || string(sent) != want {
		t.Errorf("sent %s, want %s", sent, want)
	}
	if len(r.Content) != 2 || r.Content[1].ImageURL.URL != picture || !r.Wait || *r.Seed != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := Encode(&video.Request{Model: "m", Extra: []byte(`{"model":"n"}`)}); err == nil {
		t.Error("a field that is there twice was taken")
	}
	bad, err := Encode(&video.Request{Model: "gamma-2-0-260128", Duration: 3, Prompt: "a"})
	if err != nil || !fault.Is(bad.Check(&operation.Facts{}, nil, nil), durationOutOfRange) {
		t.Error(err, bad.Check(&operation.Facts{}, nil, nil))
	}
}

func TestATaskStartsAsItsRequestSays(t *testing.T) {
	r := parse(t, `{"model":"gamma-2-0-260128","prompt":"a","seed":7,"execution_expires_after":3600,"webhook_url":"https://hooks.example/x","duration":5,"resolution":"720p"}`)
	b, err := r.Bound(nil)
	if err != nil {
		t.Fatal(err)
	}
	task := r.Task(b, noon)
	if task.State != video.Submitting || task.Family != video.FamilyGamma || task.Bound != b.Usage || string(task.Seed) != "7" ||
		!task.ExpiresAt.Equal(noon.Add(time.Hour)) || task.WebhookURL == "" || !task.CreatedAt.Equal(noon) {
		t.Errorf("%+v", task)
	}
	r = parse(t, `{"model":"beta2.6-t2v","input":{"prompt":"a"},"parameters":{"seed":8}}`)
	if task := r.Task(b, noon); string(task.Seed) != "8" || !task.ExpiresAt.Equal(noon.Add(48*time.Hour)) || task.Family != video.FamilyBeta {
		t.Errorf("%+v", task)
	}
	if a, b := r.Fingerprint("key_1"), r.Fingerprint("key_2"); a == b || a != r.Fingerprint("key_1") {
		t.Error("a fingerprint is that of key and request")
	}
}
