package openapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/internal/openapitest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// agreements are good bodies and values of their fields, good and bad ones.
var agreements = []struct {
	path, body string
	fields     map[string][]string
}{
	{"/v1/chat/completions", `{"model":"delta-k3","messages":[{"role":"user","content":"hi"}]}`, map[string][]string{
		"model":             {`""`, `7`, `null`},
		"messages":          {`[]`, `null`, `"hi"`, `[{"role":"user"}]`, `[{"role":"robot","content":"hi"}]`, `[{"role":"user","content":[]}]`, `[{"role":"assistant"}]`, `[{"role":"assistant","content":null,"refusal":"no"}]`, `[{"role":"assistant","content":[{"type":"thinking","thinking":[]}]}]`, `[{"role":"user","content":[{"type":"thinking","thinking":[]}]}]`, `[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}]`, `[{"role":"system","tools":[]}]`, `[{"role":"system"}]`, `[{"role":"user","content":"hi","tool_call_id":"x"}]`, `[{"role":"tool","content":"hi","tool_call_id":"x"}]`, `[{"role":"developer","content":"hi","name":"me"}]`, `[{"role":"user","content":[{"type":"text","text":7}]}]`, `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://x.example/a.png"}}]}]`, `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://x.example/a.png"}}]}]`, `[{"role":"user","content":[{"type":"smell","smell":"rose"}]}]`},
		"temperature":       {`0`, `2`, `1.5`, `-0.1`, `2.1`, `"1"`, `null`},
		"top_p":             {`0`, `1`, `1.1`, `-1`},
		"max_tokens":        {`1`, `0`, `-1`, `2147483647`, `2147483648`, `"5"`, `null`},
		"n":                 {`1`, `0`, `129`},
		"stream":            {`false`, `"yes"`, `null`},
		"stop":              {`"a"`, `["a","b","c","d"]`, `["a","b","c","d","e"]`, `[1]`, `7`},
		"presence_penalty":  {`-2`, `2`, `2.5`},
		"frequency_penalty": {`-2`, `2`, `-2.5`},
		"tools":             {`[]`, `[{"type":"function","function":{"name":"f"}}]`, `[{"type":"function"}]`, `[{"type":"function","function":{"name":""}}]`, `[{"type":"own","x":1}]`, `[{}]`, `{}`},
		"response_format":   {`{"type":"json_object"}`, `{"type":"json_schema"}`, `{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}}`, `{}`, `"json"`},
		"user":              {`"me"`, `7`},
		"unknown":           {`{"a":1}`},
	}},
	{"/v1/messages", `{"model":"delta-k3","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, map[string][]string{
		"max_tokens":     {`0`, `1`, `null`, `"1"`},
		"messages":       {`[]`, `[{"role":"robot","content":"hi"}]`, `[{"role":"user","content":[{"type":"text","text":"a"}]}]`, `[{"role":"user","content":[{"type":"text"}]}]`, `[{"role":"user","content":[{"type":"image","source":{"type":"carrier"}}]}]`},
		"system":         {`"be brief"`, `[{"type":"text","text":"be brief"}]`, `7`, `[{"type":"image"}]`},
		"temperature":    {`0`, `1`, `1.1`},
		"top_p":          {`0.5`, `2`},
		"top_k":          {`5`, `-1`},
		"stop_sequences": {`["a"]`, `"a"`, `[1]`},
		"tools":          {`[{"name":"f","input_schema":{"type":"object"}}]`, `[{"input_schema":{}}]`, `7`},
		"tool_choice":    {`{"type":"auto"}`, `{"type":"perhaps"}`, `"auto"`},
		"thinking":       {`{"type":"disabled"}`, `{"type":"perhaps"}`},
		"metadata":       {`{"user_id":"u"}`, `{"user_id":7}`},
	}},
	{"/v1/responses", `{"model":"delta-k3","input":"hi"}`, map[string][]string{
		"model":                {`""`, `7`, `null`},
		"input":                {`""`, `[]`, `null`, `7`, `[{"role":"user","content":"hi"}]`, `[{"role":"robot","content":"hi"}]`, `[{"role":"user"}]`, `[{"type":"message","role":"developer","content":[{"type":"input_text","text":"a"}]},{"role":"user","content":"b"}]`, `[{"role":"user","content":[{"type":"input_text"}]}]`, `[{"role":"user","content":[{"type":"input_text","text":7}]}]`, `[{"role":"user","content":"a"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}]`, `[{"type":"function_call","name":"f","arguments":"{}"}]`, `[{"type":"function_call_output","output":"x"}]`, `[{"type":"custom_tool_call","call_id":"c","name":"f"}]`, `[{"role":"user","content":"a"},{"type":"reasoning","summary":[]},{"role":"assistant","content":[{"type":"output_text","text":"b"}]},{"role":"user","content":"c"}]`},
		"instructions":         {`"be brief"`, `null`, `7`},
		"max_output_tokens":    {`1`, `0`, `2147483647`, `2147483648`, `"5"`, `null`},
		"stream":               {`false`, `"yes"`, `null`},
		"stream_options":       {`{"include_obfuscation":false}`, `7`},
		"temperature":          {`0`, `2`, `2.1`, `-0.1`, `"1"`, `null`},
		"top_p":                {`0`, `1`, `1.1`},
		"top_logprobs":         {`0`, `20`, `21`},
		"tools":                {`[]`, `{}`, `[{}]`, `[{"type":"function","name":"f"}]`, `[{"type":"function"}]`, `[{"type":"function","name":"f","parameters":"x"}]`, `[{"type":"custom","name":"f"}]`, `[{"type":"custom","name":""}]`, `[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"f"}]}]`, `[{"type":"namespace","tools":[]}]`, `[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"o","tools":[]}]}]`, `[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]`, `[{"type":"web_search"}]`},
		"tool_choice":          {`"auto"`, `"perhaps"`, `7`, `{}`},
		"parallel_tool_calls":  {`true`, `1`},
		"reasoning":            {`{"effort":"max"}`, `{"effort":7}`, `{"summary":"auto"}`, `"high"`},
		"text":                 {`{"format":{"type":"text"}}`, `{"format":{"type":"json_schema"}}`, `{"format":{"type":"json_schema","name":"a","schema":{"type":"object"}}}`, `{"format":{"type":"poem"}}`, `{"verbosity":"low"}`, `{"verbosity":"some"}`, `"x"`},
		"include":              {`["reasoning.encrypted_content"]`, `"x"`, `[7]`},
		"store":                {`true`, `"no"`, `null`},
		"metadata":             {`{"a":"b"}`, `{"a":7}`, `"x"`},
		"prompt_cache_key":     {`"k"`, `7`},
		"user":                 {`"me"`, `7`},
		"truncation":           {`"auto"`, `"some"`, `null`},
		"max_tool_calls":       {`1`, `0`},
		"background":           {`false`, `true`, `null`},
		"conversation":         {`"conv_1"`, `null`},
		"unknown":              {`{"a":1}`},
		"previous_response_id": {`null`, `7`},
	}},
	{"/v1/images/generations", `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"a"}]}]}}`, map[string][]string{
		"input":      {`null`, `{}`, `{"messages":[]}`, `{"messages":[{"role":"assistant","content":[{"text":"a"}]}]}`, `{"messages":[{"role":"user","content":[]}]}`, `{"messages":[{"role":"user","content":[{"text":"a","image":null}]}]}`, `{"messages":[{"role":"user","content":[{}]}]}`},
		"parameters": {`{}`, `null`, `{"size":"1024*1024"}`, `{"size":"1x1"}`, `{"n":1}`, `{"n":2}`, `{"seed":5}`, `{"seed":"5"}`, `{"watermark":true}`, `{"watermark":1}`, `{"prompt_extend":false}`, `{"negative_prompt":"b"}`, `7`},
		"stream":     {`false`, `true`},
	}},
	{"/v1/images/generations", `{"model":"imagegen-2","prompt":"a"}`, map[string][]string{
		"prompt":             {`""`, `null`, `7`},
		"n":                  {`1`, `10`, `11`, `0`},
		"size":               {`"auto"`, `"512x512"`, `"big"`},
		"quality":            {`"hd"`, `"ultra"`},
		"background":         {`"opaque"`, `"pink"`},
		"output_format":      {`"webp"`, `"bmp"`},
		"output_compression": {`0`, `100`, `101`},
		"response_format":    {`"b64_json"`, `"file"`},
		"partial_images":     {`3`, `4`},
		"user":               {`"me"`, `7`},
	}},
	{"/v1/embeddings", `{"model":"text-embedding-3-small","input":"a"}`, map[string][]string{
		"input":           {`""`, `[]`, `[""]`, `["a","b"]`, `[1,2]`, `[[1],[2]]`, `[[]]`, `7`, `["a",1]`, `null`},
		"encoding_format": {`"float"`, `"base64"`, `"hex"`, `null`},
		"dimensions":      {`1`, `0`, `"8"`},
		"user":            {`"me"`, `7`},
	}},
	{"/v1/rerank", `{"model":"rerank-v3.5","query":"q","documents":["a","b"]}`, map[string][]string{
		"model":              {`""`, `7`, `null`},
		"query":              {`""`, `7`, `null`},
		"documents":          {`null`, `[]`, `[""]`, `"a"`, `[7]`, `["a",{"text":"b","x":1}]`},
		"texts":              {`["a"]`, `null`},
		"top_n":              {`1`, `3`, `0`, `"1"`, `null`},
		"top_k":              {`1`, `0`, `null`},
		"return_documents":   {`true`, `1`, `null`},
		"return_text":        {`true`, `"yes"`},
		"rank_fields":        {`[]`, `["text"]`, `[7]`, `"text"`},
		"max_tokens_per_doc": {`1`, `0`},
		"max_chunks_per_doc": {`1`, `"1"`},
		"truncation":         {`false`},
	}},
	{"/rerank", `{"model":"bge-reranker-v2-m3","query":"q","texts":["a"]}`, map[string][]string{
		"texts":       {`null`, `[]`, `[""]`, `[7]`},
		"return_text": {`true`, `1`},
		"raw_scores":  {`false`},
	}},
	{"/v2/rerank", `{"model":"m","query":"q","documents":["a"]}`, map[string][]string{"documents": {`[]`}}},
	{"/v1/audio/speech", `{"model":"alpha3-tts-flash","input":"a","response_format":"wav"}`, map[string][]string{
		"input":           {`""`, `" "`, `7`, `null`},
		"response_format": {`"wav"`, `"tape"`},
		"stream_format":   {`"audio"`, `"sse"`, `null`},
		"speed":           {`1.5`, `"fast"`},
		"voice":           {`"Cherry"`, `7`},
	}},
	{"/v1/videos/generations", `{"model":"beta2.7-t2v","input":{"prompt":"a boat"}}`, map[string][]string{
		"model":                   {`""`, `7`, `null`, `"beta2.6-t2v"`, `"beta2.7-r2v"`, `"beta2.6-i2v"`, `"gamma-2.5"`, `"some-video"`},
		"duration":                {`2`, `15`, `1`, `16`, `5.5`, `"5"`, `null`},
		"resolution":              {`"720p"`, `"720P"`, `"4k"`, `720`, `null`},
		"aspect_ratio":            {`"9:16"`, `"4:3"`, `"21:9"`, `1`, `null`},
		"input":                   {`null`, `"x"`, `{}`, `{"prompt":""}`, `{"prompt":" "}`, `{"prompt":1}`, `{"prompt":"a","media":7}`, `{"prompt":"a","audio_url":"ftp://x.example/a"}`},
		"parameters":              {`{}`, `null`, `"x"`, `{"duration":5}`, `{"duration":"5"}`, `{"resolution":"720P"}`, `{"resolution":720}`, `{"ratio":"16:9"}`, `{"ratio":"5:4"}`, `{"audio":1}`, `{"shot_type":"multi"}`, `{"shot_type":1}`, `{"prompt_extend":true}`, `{"prompt_extend":1}`, `{"watermark":false}`, `{"watermark":0}`, `{"seed":4294967295}`, `{"seed":4294967296}`, `{"unknown":1}`},
		"webhook_url":             {`"https://hooks.example/x"`, `"ftp://hooks.example/x"`, `"x"`, `7`, `null`},
		"wait":                    {`false`, `"yes"`, `null`},
		"execution_expires_after": {`1`, `604800`, `0`, `604801`, `"60"`, `null`},
		"unknown":                 {`{"a":1}`},
	}},
	{"/v1/videos/generations", `{"model":"beta2.6-t2v","input":{"prompt":"a boat"}}`, map[string][]string{
		"parameters": {`{"size":"1280*720"}`, `{"size":"720p"}`, `{"size":"0*0"}`, `{"size":null}`, `{"audio":true}`, `{"shot_type":"single"}`},
	}},
	{"/v1/videos/generations", `{"model":"beta2.7-i2v","input":{"media":[{"type":"first_frame","url":"https://x.example/a.png"}]}}`, map[string][]string{
		"input": {`{"media":null}`, `{"media":"x"}`, `{"media":[]}`, `{"media":["x"]}`, `{"media":[{"url":"https://x.example/a"}]}`, `{"media":[{"type":"x","url":"https://x.example/a"}]}`, `{"media":[{"type":"first_frame"}]}`, `{"media":[{"type":"reference_image","url":"http://x.example/a"},{"type":"driving_audio","url":"https://x.example/b"}]}`, `{"prompt":"a","media":[{"type":"last_frame","url":"ftp://x.example/a"}]}`},
	}},
	{"/v1/videos/generations", `{"model":"beta2.6-i2v","input":{"img_url":"https://x.example/a.png"}}`, map[string][]string{
		"input": {`{"prompt":"a"}`, `{"img_url":""}`, `{"img_url":7}`, `{"img_url":"https://x.example/a","audio_url":"https://x.example/b"}`, `{"img_url":"https://x.example/a","audio_url":"x"}`, `{"img_url":"https://x.example/a","audio_url":null}`},
	}},
	{"/v1/videos/generations", `{"model":"beta2.6-r2v","input":{"prompt":"a","reference_urls":["https://x.example/a"]}}`, map[string][]string{
		"input": {`{"prompt":"a"}`, `{"prompt":"a","reference_urls":[]}`, `{"prompt":"a","reference_urls":"https://x.example/a"}`, `{"prompt":"a","reference_urls":[7]}`, `{"prompt":"a","reference_urls":["x"]}`, `{"reference_urls":["https://x.example/a"]}`},
	}},
	{"/v1/videos/generations", `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a boat"}]}`, map[string][]string{
		"content": {
			`null`, `[]`, `"x"`, `["x"]`, `[{"text":"a"}]`, `[{"type":"smell"}]`, `[{"type":"text"}]`, `[{"type":"text","text":" "}]`, `[{"type":"text","text":7}]`, `[{"type":"text","text":"a","role":"first_frame"}]`, `[{"type":"text","text":"a","role":null}]`,
			`[{"type":"image_url","image_url":{"url":"https://x.example/a"}}]`, `[{"type":"image_url","image_url":{"url":"https://x.example/a"},"role":"last_frame"}]`, `[{"type":"image_url","image_url":{"url":"https://x.example/a"},"role":"reference_video"}]`, `[{"type":"image_url","image_url":{"url":"https://x.example/a"},"role":7}]`, `[{"type":"image_url"}]`, `[{"type":"image_url","image_url":"https://x.example/a"}]`, `[{"type":"image_url","image_url":{}}]`, `[{"type":"image_url","image_url":{"url":"x"}}]`,
			`[{"type":"video_url","video_url":{"url":"https://x.example/a"},"role":"reference_video"}]`, `[{"type":"video_url","video_url":{"url":"https://x.example/a"},"role":"first_frame"}]`, `[{"type":"audio_url","audio_url":{"url":"https://x.example/a"}}]`, `[{"type":"audio_url","audio_url":{"url":7}}]`,
		},
		"prompt":            {`"a"`, `""`, `7`, `null`},
		"duration":          {`4`, `15`, `3`, `16`, `null`},
		"resolution":        {`"480p"`, `"1080p"`, `"2k"`, `7`, `null`},
		"ratio":             {`"adaptive"`, `7`, `null`},
		"generate_audio":    {`true`, `1`, `null`},
		"draft":             {`false`, `1`, `null`},
		"seed":              {`0`, `4294967295`, `-1`, `4294967296`, `1.5`, `null`},
		"camera_fixed":      {`true`, `1`},
		"watermark":         {`true`, `1`},
		"return_last_frame": {`true`, `1`},
		"frames":            {`1`, `361`, `0`, `362`, `"x"`, `null`},
		"callback_url":      {`"http://client.example:8080/x"`, `"ftp://client.example/x"`, `7`, `null`},
		"safety_identifier": {`"u1"`, `7`},
		"priority":          {`"high"`, `7`},

		"execution_expires_after": {`3600`, `259200`, `3599`, `259201`, `"3600"`, `null`},
		"unknown":                 {`[1]`},
	}},
	{"/v1/videos/generations", `{"model":"gamma-1-5-pro-251215","prompt":"a boat"}`, map[string][]string{
		"content": {`[]`, `null`, `[{"type":"text","text":""}]`, `[{"type":"draft_task","draft_task":{}}]`, `[{"type":"draft_task","draft_task":{"task_id":7}}]`, `[{"type":"draft_task","draft_task":{"task_id":""}}]`},
		"draft":   {`true`},
	}},
	{"/v1/videos/generations", `{"model":"house-video","content":[{"type":"text","text":"a boat"}]}`, map[string][]string{
		"duration":       {`1`, `3600`, `0`, `3601`, `"5"`, `null`},
		"frames":         {`1`, `86401`, `0`, `86402`},
		"resolution":     {`"8k"`, `7`},
		"generate_audio": {`true`, `1`},
		"draft":          {`true`, `1`},
		"prompt":         {`7`},
		"parameters":     {`"x"`, `{"anything":1}`},
	}},
}

func TestTheHandlerRefusesWhatTheDocumentDoesNotAllow(t *testing.T) {
	spec, err := openapitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{}),
		Video:    gateway.VideoOptions{DuplicateWindow: -1}, // some of the bodies are the same
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	h := server.New(g, server.Options{})
	for _, a := range agreements {
		for field, values := range a.fields {
			for _, value := range values {
				var body map[string]json.RawMessage
				if err := json.Unmarshal([]byte(a.body), &body); err != nil {
					t.Fatal(err)
				}
				body[field] = json.RawMessage(value)
				data, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				r := httptest.NewRequest(http.MethodPost, a.path, strings.NewReader(string(data)))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				wrong := spec.Request(r, data)
				passed := w.Code/100 == 2 || strings.Contains(w.Body.String(), "The simulated vendor")
				if refused := w.Code == http.StatusBadRequest && !passed; refused == passed || refused != (wrong != nil) {
					t.Errorf("%s %s: answered %d %.200s; the document says %v", a.path, data, w.Code, w.Body, wrong)
				}
			}
		}
	}
}
