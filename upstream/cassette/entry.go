package cassette

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// entry is a line: a request, and its answer or its error.
type entry struct {
	// Of the first line alone.
	Version int    `json:"cassette,omitzero"`
	Vendor  string `json:"vendor,omitzero"` // see upstream.Vendored

	Op      upstream.Op    `json:"op,omitzero"`
	Model   string         `json:"model,omitzero"`
	Stream  bool           `json:"stream,omitzero"`
	Task    string         `json:"task,omitzero"`    // of a poll
	Request jsontext.Value `json:"request,omitzero"` // canonical

	Status      int      `json:"status,omitzero"`
	ContentType string   `json:"content_type,omitzero"`
	Dropped     []string `json:"dropped,omitzero"`
	// One of these has the body, byte for byte.
	JSON   jsontext.Value `json:"json,omitzero"`   // a document on one line
	Events []string       `json:"events,omitzero"` // server-sent events, each with its blank line
	Text   string         `json:"text,omitzero"`   // any other text
	Bytes  []byte         `json:"base64,omitzero"` // any other body
	Pace   []int64        `json:"pace,omitzero"`   // milliseconds before each event
	Break  *problem       `json:"break,omitzero"`  // in which the body ended
	Error  *problem       `json:"error,omitzero"`  // in the place of an answer

	leaves map[string]string // of the request
	pieces [][]byte          // of the body
	played bool
}

// problem is an error.
type problem struct {
	Code       fault.Code `json:"code,omitzero"`
	Message    string     `json:"message"`
	Param      string     `json:"param,omitzero"`
	HTTPStatus int        `json:"status,omitzero"`
	RetryAfter int64      `json:"retry_after_ms,omitzero"`
	Body       string     `json:"body,omitzero"` // the vendor's own
	Failure    *failure   `json:"failure,omitzero"`
}

// failure is an upstream.Failure without its key.
type failure struct {
	Status    int    `json:"status,omitzero"`
	Sent      bool   `json:"sent,omitzero"`
	Unasked   bool   `json:"unasked,omitzero"`
	Refused   bool   `json:"refused,omitzero"`
	Stated    bool   `json:"stated,omitzero"`
	Fatal     bool   `json:"fatal,omitzero"`
	Ambiguous bool   `json:"ambiguous,omitzero"`
	Oversized bool   `json:"oversized,omitzero"`
	NoModel   bool   `json:"no_model,omitzero"`
	OtherKey  bool   `json:"other_key,omitzero"`
	Text      string `json:"text,omitzero"`
}

// problemOf is the record of an error. Texts that look like keys are masked.
func problemOf(err error) *problem {
	var f *fault.Error
	if !errors.As(err, &f) { // of a body: the connection broke
		return &problem{Message: masked(err.Error())}
	}
	p := &problem{
		Code: f.Code, Message: masked(f.Message), Param: f.Param, HTTPStatus: f.Status,
		RetryAfter: f.RetryAfter.Milliseconds(), Body: masked(string(f.Body)),
	}
	if v, found := upstream.FailureOf(err); found {
		p.Failure = &failure{
			Status: v.Status, Sent: v.Sent, Unasked: v.Unasked, Refused: v.Refused, Stated: v.Stated, Fatal: v.Fatal,
			Ambiguous: v.Ambiguous, Oversized: v.Oversized, NoModel: v.NoModel, OtherKey: v.OtherKey,
		}
		if v.Err != nil {
			p.Failure.Text = masked(v.Err.Error())
		}
	}
	return p
}

// fault is the error again.
func (p *problem) fault() error {
	if p.Code == "" {
		return errors.New(p.Message)
	}
	f := &fault.Error{
		Code: p.Code, Message: p.Message, Param: p.Param, Status: p.HTTPStatus, RetryAfter: time.Duration(p.RetryAfter) * time.Millisecond,
	}
	if p.Body != "" {
		f.Body = []byte(p.Body)
	}
	if v := p.Failure; v != nil {
		cause := &upstream.Failure{
			Status: v.Status, Sent: v.Sent, Unasked: v.Unasked, Refused: v.Refused, Stated: v.Stated, Fatal: v.Fatal,
			Ambiguous: v.Ambiguous, Oversized: v.Oversized, NoModel: v.NoModel, OtherKey: v.OtherKey,
		}
		if v.Text != "" {
			cause.Err = errors.New(v.Text)
		}
		f.Err = cause
	}
	return f
}

// keyText is what keys look like in a vendor's texts.
var keyText = regexp.MustCompile(`(?i)(bearer\s+|basic\s+)\S+|\b(sk|pk|rk|ak|xai|gsk|hf|key|token|secret)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}`)

// masked is a text without what looks like a key.
func masked(text string) string { return keyText.ReplaceAllString(text, "[secret]") }

// contentType is the Content-Type of an answer, if it is one.
func contentType(h http.Header) string {
	kind := h.Get("Content-Type")
	if _, _, err := mime.ParseMediaType(kind); err != nil || len(kind) > 100 {
		return ""
	}
	return masked(kind)
}

// setBody records a body as the form that can be read best and gives the same bytes again.
func (e *entry) setBody(body []byte, times []timed) {
	switch {
	case len(body) == 0:
	case !utf8.Valid(body):
		e.Bytes = body
	case e.Stream || bytes.HasPrefix(body, []byte("data:")) || bytes.HasPrefix(body, []byte("event:")):
		e.setEvents(body, times)
	case isLine(body):
		e.JSON = body
	default:
		e.Text = string(body)
	}
}

// asItStands writes documents within a line as they came.
func asItStands() json.Options {
	return json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))
}

// isLine reports whether a document is written again as it stands.
func isLine(body []byte) bool {
	again, err := json.Marshal(jsontext.Value(body), asItStands())
	return err == nil && bytes.Equal(again, body)
}

// setEvents cuts a stream behind the blank lines of its events.
func (e *entry) setEvents(body []byte, times []timed) {
	var before time.Duration
	for at := 0; at < len(body); {
		end := len(body)
		for _, blank := range [][]byte{[]byte("\n\n"), []byte("\r\n\r\n"), []byte("\r\r")} {
			if i := bytes.Index(body[at:], blank); i >= 0 {
				end = min(end, at+i+len(blank))
			}
		}
		for len(times) > 1 && times[0].end < end {
			times = times[1:]
		}
		e.Events = append(e.Events, string(body[at:end]))
		e.Pace = append(e.Pace, (times[0].after - before).Milliseconds())
		before, at = times[0].after, end
	}
}

// prepare makes what answers and comparisons need of an entry that was read.
func (e *entry) prepare() error {
	if e.Op == "" {
		return errors.New("it has no op")
	}
	switch {
	case e.Events != nil:
		for _, event := range e.Events {
			e.pieces = append(e.pieces, []byte(event))
		}
	case e.JSON != nil:
		e.pieces = [][]byte{e.JSON}
	case e.Text != "":
		e.pieces = [][]byte{[]byte(e.Text)}
	case e.Bytes != nil:
		e.pieces = [][]byte{e.Bytes}
	}
	if e.Request == nil {
		e.Request = jsontext.Value("null")
	}
	request, err := canonicalJSON(e.Request) // it may have been edited
	e.Request = request
	return err
}
