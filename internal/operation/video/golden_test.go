package video

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/video"
)

func TestTheFamiliesAreThese(t *testing.T) {
	var b bytes.Buffer
	for _, row := range Models() {
		if row.Family != video.FamilyBeta {
			fmt.Fprintf(&b, "%s %s, %d to %d s, audio %t draft %t continues %t videos %t sounds %t\n", strings.Join(row.IDs, " "),
				strings.Join(row.Resolutions, " "), row.Shortest, row.Longest, row.Sound, row.Draft, row.Continues, row.Videos, row.Sounds)
			continue
		}
		layout := map[bool]string{true: "size", false: "resolution"}[row.Size]
		if row.Ratio {
			layout += "+ratio"
		}
		lengths := fmt.Sprintf("%d to %d s", row.Shortest, row.Longest)
		if row.Durations != nil {
			lengths = fmt.Sprint(row.Durations, " s")
		}
		if row.LongestWithReference != 0 {
			lengths += fmt.Sprintf(", %d with a reference video", row.LongestWithReference)
		}
		resolutions := strings.Join(row.Resolutions, " ")
		if row.Priced {
			resolutions += " (1080p where it has a price)"
		}
		fmt.Fprintf(&b, "%s\n  input %s, prompt of %d, parameters %s, silent %t\n  %s; %s\n", strings.Join(row.IDs, " "),
			strings.Join(row.Needs, " "), row.Prompt, layout, row.Sound, lengths, resolutions)
	}
	for _, row := range blocks {
		fmt.Fprintf(&b, "block %-10s %s.%s role %v\n", row.kind, row.inner, row.leaf, row.roles)
	}
	for _, s := range sizes {
		fmt.Fprintf(&b, "size %-5s %-4s %s\n", s.resolution, s.ratio, s)
	}
	capabilitytest.Golden(t, *update, "families.golden", b.Bytes())
}

func TestTheStatesAndCodesAreThese(t *testing.T) {
	var b bytes.Buffer
	for _, word := range slices.Sorted(maps.Keys(words)) {
		fmt.Fprintf(&b, "word %-12s %s\n", word, words[word])
	}
	for _, s := range everyState {
		fmt.Fprintf(&b, "%-10s is shown as %-10s and becomes %v\n", s, PublicState(s), steps[s])
	}
	for _, c := range publicCodes {
		hidden := map[bool]string{true: "hidden"}[c.hidden]
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("code %-38s %-40s %s", c.vendor, c.code, hidden)))
	}
	capabilitytest.Golden(t, *update, "states.golden", b.Bytes())
}

var everyState = []video.State{video.Submitting, video.Unknown, video.Queued, video.Processing, video.Running, video.Succeeded, video.Failed, video.Cancelled, video.Expired}

// abbreviations are those of the golden table of rules.
var abbreviations = map[fault.Code]string{
	"": "·", invalidParameter: "IP", missingRequired: "MR", notInEnum: "NE", promptTooLong: "PL", urlInvalid: "UI",
	resolutionNotSupported: "RS", durationOutOfRange: "DR", contentEmpty: "CE", unsupportedRole: "UR", fault.InvalidRequest: "ir",
}

// TestEveryModelObeysEveryRule prints which code each model gives to each case.
func TestEveryModelObeysEveryRule(t *testing.T) {
	var b bytes.Buffer
	for _, code := range slices.Sorted(maps.Keys(abbreviations)) {
		fmt.Fprintf(&b, "%s  %s\n", abbreviations[code], cmp.Or(code, "accepted"))
	}
	models := everyModel()
	for i, id := range models {
		fmt.Fprintf(&b, "%2d %s\n", i+1, id)
	}
	fmt.Fprintf(&b, "\n%-52s", "")
	for i := range models {
		fmt.Fprintf(&b, "%3d", i+1)
	}
	facts := operation.Facts{Ratios: []string{"16:9", "adaptive"}, Priorities: []string{"low"}}
	every := price(t, map[string]string{
		"480p": "1", "720p": "1", "1080p": "1", "480p+audio": "1", "720p+audio": "1", "1080p+audio": "1", "720p+draft": "1",
	})
	for _, c := range cases() {
		b.WriteString("\n" + c.name + strings.Repeat(" ", max(52-len([]rune(c.name)), 0)))
		for _, id := range models {
			var code fault.Code
			if f := refused(c.body(id).json(t), facts, every); f != nil {
				code = f.Code
				if f.HTTPStatus() != 400 || f.Message == "" || f.Param == "" && code != fault.InvalidRequest {
					t.Errorf("%s, %s: %+v", id, c.name, f)
				}
			}
			short, ok := abbreviations[code]
			if !ok {
				t.Errorf("%s, %s: %q is no code of the table", id, c.name, code)
			}
			fmt.Fprintf(&b, "%3s", short)
		}
	}
	capabilitytest.Golden(t, *update, "rules.golden", append(b.Bytes(), '\n'))
}

