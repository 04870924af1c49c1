package openai

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// category is what a refusal is about.
type category string

const (
	callers   category = "the caller's request"
	operators category = "the operator's key or account"
	model     category = "the model"
	busy      category = "the vendor's load"
	vendors   category = "the vendor's own fault"
)

func categoryOf(f *upstream.Failure, e *fault.Error) category {
	switch {
	case f.NoModel:
		return model
	case f.Fatal:
		return operators
	case f.Refused:
		return busy
	case e.HTTPStatus() < 500:
		return callers
	}
	return vendors
}

// The bodies are those of the vendors' pages and of reports about them.
func TestTheErrorsOfEachVendorAreWhoseFaultTheyAre(t *testing.T) {
	for _, row := range []struct {
		vendor string
		status int
		body   string
		want   category
		text   string // of the vendor, which the caller gets
	}{
		{"openai", 404, `{"error":{"message":"The model m does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, model, "The model m does not exist"},
		{"openai, of a project", 403, `{"error":{"message":"Project proj_1 does not have access to model m","type":"invalid_request_error","code":"model_not_found"}}`, model, ""},
		{"openai, a response", 404, `{"error":{"message":"Previous response with id 'model not found' not found.","type":"invalid_request_error","param":"previous_response_id","code":null}}`, callers, "Previous response"},
		{"mistral, a field", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","user"]}]},"type":"invalid_request_error","param":null,"code":null}`, callers, "extra_forbidden"},
		{"mistral, a model", 400, `{"object":"error","message":"Invalid model: m","type":"invalid_model","param":null,"code":"1500"}`, model, "Invalid model: m"},
		{"mistral, a key", 401, `{"message":"Unauthorized","request_id":"1"}`, operators, ""},
		{"mistral, a rate", 429, `{"message":"Requests rate limit exceeded"}`, busy, ""},
		{"deepseek, a balance", 402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, operators, ""},
		{"groq, a model", 403, `{"error":{"message":"The model m is blocked at the project level.","type":"permissions_error","code":"model_permission_blocked_project"}}`, model, ""},
		{"xai, a model", 404, `{"code":"Some requested entity was not found","error":"The model m does not exist or your team 1 does not have access to it."}`, model, "The model m does not exist"},
		{"xai, a field", 400, `{"code":"Client specified an invalid argument","error":"Argument not supported on this model: stop"}`, callers, "Argument not supported"},
		{"openrouter, a model", 404, `{"error":{"message":"No endpoints found for model m.","code":404}}`, model, "No endpoints found"},
		{"openrouter, credits", 402, `{"error":{"message":"Insufficient credits","code":402}}`, operators, ""},
		{"together, a model", 404, `{"id":"1","error":{"message":"Unable to access model m.","type":"invalid_request_error","param":null,"code":"model_not_available"}}`, model, "Unable to access model m"},
		{"fireworks, a model", 404, `{"error":{"object":"error","type":"invalid_request_error","code":"NOT_FOUND","message":"Model not found, inaccessible, and/or not deployed"}}`, model, "Model not found"},
		{"cerebras, a model", 404, `{"message":"Model m does not exist or you do not have access to it.","type":"not_found_error","param":"model","code":"model_not_found"}`, model, "Model m does not exist"},
		{"cerebras, a field", 400, `{"message":"property 'logit_bias' is unsupported","type":"invalid_request_error","param":"validation_error","code":"wrong_api_format"}`, callers, "is unsupported"},
		{"nvidia, a model", 404, `{"status":404,"title":"Not Found","detail":"Function 'f': Not found for account 'a'"}`, model, "Function 'f'"},
		{"huggingface, a model", 400, `{"error":{"message":"The requested model 'm' is not supported by any provider you have enabled.","type":"invalid_request_error","param":"model","code":"model_not_supported"}}`, model, "is not supported by any provider"},
		{"huggingface, a text", 400, `{"error":"Bad request: input is too long"}`, callers, "input is too long"},
		{"cohere, a key", 401, `{"message":"invalid api token"}`, operators, ""},
		{"cohere, a field", 400, `{"message":"invalid request: stream_options is not supported"}`, callers, "stream_options is not supported"},
		{"zai, a model", 400, `{"error":{"code":"1211","message":"Unknown Model, please check the model code."}}`, model, "Unknown Model"},
		{"zai, a balance", 429, `{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}`, operators, ""},
		{"zai, a rate", 429, `{"error":{"code":"1302","message":"Rate limit reached for requests"}}`, busy, ""},
		{"azure, a deployment", 404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, model, "The API deployment"},
		{"bedrock, a model", 403, `{"message":"You don't have access to the model with the specified model ID."}`, model, ""},
		{"bedrock, a model that it does not know", 400, `{"message":"The provided model identifier is invalid."}`, model, "model identifier is invalid"},
		{"bedrock-mantle, a model of its other path", 400, "{\"error\":{\"code\":\"validation_error\",\"type\":\"invalid_request_error\",\"message\":\"model `m` isn't supported on this route\"}}", model, "isn't supported on this route"},
		{"bedrock-mantle, words of the caller's", 400, "{\"error\":{\"code\":\"validation_error\",\"message\":\"tool model `m` isn't supported on this route\"}}", callers, "tool model"},
		{"deepseek, a model", 400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, model, "Model Not Exist"},
		{"bedrock, a token", 403, `{"message":"The security token included in the request is invalid"}`, operators, ""},
		{"ollama, a model", 404, `{"error":{"message":"model 'm' not found","type":"not_found_error","param":null,"code":null}}`, model, "model 'm' not found"},
		{"vllm, a model", 404, `{"object":"error","message":"The model m does not exist.","type":"NotFoundError","param":null,"code":404}`, model, "The model m does not exist"},
		{"llama.cpp, an input over its batch", 500, `{"error":{"code":500,"message":"input (2502 tokens) is too large to process. increase the physical batch size (current batch size: 512)","type":"server_error"}}`, callers, "is too large to process"},
		{"llama.cpp, a failure", 500, `{"error":{"code":500,"message":"failed to process","type":"server_error"}}`, vendors, ""},
		{"a server of FastAPI", 422, `{"detail":[{"loc":["body","n"],"msg":"value is not a valid integer"}]}`, callers, "not a valid integer"},
		{"one without words", 404, `{"detail":"Not Found"}`, callers, "Not Found"},
		{"plain text", 400, "The prompt is too long.\n", callers, "The prompt is too long."},
		{"a list of errors", 400, `{"errors":[{"message":"too long","code":7}]}`, callers, "too long"},
		{"a code and a msg", 400, `{"code":1001,"msg":"too long"}`, callers, "too long"},
		{"an error_msg", 400, `{"error_code":17,"error_msg":"too long"}`, callers, "too long"},
		{"a byte order mark", 400, "\xef\xbb\xbf" + `{"error":{"message":"too long"}}`, callers, "too long"},
		{"a key in plain text", 400, "the key sk-1 is not for this", callers, "is not for this"},
		{"a page for a bad request", 400, `<html>too long</html>`, callers, ""},
		{"a page", 403, `<html>model not found</html>`, operators, ""},
		{"a failure that speaks of a model", 500, `{"error":{"message":"model not found","code":"model_not_found"}}`, vendors, ""},
	} {
		t.Run(row.vendor, func(t *testing.T) {
			e, f := vendortest.Refused(t, newDriver(t, vendortest.Responds(row.status, nil, row.body), upstream.DriverOptions{}), chat(t, false))
			if got := categoryOf(f, e); got != row.want {
				t.Errorf("it is %s (%d %s, %+v), want %s", got, e.HTTPStatus(), e.Code, f, row.want)
			}
			if row.text != "" && !strings.Contains(e.Message, row.text) || row.text == "" && strings.Contains(row.body, e.Message) {
				t.Errorf("the caller reads %q, want %q in it", e.Message, row.text)
			}
			if f.NoModel && (f.Fatal || e.HTTPStatus() != row.status && row.status != 403 || row.status == 403 && e.Code != fault.ModelNotFound) {
				t.Errorf("the caller gets %d %s, failure %+v", e.HTTPStatus(), e.Code, f)
			}
		})
	}
}
