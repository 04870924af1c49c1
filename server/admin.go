package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server/internal/httpio"
)

// AdminOptions are what the operator's side of a server works on.
type AdminOptions struct {
	// Token is what every request must carry as "Authorization: Bearer". An
	// empty one refuses every request.
	Token secret.String
	// Accounts is the ledger. Required.
	Accounts billing.Accounts
	// Keys are the API keys. Required.
	Keys auth.KeyAdmin
	// Webhooks are the webhook deliveries of video tasks; nil means that there are
	// none, and requests about them are refused.
	Webhooks Webhooks
	// Store names where both are kept, without secrets, so that a command can
	// tell whether this is the server of its store; empty says nothing.
	Store string
	// Reload loads the configuration again; nil means that there is nothing
	// to reload, and such a request is refused. The message of a *fault.Error
	// is shown to the operator.
	Reload func(context.Context) error
	// Channels are the channels of the running gateway; nil means that there are
	// none, and requests about them are refused.
	Channels Channels
	// TestChannel makes a small call at a channel, whether or not it is paused; nil
	// means that a test is refused. It must bound its own time.
	TestChannel func(context.Context, ChannelTest) (ChannelResult, error)
	// ChannelModels are the models of a channel, and what is known of its vendor's list;
	// nil means that such a request is refused.
	ChannelModels func(channel string) ChannelModels
	// Logger gets one line for each request that changes something or shows a
	// secret, whatever came of it, without secrets; nil discards.
	Logger *slog.Logger
	// Metrics answers scrapes at /metrics; nil means that the path does not exist.
	// PublicMetrics lets every client that reaches the address read them without
	// the token.
	Metrics       http.Handler
	PublicMetrics bool
	// Now and Random are the clock and the source of new keys; nil means the
	// real ones.
	Now    func() time.Time
	Random io.Reader
}

