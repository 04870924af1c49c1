package speech

import (
	"io"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// ErrorInstead is the error object that came instead of audio, or unfit if none did.
func ErrorInstead(body io.Reader, unfit error) error {
	const most = 64 << 10
	data, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return unfit
	}
	o, err := rawjson.Index(rawjson.TrimBOM(data), nil, nil)
	if err != nil || rawjson.IsNull(o.Raw("error")) && !answer.IsError(&o) {
		return unfit
	}
	return answer.ErrorFrame(o.Src)
}
