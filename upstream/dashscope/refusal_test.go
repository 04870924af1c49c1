package dashscope

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// The caller's own fault keeps the vendor's text; with images it keeps the vendor's body
// and code too, with videos it has the codes of that endpoint.
func TestTheVendorsErrorsKeepTheirMeaning(t *testing.T) {
	for _, row := range []struct {
		status         int
		code           string
		public         int // status
		image, video   fault.Code
		fatal, refused bool
	}{
		{400, "InvalidParameter", 400, "InvalidParameter", "InvalidParameter", false, false},
		{400, "InvalidParameter.DataInspection", 400, "InvalidParameter.DataInspection", "InvalidParameter.DataInspectionFailed", false, false},
		{400, "DataInspectionFailed", 400, "DataInspectionFailed", "DataInspectionFailed", false, false},
		{400, "InvalidURL.Timeout", 400, "InvalidURL.Timeout", "InvalidParameter.UrlNotAccessible", false, false},
		{400, "BadRequest.InputDownloadFailed", 400, "BadRequest.InputDownloadFailed", "InvalidParameter.UrlNotAccessible", false, false},
		{400, "InternalError.Algo.InvalidParameter", 400, "InternalError.Algo.InvalidParameter", "InternalError.Algo.InvalidParameter", false, false},
		{404, "ModelNotFound", 404, "ModelNotFound", fault.ModelNotFound, false, false},
		{400, "Arrearage", 502, fault.NoChannel, fault.NoChannel, true, false},
		{401, "InvalidApiKey", 502, fault.NoChannel, fault.NoChannel, true, false},
		{403, "AccessDenied", 502, fault.NoChannel, fault.NoChannel, true, false},
		{403, "AccessDenied.Unpurchased", 502, fault.NoChannel, fault.NoChannel, true, false},
		{403, "AllocationQuota.FreeTierOnly", 502, fault.NoChannel, fault.NoChannel, true, false},
		{403, "CommodityNotPurchased", 502, fault.NoChannel, fault.NoChannel, true, false},
		{429, "Throttling.RateQuota", 429, fault.UpstreamRateLimit, fault.UpstreamRateLimit, false, true},
		{429, rateQuota, 429, fault.UpstreamRateLimit, fault.UpstreamRateLimit, false, true},
		{429, "PrepaidBillOverdue", 502, fault.NoChannel, fault.NoChannel, true, false},
		{429, "PostpaidBillOverdue", 502, fault.NoChannel, fault.NoChannel, true, false},
		{500, "InternalError.Algo", 500, fault.InternalServerError, fault.InternalServerError, false, false},
		{500, "RequestTimeOut", 500, fault.InternalServerError, fault.InternalServerError, false, false},
		{503, "ModelUnavailable", 503, fault.ServiceUnavailable, fault.ServiceUnavailable, false, true},
		{200, "InvalidParameter", 400, "InvalidParameter", "InvalidParameter", false, false},
		{200, "InvalidURL", 400, "InvalidURL", "InvalidParameter.UrlNotAccessible", false, false},
		{200, "Throttling.RateQuota", 429, fault.UpstreamRateLimit, fault.UpstreamRateLimit, false, true},
		{200, "InternalError.Algo", 500, fault.InternalServerError, fault.InternalServerError, false, false},
		{200, "Arrearage", 502, fault.NoChannel, fault.NoChannel, true, false},
	} {
		t.Run(fmt.Sprintf("%d %s", row.status, row.code), func(t *testing.T) {
			body := fmt.Sprintf(`{"request_id":"r","code":%q,"message":"the vendor's words"}`, row.code)
			up := newDriver(t, vendortest.Responds(row.status, nil, body))
			callersFault := row.public == 400 || row.public == 404
			for _, call := range []*upstream.Call{drawCall(t, askedPicture), videoCall(t), videoPoll("t")} {
				code, wantBody := row.video, ""
				if call.Op == upstream.GenerateImage {
					code = row.image
					if callersFault {
						wantBody = body
					}
				}
				e, f := vendortest.Refused(t, up, call)
				if e.Code != code || e.HTTPStatus() != row.public || f.Fatal != row.fatal || f.Refused != row.refused || !f.Sent {
					t.Errorf("%s: %d %s, failure %+v, want %d %s", call.Op, e.HTTPStatus(), e.Code, f, row.public, code)
				}
				if row.public == 500 && f.Stated != strings.HasPrefix(row.code, "InternalError.Algo") {
					t.Errorf("%s: stated %t", call.Op, f.Stated)
				}
				if !strings.Contains(e.Error(), "the vendor's words") {
					t.Errorf("%s: the log has %v", call.Op, e)
				}
				if strings.Contains(e.Message, "the vendor's words") != callersFault || string(e.Body) != wantBody {
					t.Errorf("%s: message %q, body %s", call.Op, e.Message, e.Body)
				}
			}
		})
	}
}

func TestARefusalOfAnotherFormHasTheVendorsWords(t *testing.T) {
	for body, message := range map[string]string{"<html>": "The upstream refused the request.", "too long": "too long", `{"code":5,"msg":"no"}`: "no"} {
		for _, call := range []*upstream.Call{drawCall(t, askedPicture), videoCall(t)} {
			e, _ := vendortest.Refused(t, newDriver(t, vendortest.Responds(400, nil, body)), call)
			if e.Code != fault.InvalidRequest || e.Message != message || e.Body != nil {
				t.Errorf("%s: %s: %v", call.Op, body, e)
			}
		}
	}
}
