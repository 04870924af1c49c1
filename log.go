package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
)

// markFirstByte records when the first of a stream or of audio was ready.
func (x *exchange) markFirstByte(now time.Time) {
	if x.record.firstByteAt == 0 {
		x.record.firstByteAt = now.Sub(x.started)
	}
}

// requestEvent is what is known of the exchange at its end. e is what the client
// was told; nil if all went well.
func (x *exchange) requestEvent(now time.Time, status int, e *fault.Error) RequestEvent {
	r := &x.record
	f := RequestEvent{
		ID: x.id, ClientID: x.clientID, Op: r.op, Model: clip(r.model), Stream: r.stream, Outcome: "complete", Status: status,
		Started: x.started, Duration: now.Sub(x.started), First: r.firstByteAt, Phases: r.phases,
	}
	if x.principal != nil {
		f.Account, f.Key = x.principal.Account, x.principal.Key
	}
	if e != nil {
		f.Code = word.Code(e.Code)
	}
	switch {
	case r.clientGone:
		f.Outcome = string(fault.ClientGone)
	case r.replayed:
		f.Outcome = "replayed"
	case e != nil:
		f.Outcome = string(f.Code)
	}
	if e != nil && e.HTTPStatus() >= 500 {
		f.Error = redactError(e)
	}
	if !r.replayed {
		f.Receipt = r.receipt
	}
	x.addAttempts(&f)
	return f
}

// addAttempts adds the attempts to the event. Without an observer a single attempt
// that went well is left out.
func (x *exchange) addAttempts(f *RequestEvent) {
	n := len(x.record.attempts)
	watched := x.g.observer.End != nil
	f.Listed = watched && x.routes.lists(x.record.model)
	if n == 0 {
		return
	}
	last := &x.record.attempts[n-1]
	f.Channel = last.Channel
	if n == 1 && last.Err == nil && !watched {
		return
	}
	f.Attempts = make([]AttemptEvent, n)
	for i, a := range x.record.attempts {
		f.Attempts[i] = newAttempt(x.id, x.record.op, a)
	}
}

// lists reports whether the id is named by a channel, the operator or a built-in
// table. A channel that passes on every id names none.
func (r *routes) lists(id string) bool {
	_, ok := r.models[id]
	return ok
}

// UsageSource says where the counts of the receipt come from: "upstream",
// "estimated", or "none" if nothing was consumed. It is empty without a receipt.
func (f *RequestEvent) UsageSource() string {
	if f.Receipt == nil {
		return ""
	}
	switch u := &f.Receipt.Usage; {
	case u.Estimated:
		return "estimated"
	case u.IsZero() && !u.Zero:
		return "none"
	}
	return "upstream"
}

// log writes the log line.
func (x *exchange) log(ctx context.Context, f *RequestEvent) {
	level := slog.LevelInfo
	if f.Error != "" {
		level = slog.LevelWarn
	}
	log := x.g.options.Logger.Handler()
	if !log.Enabled(ctx, level) {
		return
	}
	// Without the Logger's own methods, which look up who calls: it is always here.
	line := slog.NewRecord(f.Started.Add(f.Duration), level, "request", 0)
	var room [24]slog.Attr
	line.AddAttrs(append(f.attrs(room[:0], x.record.charge), slog.Float64("ms", float64(f.Duration.Microseconds())/1000))...)
	_ = log.Handle(ctx, line) // as a Logger does: there is nobody to tell
}

