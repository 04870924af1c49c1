package openapitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Request says in what a request is not as the document has it.
func (s *Spec) Request(r *http.Request, body []byte) error {
	o, ok := s.find(r.Method, r.URL.Path)
	if !ok {
		return fmt.Errorf("the document has no %s %s", r.Method, r.URL.Path)
	}
	return o.takes(r, body)
}

// Webhook says in what a request that the gateway makes is not as the document
// has it under that name.
func (s *Spec) Webhook(name string, r *http.Request, body []byte) error {
	o := s.webhooks[name]
	if o == nil {
		return fmt.Errorf("the document has no webhook %s", name)
	}
	if o.Method != r.Method {
		return fmt.Errorf("the webhook %s is a %s, not a %s", name, o.Method, r.Method)
	}
	return o.takes(r, body)
}

// takes says in what a request is not as the operation has it.
func (o *Operation) takes(r *http.Request, body []byte) error {
	for _, p := range o.parameters {
		values := r.Header.Values(p.name)
		if p.in == "query" {
			values = r.URL.Query()[p.name]
		}
		if p.in == "path" {
			continue // it was matched
		}
		if err := p.check(values); err != nil {
			return fmt.Errorf("%s parameter: %w", p.in, err)
		}
	}
	if o.request == nil {
		return nil
	}
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Header.Get("Content-Type") == "":
		media = "application/json"
	case err != nil:
		return err
	}
	schema := o.request[media]
	switch {
	case schema == nil:
		return fmt.Errorf("%s %s takes no %q", r.Method, o.Path, media)
	case o.form != nil:
		form, err := readForm(body, parameters["boundary"], o.form)
		if err != nil {
			return err
		}
		return explain("form", schema.Validate(form))
	}
	return document(schema, body)
}

// Response says in what a response is not as the document has it. The body is
// whole; that of a HEAD request is empty.
func (s *Spec) Response(r *http.Request, status int, header http.Header, body []byte) error {
	o, _ := s.find(r.Method, r.URL.Path)
	if o == nil {
		if status != http.StatusNotFound {
			return fmt.Errorf("the document has no path %s, which answered %d", r.URL.Path, status)
		}
		return document(s.unknown(r.URL.Path), body)
	}
	said, ok := o.responses[strconv.Itoa(status)]
	if !ok && status >= 400 {
		said, ok = o.responses["default"]
	}
	if !ok {
		return fmt.Errorf("%s %s has no response %d", o.Method, o.Path, status)
	}
	for name, p := range said.headers {
		p.name = name
		if err := p.check(header.Values(name)); err != nil {
			return fmt.Errorf("header: %w", err)
		}
	}
	if r.Method == http.MethodHead || len(said.content) == 0 {
		if len(body) > 0 {
			return errors.New("there is a body, but none is described")
		}
		return nil
	}
	return said.body(header.Get("Content-Type"), body)
}

// body checks a body by its type. For bytes, such as audio, only the type is checked.
func (r response) body(contentType string, body []byte) error {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("the content type %q: %w", contentType, err)
	}
	family, _, _ := strings.Cut(media, "/")
	switch {
	case r.content[media] == nil && r.content[family+"/*"] == nil:
		return fmt.Errorf("there is no response of type %q", media)
	case media == "application/json":
		return document(r.content[media], body)
	case media == "text/event-stream":
		return events(r.content[media], body)
	}
	return nil // bytes
}

// check holds the values of a parameter or header against its schema.
func (p parameter) check(values []string) error {
	if len(values) == 0 {
		if p.required {
			return fmt.Errorf("%s is missing", p.name)
		}
		return nil
	}
	var v any = values[0]
	if p.schema.Types != nil && strings.Contains(p.schema.Types.String(), "integer") {
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		v = n
	}
	return explain(p.name, p.schema.Validate(v))
}

// document checks one JSON value.
func document(schema *jsonschema.Schema, body []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("no JSON: %w: %s", err, safetext.Truncate(string(body), 600))
	}
	return explain(string(body), schema.Validate(v))
}

// events checks the data of each event of a stream.
func events(schema *jsonschema.Schema, body []byte) error {
	for event := range strings.SplitSeq(string(body), "\n\n") {
		var data []string
		for line := range strings.Lines(event) {
			if text, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "data:"); ok {
				data = append(data, strings.TrimPrefix(text, " "))
			}
		}
		text := strings.Join(data, "\n")
		if text == "" || text == "[DONE]" {
			continue
		}
		if err := document(schema, []byte(text)); err != nil {
			return fmt.Errorf("event: %w", err)
		}
	}
	return nil
}

// explain says what of a value is not as its schema has it; nil for nil.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", safetext.Truncate(what, 600), safetext.Truncate(err.Error(), 3000))
}

// readForm makes a JSON object of a multipart body. Files and texts are strings, and several
// of a name are an array. Texts of fields that are integers or booleans become those. An empty
// field counts as absent.
func readForm(body []byte, boundary string, properties map[string]any) (map[string]any, error) {
	form := make(map[string]any)
	for r := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return form, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the form: %w", err)
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, fmt.Errorf("the form: %w", err)
		}
		name := part.FormName()
		var v any = string(data)
		switch child(properties, name)["type"] {
		case "integer":
			if n, err := strconv.ParseInt(string(data), 10, 64); err == nil {
				v = n
			}
		case "boolean":
			if yes, err := strconv.ParseBool(string(data)); err == nil {
				v = yes
			}
		}
		switch before := form[name].(type) {
		case nil:
			if len(data) > 0 {
				form[name] = v
			}
		case []any:
			form[name] = append(before, v)
		default:
			form[name] = []any{before, v}
		}
	}
}
