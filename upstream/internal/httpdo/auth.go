package httpdo

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/header"
)

// chooseAuth is how calls carry a key: as the options say, or as the vendor wants it. A
// header has its canonical name.
func chooseAuth(o upstream.DriverOptions, own upstream.Auth) (upstream.Auth, error) {
	auth := o.Auth
	if err := auth.Check(); err != nil {
		return auth, fmt.Errorf("auth: %w", err)
	}
	if auth.By == "" {
		auth = own
	}
	switch auth.By {
	case "":
		auth.By = upstream.ByBearer
	case upstream.ByNone:
		if len(o.Keys) > 0 {
			return auth, errors.New("auth: none sends no key: take keys out, or auth")
		}
	case upstream.ByHeader:
		auth.Name = http.CanonicalHeaderKey(auth.Name)
		if !header.Settable(auth.Name) && !keyHeaders[auth.Name] {
			return auth, fmt.Errorf("auth: the header %s is for something else; one for a key is api-key", auth.Name)
		}
	}
	return auth, nil
}

// keyHeaders are headers that an operator sets in no other way.
var keyHeaders = map[string]bool{"Authorization": true, "X-Api-Key": true}

// authorize puts a key into a request. The address of a request is shared by all, so that
// one with a key in it is made anew.
func (c *Client) authorize(req *http.Request, key string) {
	switch c.auth.By {
	case upstream.ByHeader:
		req.Header[c.auth.Name] = []string{key}
	case upstream.ByQuery:
		to := *req.URL
		if to.RawQuery != "" {
			to.RawQuery += "&"
		}
		to.RawQuery += url.QueryEscape(c.auth.Name) + "=" + url.QueryEscape(key)
		req.URL = &to
	default:
		req.Header["Authorization"] = []string{"Bearer " + key}
	}
}

// withoutURL is the error of a transport without the address that a [url.Error] prints,
// since that can have a key in it. Only a transport of the caller's makes such errors.
func withoutURL(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		return outer.Err
	}
	return err
}