// attrs appends the fields of the log line. None of them is a client's text but
// the model's id and the client's request id, both bounded and printable. charge
// is the receipt's, as a decimal string.
func (f *RequestEvent) attrs(attrs []slog.Attr, charge string) []slog.Attr {
	attrs = append(attrs, slog.String("request_id", f.ID))
	if f.ClientID != "" {
		attrs = append(attrs, slog.String("client_request_id", f.ClientID))
	}
	if f.Account != "" || f.Key != "" {
		attrs = append(attrs, slog.String("account", f.Account), slog.String("key", f.Key))
	}
	if f.Op != "" {
		attrs = append(attrs, slog.String("op", string(f.Op)), slog.String("model", f.Model), slog.Bool("stream", f.Stream))
	}
	attrs = append(attrs, slog.String("outcome", f.Outcome))
	if f.Status != 0 {
		attrs = append(attrs, slog.Int("status", f.Status))
	}
	if f.Receipt != nil {
		attrs = f.receiptAttrs(attrs, charge)
	}
	if f.Channel != "" {
		attrs = append(attrs, slog.String("channel", f.Channel))
	}
	if n := len(f.Attempts); n > 1 || n == 1 && f.Attempts[0].Code != "" {
		attrs = append(attrs, slog.Any("attempts", f.attempts()))
	}
	if f.Error != "" {
		attrs = append(attrs, slog.String("error", f.Error))
	}
	if f.First != 0 {
		attrs = append(attrs, slog.Int64("first_ms", f.First.Milliseconds()))
	}
	return attrs
}

// receiptAttrs appends what was consumed and what it cost.
func (f *RequestEvent) receiptAttrs(attrs []slog.Attr, charge string) []slog.Attr {
	r := f.Receipt
	attrs = append(attrs, slog.String("usage_source", f.UsageSource()))
	for unit, count := range r.Usage.Units {
		attrs = append(attrs, slog.Int64(string(unit), count))
	}
	if r.Usage.Anomaly {
		attrs = append(attrs, slog.Bool("usage_anomaly", true))
	}
	if r.Usage.Zero {
		attrs = append(attrs, slog.Bool("usage_zero", true))
	}
	return append(attrs, slog.String("reason", r.Reason),
		slog.String("hold", r.Hold.String()), slog.String("charge", charge))
}

// attempts is a text for each attempt.
func (f *RequestEvent) attempts() []string {
	texts := make([]string, len(f.Attempts))
	for i, a := range f.Attempts {
		texts[i] = a.Channel + ": ok"
		if a.Code != "" {
			texts[i] = a.Channel + ": " + a.Error
		}
	}
	return texts
}

// redactError is the text of an error for the log. A vendor's text can repeat the
// client's prompt, so that of a vendor's answer only code and status are given,
// unless it refuses the operator's own key or account. A panic has its stack.
func redactError(err error) string {
	const stack = 4096
	code := fault.From(err)
	var f *upstream.Failure
	switch answered := errors.As(err, &f); {
	case answered && f.Status != 0 && !f.Fatal:
		return fmt.Sprintf("%s (upstream status %d)", word.Code(code.Code), f.Status)
	case code.Code == fault.InternalError:
		return sanitize(err.Error(), stack)
	case answered && !f.Fatal:
		return clip(withoutQuotes(err.Error()))
	}
	return clip(err.Error())
}

// withoutQuotes is the text of a transport error without what it quotes: net/http
// repeats what a vendor sent if that is not HTTP.
func withoutQuotes(text string) string {
	const bare = "malformed MIME header" // behind which some of it stands without quotes
	if at := strings.Index(text, bare); at >= 0 {
		text = text[:at+len(bare)]
	}
	text, _, _ = strings.Cut(text, `"`)
	return strings.TrimRight(text, " :[")
}

// clip bounds a text from outside for the log.
func clip(s string) string {
	const most = 256
	return sanitize(s, most)
}

// sanitize cuts a text to so many bytes, and replaces what moves a terminal's
// cursor, colours it or changes the direction of writing: log handlers escape only
// some of these characters.
func sanitize(s string, most int) string {
	more := ""
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s, more = s[:most], "…"
	}
	if isPrintable(s) {
		return s + more
	}
	return strings.Map(func(r rune) rune {
		if isPrintableRune(r) {
			return r
		}
		return '?' // which is never longer
	}, s) + more
}

// isPrintable reports whether a text has nothing to replace.
func isPrintable(s string) bool {
	for _, r := range s {
		if !isPrintableRune(r) {
			return false
		}
	}
	return true
}

// isPrintableRune reports whether the log may have a character. Log handlers
// escape line breaks.
func isPrintableRune(r rune) bool {
	switch {
	case ' ' <= r && r <= '~', r == '\n', r == '\t':
		return true
	}
	return r != utf8.RuneError && !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}