// NewAdmin returns the operator's API under /admin/v1/, and /healthz. Its routes
// need the token, take and give JSON, and put errors in OpenAI's form. It is safe
// for concurrent use.
func NewAdmin(o AdminOptions) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &admin{o: o, token: sha256.Sum256([]byte(o.Token.Reveal())), mux: http.NewServeMux()}
	for path, routes := range routesByPath(adminTable, func(r *adminRoute) string { return r.path }) {
		a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { a.serveRoutes(w, r, routes) })
	}
	a.mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) {
		writeAdmin(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	if o.Metrics != nil {
		a.mux.HandleFunc(metricsPath, a.serveMetrics)
	}
	return a
}

// admin is the handler behind NewAdmin.
type admin struct {
	o     AdminOptions
	token [sha256.Size]byte // its hash
	mux   *http.ServeMux
}

// adminRoute is a row of the table of the operator's routes.
type adminRoute struct {
	method string
	path   string // a pattern of http.ServeMux; a {name} may hold a slash, if it is escaped
	status int    // of a good answer
	action string // for the audit log; empty where nothing is changed and no secret shown
	serve  func(*adminRequest) (any, error)
}

// adminTable is every path of the admin API. A POST and a DELETE have an action, and so has
// a GET that shows a secret; a test holds each row to that.
var adminTable = []adminRoute{
	{http.MethodGet, "/admin/v1/accounts", 200, "", (*adminRequest).listAccounts},
	{http.MethodPost, "/admin/v1/accounts", 201, "account.create", (*adminRequest).createAccount},
	{http.MethodGet, "/admin/v1/accounts/{name}", 200, "", (*adminRequest).showAccount},
	{http.MethodPost, "/admin/v1/accounts/{name}/credit", 200, "account.credit", (*adminRequest).creditAccount},
	{http.MethodGet, "/admin/v1/accounts/{name}/webhook-secret", 200, "webhook.secret.show", func(q *adminRequest) (any, error) { return q.webhookSecret(false) }},
	{http.MethodPost, "/admin/v1/accounts/{name}/webhook-secret/rotate", 200, "webhook.secret.rotate", func(q *adminRequest) (any, error) { return q.webhookSecret(true) }},
	{http.MethodGet, "/admin/v1/keys", 200, "", (*adminRequest).listKeys},
	{http.MethodPost, "/admin/v1/keys", 201, "key.create", (*adminRequest).createKey},
	{http.MethodPost, "/admin/v1/keys/{name}/disable", 200, "key.disable", func(q *adminRequest) (any, error) { return q.setDisabled(true) }},
	{http.MethodPost, "/admin/v1/keys/{name}/enable", 200, "key.enable", func(q *adminRequest) (any, error) { return q.setDisabled(false) }},
	{http.MethodDelete, "/admin/v1/keys/{name}", 200, "key.delete", (*adminRequest).deleteKey},
	{http.MethodGet, "/admin/v1/channels", 200, "", (*adminRequest).listChannels},
	{http.MethodGet, "/admin/v1/channels/{name}/models", 200, "", (*adminRequest).listChannelModels},
	{http.MethodPost, "/admin/v1/channels/{name}/pause", 200, "channel.pause", func(q *adminRequest) (any, error) { return q.setChannel(Channels.Pause) }},
	{http.MethodPost, "/admin/v1/channels/{name}/resume", 200, "channel.resume", func(q *adminRequest) (any, error) { return q.setChannel(Channels.Resume) }},
	{http.MethodPost, "/admin/v1/channels/{name}/test", 200, "channel.test", (*adminRequest).testChannel},
	{http.MethodGet, "/admin/v1/webhooks", 200, "", (*adminRequest).listNotices},
	{http.MethodPost, "/admin/v1/webhooks/{name}/resend", 200, "webhook.resend", (*adminRequest).resendNotice},
	{http.MethodGet, "/admin/v1/usage", 200, "", (*adminRequest).usage},
	{http.MethodGet, "/admin/v1/requests/{name}", 200, "", (*adminRequest).showRequest},
	{http.MethodGet, "/admin/v1/waste", 200, "", (*adminRequest).waste},
	{http.MethodGet, "/admin/v1/server", 200, "", (*adminRequest).showServer},
	{http.MethodGet, "/admin/v1/ledger/verify", 200, "", (*adminRequest).verifyLedger},
	{http.MethodPost, "/admin/v1/reload", 200, "reload", (*adminRequest).reload},
}

// adminRequest is one request on its way through the table.
type adminRequest struct {
	*admin
	ctx    context.Context
	w      http.ResponseWriter
	r      *http.Request
	routes []*adminRoute // of the path
	name   string        // the {name} of the path

	route       *adminRoute // once the method is known to be right
	auditFields []any       // further fields of the audit log
}

// rawAnswer is an answer that is no JSON.
type rawAnswer struct {
	contentType string
	body        []byte
}

// ServeHTTP answers one request.
func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isClean(r.URL) {
		a.serveRoutes(w, r, nil)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// serveRoutes answers a request for a path that has these routes, none if it is
// not a path of the admin API.
func (a *admin) serveRoutes(w http.ResponseWriter, r *http.Request, routes []*adminRoute) {
	q := &adminRequest{admin: a, ctx: r.Context(), w: w, r: r, routes: routes}
	status, answer, err := q.serve()
	q.audit(err)
	if err != nil {
		q.writeError(fault.From(err))
		return
	}
	writeAdmin(w, status, answer)
}

// serve checks the token before it answers anything about paths.
func (q *adminRequest) serve() (status int, answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.FromPanic(p).With(func(e *fault.Error) { e.Message = "The server failed to handle the request." })
		}
	}()
	if err := q.authenticate(); err != nil {
		return 0, nil, err
	}
	if err := q.matchRoute(); err != nil {
		return 0, nil, err
	}
	answer, err = q.route.serve(q)
	return q.route.status, answer, err
}

// authenticate compares hashes, so that the time it takes reveals nothing of the
// token, not even its length.
func (q *adminRequest) authenticate() error {
	given := sha256.Sum256([]byte(httpio.Bearer(q.r.Header)))
	if subtle.ConstantTimeCompare(given[:], q.token[:]) != 1 || q.o.Token.IsZero() {
		return fault.New(fault.Unauthorized, "The admin token is missing or wrong. Send it as \"Authorization: Bearer TOKEN\"; tollhouse keeps it in the file admin-token of its data directory.")
	}
	return nil
}

// matchRoute chooses among the routes of the path by the method: 404 comes before
// 405.
func (q *adminRequest) matchRoute() error {
	if len(q.routes) == 0 {
		return fault.New(fault.NotFound, "Not found: "+safetext.Quoted(q.r.URL.Path)+". The paths of this address begin with /admin/v1/.")
	}
	var allowed []string
	for _, route := range q.routes {
		if route.method == q.r.Method {
			q.route, q.name = route, q.r.PathValue("name")
			return nil
		}
		allowed = append(allowed, route.method)
	}
	return methodNotAllowed(q.w.Header(), q.r.Method, allowed)
}

// writeError writes an error and logs those that an operator should know of.
func (q *adminRequest) writeError(f *fault.Error) {
	switch status := f.HTTPStatus(); {
	case status >= 500:
		q.o.Logger.Error("admin request failed", "path", safetext.Quoted(q.r.URL.Path), "error", f.Error())
	case status == http.StatusUnauthorized:
		q.o.Logger.Warn("admin request without the token", "path", safetext.Quoted(q.r.URL.Path), "remote", q.r.RemoteAddr)
	}
	errorHeaders(q.w.Header(), f, time.Hour)
	writeAdmin(q.w, f.HTTPStatus(), openAIShape("", f))
}

