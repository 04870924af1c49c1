package main

import (
	"cmp"
	"log/slog"
)

// logger writes to stderr in the chosen form.
func (p *program) logger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		return nil, usagef("--log-level must be debug, info, warn or error, not %q", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch cmp.Or(format, "text") {
	case "text":
		return slog.New(slog.NewTextHandler(p.stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(p.stderr, o)), nil
	}
	return nil, usagef("--log-format must be text or json, not %q", format)
}
