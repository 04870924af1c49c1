package server

import (
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
)

// note adds facts to the request's line of the audit log, as slog takes them:
// "target" where the path names none. None of them may be a secret.
func (q *adminRequest) note(facts ...any) { q.facts = append(q.facts, facts...) }

// audit logs what came of a request that changes something or shows a secret:
// what was asked for, by whom, of what, and "done" or the error's code.
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
		line = append(line, "agent", clip(agent))
	}
	if q.name != "" {
		line = append(line, "target", discreet(q.name))
	}
	q.o.Logger.Info("audit", append(line, q.facts...)...)
}

// discreet is a caller's word for the log, unless it is a key that somebody put
// in the place of a name.
func discreet(name string) string {
	for _, prefix := range []string{"sk-", "whsec_", "admin-"} {
		if strings.HasPrefix(name, prefix) {
			return "[secret]"
		}
	}
	return clip(name)
}
