package server

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/formdata"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/slowbody"
	"github.com/tollhouse-ai/gateway/server/internal/httpio"
	"github.com/tollhouse-ai/gateway/upstream"
)

// enter has the gateway find out whose request it is, and count it. A request that its route
// or the form of its key refuse is only logged.
func (x *httpExchange) enter() (err error) {
	caller := gateway.Caller{ClientID: clientID(x.r), Session: sessionOf(x.r.Header), Via: x.r.Header["Via"], Refused: x.matchRoute()}
	if caller.Refused == nil {
		caller.Token, caller.Refused = httpio.Key(x.r.Header)
	}
	if x.route != nil && x.route.op != "" {
		caller.Heartbeat = x.stream.heartbeat
	}
	x.entry, err = x.h.gateway.Enter(x.r.Context(), caller)
	x.setRequestID(x.entry.ID)
	if err != nil && caller.Refused == nil && caller.Token == "" {
		return httpio.NameMisplacedKey(x.r.Header, err)
	}
	return err
}

// read checks what the request's headers say of its body, and reads it.
func (x *httpExchange) read(q *gateway.Request) (err error) {
	if q.IdempotencyKey, err = httpio.IdempotencyKey(x.r.Header); err != nil {
		return err
	}
	if err := x.forwardedHeaders(q); err != nil {
		return err
	}
	if e := x.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fault.New(fault.UnsupportedMediaType, "Send the body without Content-Encoding.")
	}
	if x.route.form {
		q.Form, err = x.readForm()
	} else {
		q.Body, err = x.readJSON()
	}
	return err
}

// writeResponse writes what came of an operation.
func (x *httpExchange) writeResponse() (err error) {
	defer fault.Recover(&err)
	x.responseHeaders()
	result := x.response
	switch {
	case result.Stream != nil:
		return x.stream.sendEvents(result.Stream)
	case result.Audio != nil:
		return x.stream.sendAudio(result.Audio)
	}
	if h := x.w.Header(); result.Replayed && h.Get("Content-Type") == "text/event-stream" {
		setEventHeaders(h)
	}
	x.write(cmp.Or(result.Status, http.StatusOK), "", result.Body)
	return nil
}

// responseHeaders sets the headers of what came of an operation, unless a heartbeat
// has committed the response.
func (x *httpExchange) responseHeaders() {
	x.stream.mu.Lock()
	defer x.stream.mu.Unlock()
	if x.stream.committed {
		return
	}
	maps.Copy(x.w.Header(), x.response.Header)
	if x.response.Replayed {
		x.setRequestID(x.response.Header.Get("X-Request-Id"))
	}
}

// showVideo is GET /v1/videos/generations/{id}.
func (x *httpExchange) showVideo() error {
	record, err := x.h.gateway.VideoRecord(x.entry.Context(), x.id)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, "application/json", record)
	return nil
}

// checkContentType is 415 unless the body is plain JSON. A request without a
// content type is taken as JSON.
func (x *httpExchange) checkContentType() error {
	header := x.r.Header.Get("Content-Type")
	if header == "" || header == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(header); err != nil || media != "application/json" {
		return fault.New(fault.UnsupportedMediaType, "This endpoint takes a body of Content-Type application/json, not "+safetext.Quoted(header)+".")
	}
	return nil
}

// readJSON reads the whole body, and nothing past the limit: 413 at once for a
// declared length, else while reading.
func (x *httpExchange) readJSON() ([]byte, error) {
	if err := x.checkContentType(); err != nil {
		return nil, err
	}
	body := x.body(x.h.options.MaxBody)
	body.Memory = x.entry
	if err := body.CheckLength(x.r); err != nil {
		return nil, err
	}
	large := x.r.ContentLength
	if large <= slowbody.Light {
		large = 0
	}
	if err := x.entry.AcquireSlot(x.r.Context(), large); err != nil {
		return nil, err
	}
	return body.ReadAll(x.w, x.r)
}

