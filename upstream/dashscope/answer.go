package dashscope

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// maxDocument bounds an answer, which has links and no media.
const maxDocument = 16 << 20

// told replies with a whole document, as the vendor wrote it.
func (u *Upstream) told(ctx context.Context, resp *http.Response, key *upstream.Key) (*upstream.Reply, error) {
	data, err := u.whole(ctx, resp)
	httpdo.Judge(key, err)
	if err != nil {
		return nil, err
	}
	return &upstream.Reply{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)),
	}, nil
}

// whole is the whole answer: some of status 200 are refusals.
func (u *Upstream) whole(ctx context.Context, resp *http.Response) ([]byte, error) {
	body, err := u.client.Body(resp, u.refused)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, maxDocument+1))
	_ = body.Close()
	switch _, bad := parseRefusal(data); {
	case err != nil:
		return nil, u.cut(ctx, err)
	case len(data) > maxDocument:
		return nil, u.client.Malformed(http.StatusOK, errors.New("the answer is too large"))
	case bad:
		return nil, u.failed(data, resp.Header)
	}
	return data, nil
}
