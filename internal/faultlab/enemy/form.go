package enemy

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
)

// form is a form as a vendor reads it: the last of several fields counts.
type form struct {
	fields map[string]string
	files  int64
}

func readForm(contentType string, body []byte) (form, error) {
	f := form{fields: map[string]string{}}
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return f, err
	}
	r := multipart.NewReader(bytes.NewReader(body), parameters["boundary"])
	for {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		if p.FileName() != "" {
			f.files++
			continue
		}
		data, err := io.ReadAll(p)
		if err != nil {
			return f, err
		}
		f.fields[p.FormName()] = string(data)
	}
}