// ruleCase is one row of the golden table.
type ruleCase struct {
	name string
	body func(model string) fields
}

// cases are the rules, each broken and kept.
func cases() []ruleCase {
	var list []ruleCase
	add := func(name string, body func(string) fields) { list = append(list, ruleCase{name, body}) }
	set := func(field string, values ...any) {
		for _, v := range values {
			add(field+" "+short(v), func(m string) fields { return least(m).with(fields{field: v}) })
		}
	}
	parameters := func(field string, values ...any) {
		for _, v := range values {
			add("parameters."+field+" "+short(v), func(m string) fields { return least(m).with(fields{"parameters": fields{field: v}}) })
		}
	}
	add("the least", least)
	add("no model", func(m string) fields { return least(m).with(fields{"model": nil}) })
	set("duration", 1, 2, 3, 4, 5, 10, 11, 15, 16, 5.5, "5")
	set("resolution", "480p", "720p", "1080p", "720P", "4k", 720)
	set("aspect_ratio", "9:16", "4:3", "21:9", 1)
	set("webhook_url", "https://hooks.example/x", "http://hooks.example/x", "x", 1)
	set("wait", true, "yes")
	set("execution_expires_after", 60, 3600, 259200, 259201, 604801, 0, "60")
	set("unknown_field", 1)
	set("content", []any{}, "x", []any{"x"})
	set("prompt", "a boat", 1)
	add("neither content nor prompt", func(m string) fields { return least(m).with(fields{"content": nil}) })
	add("a prompt alone", func(m string) fields { return least(m).with(fields{"content": nil, "prompt": "a boat"}) })
	for _, e := range contentCases {
		add("block "+e.name, func(m string) fields { return least(m).with(fields{"content": []any{e.block}}) })
	}
	set("generate_audio", true, false, 1)
	set("draft", true, false, 1)
	set("ratio", "16:9", "adaptive", "5:4", 1)
	set("priority", "low", "high", 1)
	set("seed", 0, 4294967295, 4294967296, -1, 1.5)
	set("frames", 121, 0, 362, "x")
	for _, name := range []string{"camera_fixed", "watermark", "return_last_frame"} {
		set(name, true, 1)
	}
	set("callback_url", "http://client.example:8080/x", "ftp://client.example/x", 1)
	set("safety_identifier", "u1", 1)
	set("input", "x", fields{}, fields{"prompt": strings.Repeat("a", 1501), "img_url": picture, "reference_urls": []string{picture}, "media": []any{fields{"type": "first_frame", "url": picture}}})
	for _, e := range inputCases {
		add("input."+e.field+" "+short(e.value), func(m string) fields {
			body := least(m)
			if input, ok := body["input"].(fields); ok {
				body["input"] = input.with(fields{e.field: e.value})
			}
			return body
		})
	}
	add("no input", func(m string) fields { return least(m).with(fields{"input": nil}) })
	set("parameters", "x", fields{})
	parameters("duration", 5, 6, "5")
	parameters("resolution", "720P", "720p", "1080P", 1)
	parameters("size", "1280*720", "960*960", "1920*1080", "large", 1)
	parameters("ratio", "9:16", "5:4", 1)
	for _, name := range []string{"audio", "prompt_extend", "watermark"} {
		parameters(name, true, 1)
	}
	parameters("shot_type", "multi", 1)
	parameters("seed", 7, -1)
	return list
}

