package fault

// Code is a word of the API's error tables (docs/reference/http-api.md, Errors). It is an error,
// so that errors.Is finds it in the chain of any error of the gateway:
//
//	if errors.Is(err, fault.InsufficientBalance) {
type Code string

// Error returns the code itself. A request that fails with a bare code has the message and the
// status of [From].
func (c Code) Error() string { return string(c) }

// The codes that the gateway itself gives. A vendor's own 4xx keeps the vendor's code. A
// constant is named for its meaning. Its value is the word that clients compare, in the
// spelling of the API that it comes from: snake_case or CamelCase. Two pairs of words differ
// in spelling only, so a constant's name is not always its word:
//
//	"rate_limit_exceeded"  429  RateLimitExceeded   a limit of the gateway's own
//	"RateLimitExceeded"    429  UpstreamRateLimit   a vendor's limit, at every channel
//	"service_unavailable"  502  NoChannel           no channel can serve the call
//	"ServiceUnavailable"   503  ServiceUnavailable  the gateway or an upstream is away
const (
	InvalidRequest        Code = "invalid_request_error"       // the request breaks a rule of the endpoint
	InvalidMask           Code = "invalid_mask"                // the mask of an image edit is of another size
	EndpointModelMismatch Code = "endpoint_model_mismatch"     // the model serves another endpoint
	UnsupportedParameter  Code = "unsupported_parameter"       // the model's upstream has no such field, and the answer would mean something else without it
	UnsupportedItem       Code = "unsupported_item"            // the same for an item of an input
	ResponseNotFound      Code = "previous_response_not_found" // no such stored response of this account
	ItemNotFound          Code = "item_not_found"              // no such stored item of this account
	Unauthorized          Code = "unauthorized"                // key missing or invalid
	InsufficientBalance   Code = "insufficient_balance"        // the account cannot cover the request
	BudgetExceeded        Code = "budget_exceeded"             // the key's budget cannot cover the request
	PermissionDenied      Code = "permission_denied"           // key disabled, expired, or not for this model
	NotFound              Code = "not_found"                   // no such path or record
	ModelNotFound         Code = "model_not_found"             // no such model, or withdrawn
	ResourceNotFound      Code = "ResourceNotFound"            // no such task of this account
	MethodNotAllowed      Code = "method_not_allowed"          // the path takes another method
	IdempotencyConflict   Code = "idempotency_conflict"        // same key, other or unfinished request
	RequestTooLarge       Code = "request_too_large"           // body over the limit
	UnsupportedMediaType  Code = "unsupported_media_type"      // wrong content type or encoding
	RateLimitExceeded     Code = "rate_limit_exceeded"         // requests, tokens or concurrency of the key
	ConcurrencyExceeded   Code = "ConcurrencyExceeded"         // concurrent video tasks of the key
	UpstreamRateLimit     Code = "RateLimitExceeded"           // every upstream channel is rate limited
	ClientGone            Code = "client_gone"                 // the client disconnected; only logs have it
	CalledOff             Code = "called_off"                  // the gateway cancelled a call to an upstream that was no longer needed; only logs have it
	InternalError         Code = "internal_error"              // a fault of the gateway
	InternalServerError   Code = "InternalServerError"         // the upstream's 500
	NoChannel             Code = "service_unavailable"         // no upstream channel can serve the call
	BadGateway            Code = "BadGateway"                  // the upstream's answer is malformed or cut
	ServiceUnavailable    Code = "ServiceUnavailable"          // the gateway or an upstream is away for now
	RequestTimeout        Code = "RequestTimeout"              // the upstream did not answer in time
	LoopDetected          Code = "loop_detected"               // the request has passed this gateway before, or too many
)

// statuses is the one table from code to HTTP status. An unlisted code is an
// upstream's word and travels with [Error.Status].
var statuses = map[Code]int{
	InvalidRequest:        400,
	InvalidMask:           400,
	EndpointModelMismatch: 400,
	UnsupportedParameter:  400,
	UnsupportedItem:       400,
	ResponseNotFound:      400,
	ItemNotFound:          400,
	Unauthorized:          401,
	InsufficientBalance:   402,
	BudgetExceeded:        402,
	PermissionDenied:      403,
	NotFound:              404,
	ModelNotFound:         404,
	ResourceNotFound:      404,
	MethodNotAllowed:      405,
	IdempotencyConflict:   409,
	RequestTooLarge:       413,
	UnsupportedMediaType:  415,
	RateLimitExceeded:     429,
	ConcurrencyExceeded:   429,
	UpstreamRateLimit:     429,
	ClientGone:            499,
	CalledOff:             499,
	InternalError:         500,
	InternalServerError:   500,
	NoChannel:             502,
	BadGateway:            502,
	ServiceUnavailable:    503,
	RequestTimeout:        504,
	LoopDetected:          508,
}

// HTTPStatus is the status of the code's row; 500 for an unknown code.
func (c Code) HTTPStatus() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return 500
}

// Known reports whether the code is one of the gateway's own. Any other code is a vendor's.
func (c Code) Known() bool {
	_, ok := statuses[c]
	return ok
}

// Type is the `type` word of an error body for an HTTP status (docs/reference/http-api.md,
// Errors).
func Type(status int) string {
	switch status {
	case 401:
		return "authentication_error"
	case 402:
		return "insufficient_balance"
	case 403:
		return "permission_error"
	case 409:
		return "conflict_error"
	case 429:
		return "rate_limit_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}
