package config

import "github.com/tollhouse-ai/gateway/auth"

// limits is the table of the limits of keys.
func (r *reader) limits(l *auth.Limits) fields {
	return fields{
		"rpm":                   r.count(&l.RPM, "rpm"),
		"tpm":                   r.count(&l.TPM, "tpm"),
		"max_concurrent":        r.count(&l.MaxConcurrent, "max_concurrent"),
		"max_concurrent_videos": r.count(&l.MaxConcurrentVideos, "max_concurrent_videos"),
	}
}
