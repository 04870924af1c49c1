package config

import (
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/auth"
)

// limits is the table of the limits of keys.
func (r *reader) limits(l *auth.Limits) fields {
	return fields{
		"rpm":                   r.count(&l.RPM, "rpm"),
		"tpm":                   r.count(&l.TPM, "tpm"),
		"max_concurrent":        r.count(&l.MaxConcurrent, "max_concurrent"),
		"max_concurrent_videos": r.count(&l.MaxConcurrentVideos, "max_concurrent_videos"),
	}
}

// video checks the form of a section that this version does not use.
func (r *reader) video(n ast.Node) {
	var unused time.Duration
	anyDuration := func(what string) func(ast.Node) { return into(r, &unused, what, ParseDuration) }
	r.object(n, "video", fields{
		"retention":        anyDuration("retention"),
		"poll":             anyDuration("poll"),
		"duplicate_window": anyDuration("duplicate_window"),
	})
}

// webhooks checks the form of a section that this version does not use.
func (r *reader) webhooks(n ast.Node) {
	var unused bool
	r.object(n, "webhooks", fields{"allow_private": r.flag(&unused, "allow_private")})
}