// short is a value as the table shows it.
func short(v any) string {
	text := fmt.Sprintf("%#v", v)
	text = strings.NewReplacer("[]interface {}", "", "video.fields", "", `"`, "'", picture, "…").Replace(text)
	if runes := []rune(text); len(runes) > 30 {
		return string(runes[:30]) + "…"
	}
	return text
}

var contentCases = []struct {
	name  string
	block fields
}{
	{"text", fields{"type": "text", "text": "a boat"}},
	{"text without text", fields{"type": "text"}},
	{"text that is empty", fields{"type": "text", "text": ""}},
	{"text that is a number", fields{"type": "text", "text": 1}},
	{"text with a role", fields{"type": "text", "text": "a boat", "role": "first_frame"}},
	{"without type", fields{"text": "a boat"}},
	{"of another type", fields{"type": "model_url"}},
	{"image", fields{"type": "image_url", "image_url": fields{"url": picture}}},
	{"image first_frame", fields{"type": "image_url", "image_url": fields{"url": picture}, "role": "first_frame"}},
	{"image last_frame", fields{"type": "image_url", "image_url": fields{"url": picture}, "role": "last_frame"}},
	{"image reference_image", fields{"type": "image_url", "image_url": fields{"url": picture}, "role": "reference_image"}},
	{"image reference_video", fields{"type": "image_url", "image_url": fields{"url": picture}, "role": "reference_video"}},
	{"image whose role is a number", fields{"type": "image_url", "image_url": fields{"url": picture}, "role": 1}},
	{"image without image_url", fields{"type": "image_url"}},
	{"image whose image_url is a string", fields{"type": "image_url", "image_url": picture}},
	{"image without url", fields{"type": "image_url", "image_url": fields{}}},
	{"image whose url is a number", fields{"type": "image_url", "image_url": fields{"url": 1}}},
	{"image ftp", fields{"type": "image_url", "image_url": fields{"url": "ftp://files.example/a.png"}}},
	{"video", fields{"type": "video_url", "video_url": fields{"url": picture}, "role": "reference_video"}},
	{"video first_frame", fields{"type": "video_url", "video_url": fields{"url": picture}, "role": "first_frame"}},
	{"video without url", fields{"type": "video_url", "video_url": fields{}}},
	{"audio", fields{"type": "audio_url", "audio_url": fields{"url": picture}}},
	{"audio with a role", fields{"type": "audio_url", "audio_url": fields{"url": picture}, "role": "first_frame"}},
	{"audio malformed", fields{"type": "audio_url", "audio_url": fields{"url": "https://"}}},
	{"draft_task", fields{"type": "draft_task", "draft_task": fields{"task_id": "vid_1"}}},
	{"draft_task with a role", fields{"type": "draft_task", "draft_task": fields{"task_id": "vid_1"}, "role": "first_frame"}},
	{"draft_task without task_id", fields{"type": "draft_task", "draft_task": fields{}}},
	{"draft_task as the upstream spells it", fields{"type": "draft_task", "draft_task": fields{"id": "cgt-1"}}},
	{"draft_task whose task_id is a number", fields{"type": "draft_task", "draft_task": fields{"task_id": 1}}},
}

var inputCases = []struct {
	field string
	value any
}{
	{"prompt", nil}, {"prompt", ""}, {"prompt", 1}, {"prompt", strings.Repeat("ä", 5001)},
	{"media", nil}, {"media", "x"}, {"media", []any{}}, {"media", []any{"x"}},
	{"media", []any{fields{"url": picture}}}, {"media", []any{fields{"type": "last_frame", "url": picture}}},
	{"media", []any{fields{"type": "x", "url": picture}}}, {"media", []any{fields{"type": "first_frame"}}},
	{"media", []any{fields{"type": "first_frame", "url": "x"}}},
	{"img_url", nil}, {"img_url", 1}, {"img_url", "x"},
	{"reference_urls", nil}, {"reference_urls", picture}, {"reference_urls", []any{}}, {"reference_urls", []any{"x"}}, {"reference_urls", []any{1}},
	{"audio_url", "x"}, {"audio_url", picture},
}
