package mcp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server/internal/httpio"
)

// errorMember is the member of a failed result's _meta that programs read.
const errorMember = "tollhouse.ai/error"

// adviceTable says what a model should do about an error. The first row with the error's code
// counts, otherwise the row of its status.
var adviceTable = []struct {
	code   fault.Code
	status int
	advice string
}{
	{fault.ModelNotFound, 0, "Call list_models and choose one of its models."},
	{fault.EndpointModelMismatch, 0, "Call list_models: it says which tools each model is for."},
	{fault.InsufficientBalance, 0, "Do not repeat the call. get_balance says what is left and estimate_cost what a call needs: " +
		"choose less or a cheaper model, or tell the user that the account needs credit."},
	{fault.BudgetExceeded, 0, "Do not repeat the call. estimate_cost says what a call needs: " +
		"choose less or a cheaper model, or tell the user that the key's budget is used up."},
	{fault.PermissionDenied, 0, "Do not repeat the call: tell the user that the key may not do this. list_models says what it may use."},
	{fault.Unauthorized, 0, "Do not repeat the call: tell the user that the key is not accepted."},
	{fault.ResourceNotFound, 0, "Check the id: it is the one that generate_video gave."},
	{fault.RequestTooLarge, 0, ""},
	{"", http.StatusBadRequest, "Correct the argument and call again."},
	{"", http.StatusConflict, again},
	{"", http.StatusTooManyRequests, again},
}

// What to do about an error that the arguments did not cause.
const (
	later = "It is not the fault of the arguments. Call again in a moment with the same arguments and the same task_label, so that nothing is paid twice, or use another model."
	final = "Do not repeat the call."
	again = "Call again after that with the same arguments and the same task_label."
)

// adviceFor is what the model is told to do about an error; empty where the message says all.
// A model that repeats a call blindly spends money, and one that gives up at an overload
// leaves its work undone.
func adviceFor(f *fault.Error) string {
	switch conflict := f.HTTPStatus() == http.StatusConflict; {
	case conflict && httpio.RetryAfter(f, maxRetryAfter) == 0:
		return "" // the message says it
	case f.Retry == fault.RetryNo && !conflict:
		return final
	case f.HTTPStatus() == http.StatusBadRequest && f.Param == "model":
		return "Call list_models: it says which models there are, and which tools each is for."
	}
	for _, row := range adviceTable {
		if row.code == f.Code || row.code == "" && row.status == f.HTTPStatus() {
			return row.advice
		}
	}
	if f.HTTPStatus() >= http.StatusInternalServerError {
		return later
	}
	return ""
}

// rewordings are the names in the API's messages that a model does not know, each
// before what it knows.
var rewordings = []string{
	"/v1/chat/completions", "chat",
	"/v1/images/generations", "generate_image",
	"/v1/images/edits", "edit_image",
	"/v1/embeddings", "create_embeddings",
	"/v1/audio/speech", "text_to_speech",
	"/v1/rerank", "rerank",
	`"input.prompt"`, `"prompt"`,
	"GET /v1/models lists", "list_models lists",
	"GET /v1/videos/generations/", "get_video with the id ",
	"/v1/videos/generations", "generate_video",
	"This Idempotency-Key", "This task_label",
	"with this Idempotency-Key", "with this task_label",
	"Use a new key for a new request.", "Use a new task_label for other work, or repeat exactly the arguments of the first call.",
}

// rewordForTools is a message of the API for a model.
func rewordForTools(message string) string {
	return strings.NewReplacer(rewordings...).Replace(message)
}

// errorResult is an error as a result that a model can act on. It says what /v1 says
// and no more.
func errorResult(id string, err error) *sdk.CallToolResult {
	f := fault.From(err)
	parts := []string{fmt.Sprintf("%s: %s", f.Code, rewordForTools(f.Message))}
	if wait := httpio.RetryAfter(f, maxRetryAfter); wait > 0 {
		parts = append(parts, fmt.Sprintf("Wait %d s.", httpio.Seconds(wait)))
	}
	if advice := adviceFor(f); advice != "" {
		parts = append(parts, advice)
	}
	parts = append(parts, "(request_id: "+id+")")
	return &sdk.CallToolResult{
		IsError: true, Content: []sdk.Content{textContent("%s", strings.Join(parts, " "))},
		Meta: sdk.Meta{errorMember: errorData(id, f)},
	}
}

// errorData is an error for a program.
func errorData(id string, f *fault.Error) map[string]any {
	m := map[string]any{
		"code": f.Code, "type": fault.Type(f.HTTPStatus()), "status": f.HTTPStatus(), "request_id": id,
	}
	if f.Param != "" {
		m["param"] = f.Param
	}
	if wait := httpio.RetryAfter(f, maxRetryAfter); wait > 0 {
		m["retry_after_ms"] = wait.Milliseconds()
	}
	return m
}

// maxRetryAfter is how long a client may be asked to wait.
const maxRetryAfter = time.Hour

// ownReason is the code of JSON-RPC of a refusal for the server's own reasons, which
// the data tells apart.
const ownReason = -32000

// refuseRequest answers an HTTP request that no message comes of, with the
// status and the headers of the API and a JSON-RPC error. It has the id of the message
// where the message was understood and only its method is unknown, else none.
func refuseRequest(w *writer, id string, messageID jsontext.Value, err error) {
	if w.statusCode() != 0 {
		return
	}
	f := fault.From(err)
	status := f.HTTPStatus()
	httpio.SetErrorHeaders(w.Header(), f, maxRetryAfter)
	code := ownReason
	switch {
	case errors.Is(err, errUnknownMethod):
		code = jsonrpc.CodeMethodNotFound
	case status == http.StatusBadRequest:
		code, messageID = jsonrpc.CodeInvalidRequest, nil
	default:
		messageID = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(rpcAnswer(messageID, "error", map[string]any{ // the client may be gone
		"code": code, "message": string(f.Code) + ": " + rewordForTools(f.Message), "data": errorData(id, f),
	}))
}

// rpcAnswer is a JSON-RPC answer to the message with this id, nil if there is none: its
// "result" or its "error".
func rpcAnswer(id jsontext.Value, member string, value any) []byte {
	if id == nil {
		id = jsontext.Value("null")
	}
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, member: value}, json.Deterministic(true))
	if err != nil {
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"The request failed."}}`)
	}
	return data
}