// readForm reads the whole form, and nothing past the limit. A declared length
// over the limit counts more than what is wrong with the boundary.
func (x *httpExchange) readForm() (form *upstream.Form, err error) {
	header := x.r.Header.Get("Content-Type")
	boundary, ok, boundaryError := formdata.Boundary(header)
	if !ok {
		return nil, fault.New(fault.UnsupportedMediaType, "This endpoint takes a body of Content-Type "+formdata.MediaType+", not "+safetext.Quoted(header)+".")
	}
	body := x.body(x.h.options.MaxForm)
	if err := body.CheckLength(x.r); err != nil {
		return nil, err
	}
	if boundaryError != nil {
		return nil, boundaryError
	}
	if err := x.entry.AcquireSlot(x.r.Context(), 0); err != nil {
		return nil, err
	}
	options := formdata.Options{Dir: x.h.options.TempDir, Quota: x.h.uploads, Owner: x.entry.Principal().Account}
	err = body.Consume(x.w, x.r, func(source io.Reader) error {
		form, err = formdata.Read(source, boundary, options)
		return err
	})
	return form, err
}

// body is how bodies of requests are read.
func (x *httpExchange) body(limit int64) httpio.Body {
	return httpio.Body{Name: "request body", Limit: limit, Timeout: x.h.options.ReadTimeout}
}

// modelObject is one model, with what OpenAI's and Anthropic's clients read.
type modelObject struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

// toModel has the members of both wires, so that one answer serves both SDKs.
func toModel(m gateway.Model) modelObject {
	return modelObject{
		ID: m.ID, Object: "model", Created: m.Created.Unix(), OwnedBy: m.OwnedBy,
		Type: "model", DisplayName: m.DisplayName, CreatedAt: m.Created.UTC().Format(time.RFC3339),
	}
}

// listModels is GET /v1/models: all models, or a page of them as Anthropic's clients ask for it.
func (x *httpExchange) listModels() error {
	models, err := x.h.gateway.Models(x.entry.Context())
	if err != nil {
		return err
	}
	models, more, err := pageOf(models, x.r.URL.Query())
	if err != nil {
		return err
	}
	list := struct {
		Object  string        `json:"object"`
		Data    []modelObject `json:"data"`
		HasMore bool          `json:"has_more"`
		FirstID *string       `json:"first_id"`
		LastID  *string       `json:"last_id"`
	}{Object: "list", Data: make([]modelObject, len(models)), HasMore: more}
	for i, m := range models {
		list.Data[i] = toModel(m)
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return x.writeJSON(list)
}

// pageOf is the page of a list that a query asks for, or the whole list. It has at most limit
// models after after_id, or the last ones before before_id. more reports whether the list goes
// on in that direction.
func pageOf(models []gateway.Model, q url.Values) (page []gateway.Model, more bool, err error) {
	at := func(name string, otherwise int) int {
		if !q.Has(name) {
			return otherwise
		}
		id := q.Get(name)
		i := slices.IndexFunc(models, func(m gateway.Model) bool { return m.ID == id })
		if i < 0 {
			err = fault.Invalid(name, fmt.Sprintf("%q must be the id of a model in the list.", name))
		}
		return i
	}
	first, end := at("after_id", -1)+1, at("before_id", len(models))
	if err != nil {
		return nil, false, err
	}
	page = models[first:max(first, end)]
	if !q.Has("limit") {
		return page, false, nil
	}
	const most = 1000
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 || limit > most {
		return nil, false, fault.Invalid("limit", fmt.Sprintf(`"limit" must be an integer from 1 to %d.`, most))
	}
	switch more = len(page) > limit; {
	case !more:
		return page, false, nil
	case q.Has("before_id") && !q.Has("after_id"):
		return page[len(page)-limit:], true, nil
	}
	return page[:limit], true, nil
}

// showModel is GET /v1/models/{id}.
func (x *httpExchange) showModel() error {
	m, err := x.h.gateway.Model(x.entry.Context(), x.id)
	if err != nil {
		return err
	}
	return x.writeJSON(toModel(m))
}
