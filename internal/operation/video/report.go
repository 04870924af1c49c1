package video

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Report is what an upstream says of a task, in either vendor's form.
type Report struct {
	UpstreamID string      // empty if the answer does not say
	Word       string      // the upstream's own word of its state; empty if it says none
	State      video.State // what the word means
	// Answer is the public form. It has every field except the gateway's own, content as an
	// array of objects, and usage as an object.
	Answer  jsontext.Value
	Video   bool           // content has the address of a video
	Failure *video.Failure // of a task that failed, or expired at the upstream; else nil
}

// MaxAnswer is the longest answer about a task, in bytes: it is kept.
const MaxAnswer = 1 << 20

// ReadSubmission reads an upstream's 200 answer to a submission, which must tell
// the task's id; otherwise it fails with fault.BadGateway. Where the upstream
// says in it that it refuses the task, the error is that refusal, and the upstream.Failure in
// it is Refused. The Report does not refer to data.
func ReadSubmission(data []byte) (Report, error) {
	r, refused, err := readReport(data)
	var f *upstream.Failure
	switch {
	case errors.As(err, &f):
		f.Refused = refused // it was made for this answer
		return r, err
	case r.UpstreamID == "":
		return r, upstream.BadAnswer("The upstream's answer names no task.", errors.New("no task id"))
	}
	return r, nil
}

// ReadPoll reads an upstream's 200 answer to a poll of the task. The answer must tell the
// task's state and be about no other task. Otherwise ReadPoll fails with fault.BadGateway,
// which decides nothing about the task. The Report does not refer to data.
func ReadPoll(t *video.Task, data []byte) (Report, error) {
	r, refused, err := readReport(data)
	switch {
	case refused && upstream.CallersFault(fault.From(err).HTTPStatus()): // a poll is no request of the caller's
		return r, upstream.BadAnswer("The upstream reported an error.", err)
	case err != nil:
		return r, err
	case r.Word == "":
		return r, upstream.BadAnswer("The upstream's answer tells no state.", errors.New("no state of the task"))
	case r.UpstreamID != "" && t.UpstreamID != "" && r.UpstreamID != t.UpstreamID:
		return r, upstream.BadAnswer("The upstream's answer is about another task.", errors.New("the answer has another task's id"))
	}
	return r, nil
}

// readReport reads either vendor's form. refused says that the answer is an
// error of the upstream's.
func readReport(data []byte) (r Report, refused bool, err error) {
	if len(data) > MaxAnswer {
		return r, false, upstream.BadAnswer("The upstream's answer is too long.", errors.New("an answer above 1 MiB"))
	}
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return r, false, upstream.BadAnswer("The upstream's answer is not one JSON object.", err)
	}
	output, err := rawjson.Index(o.Raw("output"), nil, nil)
	nested := err == nil && (output.Raw("task_id") != nil || output.Raw("task_status") != nil)
	switch stateless := rawjson.IsNull(o.Raw("status")); {
	case nested:
	case stateless && !rawjson.IsNull(o.Raw("error")):
		return r, true, answer.ErrorFrame(o.Raw("error"))
	case stateless && !rawjson.IsNull(o.Raw("code")):
		return r, true, answer.ErrorFrame(data)
	}
	r.read(&o, &output, nested)
	return r, false, nil
}

// gatewayMembers are the members of a record that the gateway itself sets.
var gatewayMembers = []string{"id", "object", "model", "status", "created_at", "updated_at", "expires_at", "error"}

// read reads the form whose members are the task's own. With nested it reads the form with the
// task in `output`: its record has content and usage and nothing else of the upstream's.
func (r *Report) read(o, output *rawjson.Object, nested bool) {
	task, failure, id, state := output, *output, "task_id", "task_status"
	kept, _ := rawjson.Index([]byte("{}"), nil, nil) // which is a JSON object
	if !nested {
		task, kept, id, state = o, *o, "id", "status"
		var err error
		if failure, err = rawjson.Index(o.Raw("error"), nil, nil); err != nil {
			failure, _ = rawjson.Index(o.Raw("failure_reason"), nil, nil) // an empty object tells nothing
		}
	}
	r.UpstreamID, _ = rawjson.String(task.Raw(id))
	r.readState(task.Raw(state))
	r.readFailure(failure.Raw("code"), failure.Raw("message"))
	edits := make([]rawjson.Edit, 0, len(gatewayMembers)+2)
	for _, name := range gatewayMembers {
		edits = append(edits, rawjson.Delete(name))
	}
	edits = append(edits, // which delete the member where there is no value
		rawjson.Edit{Name: "content", Value: r.readContent(task, nested)},
		rawjson.Edit{Name: "usage", Value: object(o.Raw("usage"))})
	if answer := kept.Apply(nil, edits...); len(bytes.TrimSpace(answer)) > len("{}") {
		r.Answer = answer
	}
}

// readState sets Word and State by the upstream's word.
func (r *Report) readState(raw []byte) {
	const longest = 64
	text, _ := rawjson.String(raw)
	if text != "" {
		r.Word = safetext.Truncate(text, longest)
		r.State, _ = stateOf(text)
	}
}

// readFailure sets the Failure of a task that failed or expired.
func (r *Report) readFailure(code, message []byte) {
	switch {
	case r.State == video.Failed, r.State == video.Expired && !rawjson.IsNull(code):
		r.Failure = failureOf(code, message)
	case r.State == video.Expired:
		r.Failure = expiryFailure(video.Running)
	}
}