// writeAdmin writes an answer, as JSON unless it is a rawAnswer. Nothing of the admin API may
// be kept by a cache.
func writeAdmin(w http.ResponseWriter, status int, answer any) {
	out, isRaw := answer.(rawAnswer)
	if !isRaw {
		data, err := json.Marshal(answer)
		if err != nil { // a type of ours that cannot be written
			status, data = http.StatusInternalServerError, []byte(`{"error":{"message":"The answer cannot be written.","type":"api_error","code":"internal_error","param":null}}`)
		}
		out = rawAnswer{"application/json", append(data, '\n')}
	}
	h := w.Header()
	h.Set("Content-Type", out.contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(out.body)
}

// addAudit adds fields to the request's line of the audit log, as slog takes them:
// "target" where the path names none. None of them may be a secret.
func (q *adminRequest) addAudit(fields ...any) { q.auditFields = append(q.auditFields, fields...) }

// audit logs the outcome of a request that changes something or shows a secret. It logs what
// was asked for, by whom, of what, and "done" or the error's code.
func (q *adminRequest) audit(err error) {
	if q.route == nil || q.route.action == "" {
		return
	}
	outcome := "done"
	if err != nil {
		outcome = string(fault.From(err).Code)
	}
	line := []any{"action", q.route.action, "outcome", outcome, "by", "admin token", "remote", q.r.RemoteAddr}
	if agent := q.r.UserAgent(); agent != "" {
		line = append(line, "agent", safetext.Quoted(agent))
	}
	if q.name != "" {
		line = append(line, "target", redact(q.name))
	}
	q.o.Logger.Info("audit", append(line, q.auditFields...)...)
}

// redact is a name that a caller sent, as the log can have it: without a key that somebody put
// in its place.
func redact(name string) string {
	for _, prefix := range []string{"sk-", "whsec_", "admin-"} {
		if strings.HasPrefix(name, prefix) {
			return "[secret]"
		}
	}
	return safetext.Quoted(name)
}

// maxAdminBody is the most bytes of a body, far more than any request needs.
const maxAdminBody = 1 << 20

// readJSON reads the request's JSON object. An unknown, repeated or mistyped field
// is a 400 that names it.
func (q *adminRequest) readJSON(into any) error {
	err := jsonv2.UnmarshalRead(http.MaxBytesReader(q.w, q.r.Body, maxAdminBody), into, jsonv2.RejectUnknownMembers(true))
	var (
		tooLarge *http.MaxBytesError
		member   *jsonv2.SemanticError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return (&httpio.Body{Name: "request body", Limit: maxAdminBody}).TooLarge()
	case errors.As(err, &member):
		return memberError(member)
	}
	return fault.Wrap(fault.InvalidRequest, "The request body must be one JSON object.", err)
}

// memberError does not repeat the value: it may be a key in the wrong place.
func memberError(e *jsonv2.SemanticError) error {
	field := e.JSONPointer.LastToken()
	switch {
	case errors.Is(e.Err, jsonv2.ErrUnknownName):
		return fault.Invalid(safetext.Quoted(field), "There is no field "+strconv.Quote(safetext.Quoted(field))+" in this request.")
	case field == "":
		return fault.New(fault.InvalidRequest, "The request body must be a JSON object.")
	}
	return fault.Invalid(safetext.Quoted(field), fmt.Sprintf("The field %q must not be a JSON %s.", safetext.Quoted(field), e.JSONKind))
}

// parseAmount reads an optional decimal string; absent is 0.
func parseAmount(field, text string) (billing.Money, error) {
	if text == "" {
		return 0, nil
	}
	m, err := billing.ParseMoney(text)
	if err != nil {
		return 0, fault.Invalid(field, fmt.Sprintf("The field %q must be a decimal string such as \"25.00\", with at most 9 digits after the point.", field))
	}
	return m, nil
}

// metricsPath is where Prometheus asks.
const metricsPath = "/metrics"

// serveMetrics answers a scrape. Any other method, and a scrape without the token
// that it needs, is refused as on a path that does not exist.
func (a *admin) serveMetrics(w http.ResponseWriter, r *http.Request) {
	allowed := r.Method == http.MethodGet || r.Method == http.MethodHead
	if allowed && !a.o.PublicMetrics {
		q := &adminRequest{admin: a, ctx: r.Context(), w: w, r: r}
		allowed = q.authenticate() == nil
	}
	if !allowed {
		a.serveRoutes(w, r, nil)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	a.o.Metrics.ServeHTTP(w, r)
}
