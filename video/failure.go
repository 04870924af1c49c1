package video

import (
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// publicCode is a row of the table from vendors' codes to those of the public
// record.
type publicCode struct {
	vendor string // the code, or, with a "*" at its end, how it begins
	code   string
	hidden bool // the operator's trouble: the caller is not told the text
}

// publicCodes is the table: the first row that fits counts, and a code that has
// none is kept.
var publicCodes = []publicCode{
	{vendor: "InvalidParameter.DataInspection", code: "InvalidParameter.DataInspectionFailed"},
	{vendor: "InvalidURL*", code: "InvalidParameter.UrlNotAccessible"},
	{vendor: "InvalidFile.Duration*", code: "InvalidParameter.VideoDurationTooLong"},
	{vendor: "InvalidFile*", code: string(InvalidParameter)},
	{vendor: "MissingParameter*", code: string(MissingRequired)},
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

// What a record says of a failure of which the upstream says nothing, and of one
// that is not the caller's business.
const (
	noReason     = "The upstream did not say why the video failed."
	hiddenReason = "No upstream channel could make the video. Try again later."
)

// failureOf is the public form of the failure of a task. The vendor's text is
// told to the owner of the task and to nobody else.
func failureOf(code, message []byte) *Failure {
	const longest = 1000 // bytes of a text
	f := &Failure{}
	f.Code, _ = rawjson.String(code)
	f.Message, _ = rawjson.String(message)
	f.Message = clip(f.Message, longest)
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
	if !isWord(f.Code) {
		f.Code = string(fault.InternalServerError)
	}
	if f.Message == "" {
		f.Message = noReason
	}
	return f
}

// isWord reports whether s can be a code.
func isWord(s string) bool {
	const longest = 80
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && !strings.ContainsRune("_.-", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= longest
}

// failure is that of a task which the gateway ended.
func (s State) failure() *Failure {
	switch s {
	case Unknown, Submitting:
		return &Failure{string(fault.RequestTimeout), "Whether the upstream took the task never became known. It was not charged."}
	}
	return &Failure{string(fault.RequestTimeout), "The upstream did not finish the video in time. It was not charged."}
}
