package ark

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// refusing is a vendor that refuses everything.
func refusing(status int, body string) http.HandlerFunc {
	return vendortest.Responds(status, map[string]string{"Retry-After": "7"}, body)
}

// told is how much of the vendor's words the caller gets.
type told uint8

const (
	nothing told = iota
	words        // the message
	all          // the body too, since the code is the vendor's own
)

func TestTheVendorsErrorsKeepTheirMeaning(t *testing.T) {
	for _, row := range []struct {
		status int
		code   string
		want   fault.Code
		is     int
		fatal  bool
		again  bool // nothing was billed, so another channel may be asked
		told   told
	}{
		{400, "MissingParameter", "InvalidParameter.MissingRequired", 400, false, false, words},
		{400, "MissingParameter.content", "InvalidParameter.MissingRequired", 400, false, false, words},
		{400, "InvalidParameter", "InvalidParameter", 400, false, false, all},
		{400, "InvalidParameter.duration", "InvalidParameter.duration", 400, false, false, all},
		{400, "InvalidParameter.TaskTypeConstraint", "InvalidParameter.TaskTypeConstraint", 400, false, false, all},
		{400, "InputTextSensitiveContentDetected", "InputTextSensitiveContentDetected", 400, false, false, words},
		{400, "InputImageSensitiveContentDetected.PrivacyInformation", "InputImageSensitiveContentDetected", 400, false, false, words},
		{400, "InputVideoSensitiveContentDetected.PolicyViolation", "InputVideoSensitiveContentDetected", 400, false, false, words},
		{400, "InputAudioSensitiveContentDetected", "InputAudioSensitiveContentDetected", 400, false, false, words},
		{400, "SensitiveContentDetected", "SensitiveContentDetected", 400, false, false, all},
		{400, "InputTextRiskDetection", "InputTextRiskDetection", 400, false, false, all},
		{401, "AuthenticationError", fault.NoChannel, 502, true, false, nothing},
		{400, "AuthenticationError", fault.NoChannel, 502, true, false, nothing},
		{403, "AccessDenied", fault.NoChannel, 502, true, false, nothing},
		{403, "AccountOverdueError", fault.NoChannel, 502, true, false, nothing},
		{400, "AccountOverdueError", fault.NoChannel, 502, true, false, nothing},
		{403, "OperationDenied.ServiceNotOpen", fault.NoChannel, 502, true, false, nothing},
		{403, "OperationDenied.ServiceOverdue", fault.NoChannel, 502, true, false, nothing},
		{404, "InvalidEndpointOrModel.NotFound", fault.ModelNotFound, 404, false, false, nothing},
		{404, "ModelNotOpen", fault.ModelNotFound, 404, false, false, nothing},
		{400, "UnsupportedModel", fault.ModelNotFound, 404, false, false, nothing},
		{404, "ResourceNotFound", fault.ResourceNotFound, 404, false, false, words},
		{429, "RateLimitExceeded.EndpointRPMExceeded", fault.UpstreamRateLimit, 429, false, true, nothing},
		{429, "ModelAccountRpmRateLimitExceeded", fault.UpstreamRateLimit, 429, false, true, nothing},
		{429, "AccountRateLimitExceeded", fault.UpstreamRateLimit, 429, false, true, nothing},
		{429, "RequestBurstTooFast", fault.UpstreamRateLimit, 429, false, true, nothing},
		{429, "InflightBatchsizeExceeded", fault.UpstreamRateLimit, 429, false, true, nothing},
		{429, "ServerOverloaded", fault.ServiceUnavailable, 503, false, true, nothing},
		{429, "QuotaExceeded", fault.NoChannel, 502, true, false, nothing},
		{429, "SetLimitExceeded", fault.NoChannel, 502, true, false, nothing},
		{500, "InternalServiceError", fault.InternalServerError, 500, false, false, nothing},
		{500, "RequestTimeout", fault.InternalServerError, 500, false, false, nothing},
		{502, "InternalServiceError", fault.BadGateway, 502, false, false, nothing},
		{504, "InternalServiceError", fault.RequestTimeout, 504, false, false, nothing},
		{500, "AccessDenied", fault.InternalServerError, 500, false, false, nothing},
		{500, "InvalidParameter", fault.InternalServerError, 500, false, false, nothing},
	} {
		body := `{"error":{"code":"` + row.code + `","message":"the vendor says so","param":"duration","type":"BadRequest"}}`
		for name, call := range map[string]*upstream.Call{"submission": submission(t, asked), "poll": question("cgt-1")} {
			e, f := vendortest.Refused(t, newDriver(t, refusing(row.status, body), upstream.DriverOptions{}), call)
			if e.Code != row.want || e.HTTPStatus() != row.is || f.Fatal != row.fatal || f.Refused != row.again || !f.Sent {
				t.Errorf("%s %+v: %v, %+v", name, row, e, f)
			}
			if f.Stated != (row.status == 500 && row.code != "RequestTimeout") {
				t.Errorf("%s %+v: stated %t", name, row, f.Stated)
			}
			if strings.Contains(e.Message, "the vendor") != (row.told > nothing) || (string(e.Body) == body) != (row.told == all) || (e.Body == nil) != (row.told < all) {
				t.Errorf("%s %+v: message %q, body %s", name, row, e.Message, e.Body)
			}
			if (e.Param == "duration") != (row.told > nothing) || (e.RetryAfter == 7*time.Second) != row.again || !strings.Contains(e.Error(), "the vendor") {
				t.Errorf("%s %+v: param %q, after %s, log %s", name, row, e.Param, e.RetryAfter, e.Error())
			}
		}
	}
}

func TestWhatAPollDoesNotFindIsTheTask(t *testing.T) {
	for body, message := range map[string]string{
		`{"error":{"code":"NotFound","message":"No cgt-1."}}`: "No cgt-1.",
		`404 page not found`: "404 page not found",
		`<html>`:             "The upstream refused the request.",
	} {
		up := newDriver(t, refusing(404, body), upstream.DriverOptions{})
		_, err := up.Do(t.Context(), question("cgt-1"))
		if e := fault.From(err); e.Code != fault.ResourceNotFound || e.HTTPStatus() != 404 || e.Message != message || e.Body != nil {
			t.Errorf("%s: %v", body, err)
		}
		_, err = up.Do(t.Context(), submission(t, asked))
		if e := fault.From(err); e.Code == fault.ResourceNotFound || e.HTTPStatus() != 404 {
			t.Errorf("%s: a submission got %v", body, err)
		}
	}
}

func TestA500OfNoFormIsNotTheVendorsAnswer(t *testing.T) {
	for _, body := range []string{"", "<html>", `{"error":{"message":"x"}}`, `{"message":"x"}`} {
		_, f := vendortest.Refused(t, newDriver(t, refusing(500, body), upstream.DriverOptions{}), submission(t, asked))
		if f.Stated {
			t.Errorf("%s: it is taken for the vendor's own", body)
		}
	}
}

func TestARefusalOfAnotherFormHasTheVendorsWords(t *testing.T) {
	const ours = "The upstream refused the request."
	for body, message := range map[string]string{
		"": ours, "<html>": ours, `{"code":"x"}`: ours,
		`{"error":"no"}`: "no", `{"error":{"message":"the vendor says so"}}`: "the vendor says so", `{"code":5,"msg":"no"}`: "no", "too long": "too long",
	} {
		_, err := newDriver(t, refusing(400, body), upstream.DriverOptions{}).Do(t.Context(), submission(t, asked))
		if e := fault.From(err); e.Code != fault.InvalidRequest || e.HTTPStatus() != 400 || e.Message != message || e.Body != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}