// readContent is content as an array of objects; nil if there is none. The nested
// form has one link at most.
func (r *Report) readContent(task *rawjson.Object, nested bool) []byte {
	raw, url := task.Raw("content"), task.Raw("video_url")
	link, _ := rawjson.String(url)
	var items [][]byte
	switch {
	case nested && link == "":
	case nested, rawjson.IsNull(raw) && !rawjson.IsNull(url):
		items = append(items, slices.Concat([]byte(`{"video_url":`), url, []byte(`}`)))
	case len(raw) > 0 && raw[0] == '{':
		items = append(items, raw)
	default:
		rawjson.Each(raw, func(_ int, at rawjson.Span) {
			if e := at.Of(raw); e[0] == '{' {
				items = append(items, e)
			}
		})
	}
	for _, item := range items {
		if entry, err := rawjson.Index(item, nil, nil); err == nil {
			link, _ := rawjson.String(entry.Raw("video_url"))
			r.Video = r.Video || link != ""
		}
	}
	if len(items) == 0 {
		return nil
	}
	return slices.Concat([]byte("["), bytes.Join(items, []byte(",")), []byte("]"))
}

// object returns a JSON object, also one that came as a JSON string; nil for anything else.
func object(raw []byte) []byte {
	if text, ok := rawjson.String(raw); ok {
		raw = []byte(text)
	}
	if len(raw) == 0 {
		return nil
	}
	if _, err := rawjson.Index(raw, nil, nil); err != nil {
		return nil
	}
	return bytes.TrimSpace(raw)
}

// publicCode is a row of the table from vendors' codes to those of the public
// record.
type publicCode struct {
	vendor string // the code, or, with a "*" at its end, how it begins
	code   string
	hidden bool // it concerns the operator alone: the caller does not get the text
}

// publicCodes is the table: the first row that fits counts, and a code that has
// none is kept.
var publicCodes = []publicCode{
	{vendor: "InvalidParameter.DataInspection", code: "InvalidParameter.DataInspectionFailed"},
	{vendor: "InvalidURL*", code: "InvalidParameter.UrlNotAccessible"},
	{vendor: "InvalidFile.Duration*", code: "InvalidParameter.VideoDurationTooLong"},
	{vendor: "InvalidFile*", code: string(invalidParameter)},
	{vendor: "MissingParameter*", code: string(missingRequired)},
	{vendor: "Throttling*", code: "Throttling"},
	{vendor: "InternalError*", code: "InternalError"},
	{vendor: "InputTextSensitiveContentDetected*", code: "InputTextSensitiveContentDetected"},
	{vendor: "InputImageSensitiveContentDetected*", code: "InputImageSensitiveContentDetected"},
	{vendor: "InputVideoSensitiveContentDetected*", code: "InputVideoSensitiveContentDetected"},
	{vendor: "InputAudioSensitiveContentDetected*", code: "InputAudioSensitiveContentDetected"},
	{vendor: "RateLimitExceeded*", code: string(fault.UpstreamRateLimit)},
	{vendor: "ModelAccountRpmRateLimitExceeded", code: string(fault.UpstreamRateLimit)},
	{vendor: "AccountRateLimitExceeded", code: string(fault.UpstreamRateLimit)},
	{vendor: "RequestBurstTooFast", code: string(fault.UpstreamRateLimit)},
	{vendor: "InflightBatchsizeExceeded", code: string(fault.UpstreamRateLimit)},
	{vendor: "ServerOverloaded", code: string(fault.ServiceUnavailable)},
	{vendor: "InternalServiceError", code: string(fault.InternalServerError)},
	{vendor: "InvalidApiKey*", code: string(fault.NoChannel), hidden: true},
	{vendor: "Arrearage*", code: string(fault.NoChannel), hidden: true},
	{vendor: "AccessDenied*", code: string(fault.NoChannel), hidden: true},
	{vendor: "AuthenticationError*", code: string(fault.NoChannel), hidden: true},
	{vendor: "AccountOverdueError*", code: string(fault.NoChannel), hidden: true},
	{vendor: "OperationDenied*", code: string(fault.NoChannel), hidden: true},
	{vendor: "QuotaExceeded*", code: string(fault.NoChannel), hidden: true},
	{vendor: "SetLimitExceeded*", code: string(fault.NoChannel), hidden: true},
}

// The messages of a failure that the upstream does not explain, and of one that
// concerns the operator alone.
const (
	noReason     = "The upstream did not say why the video failed."
	hiddenReason = "No upstream channel could make the video. Try again later."
)

// failureOf is the public form of the failure of a task. Only the owner of the
// task gets the vendor's text.
func failureOf(code, message []byte) *video.Failure {
	const longest = 1000 // bytes of a text
	f := &video.Failure{}
	f.Code, _ = rawjson.String(code)
	f.Message, _ = rawjson.String(message)
	f.Message = safetext.Truncate(f.Message, longest)
	for _, row := range publicCodes {
		prefix, open := strings.CutSuffix(row.vendor, "*")
		if f.Code != prefix && !(open && strings.HasPrefix(f.Code, prefix)) {
			continue
		}
		f.Code = row.code
		if row.hidden {
			f.Message = hiddenReason
		}
		break
	}
	if !safetext.IsCode(f.Code) {
		f.Code = string(fault.InternalServerError)
	}
	if f.Message == "" {
		f.Message = noReason
	}
	return f
}
