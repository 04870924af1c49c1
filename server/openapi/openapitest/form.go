package openapitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"strconv"
)

// readForm makes a JSON object of a multipart body: files and texts are strings,
// several of a name an array, and texts of fields that are integers or booleans
// become those. An empty field counts as absent.
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
