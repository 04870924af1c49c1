package config

import (
	"time"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
)

// Video is how video tasks are asked after and kept. A duration of zero means
// the default.
type Video struct {
	Pos             Pos
	Retention, Poll time.Duration
	DuplicateWindow time.Duration // negative: off
}

// Webhooks is whom the gateway may tell of a video's end.
type Webhooks struct {
	Pos          Pos
	AllowPrivate bool // http, any port and private addresses too
}

// The defaults of a file (server.md, Config file).
const (
	defaultRetention = 7 * 24 * time.Hour
	defaultPoll      = 5 * time.Second
	defaultDuplicateWindow    = 5 * time.Second
)

// usualVideo is what a file says that says nothing of it: so a file in which a
// default is written out is the same as one in which it is not.
func defaultVideo() Video {
	return Video{Retention: defaultRetention, Poll: defaultPoll, DuplicateWindow: defaultDuplicateWindow}
}

// Same reports whether the two say the same, wherever they stand.
func (v Video) Same(o Video) bool {
	v.Pos, o.Pos = Pos{}, Pos{}
	return v == o
}

// VideoOptions are those of the gateway.
func (c *Config) VideoOptions() gateway.VideoOptions {
	return gateway.VideoOptions{
		Poll: c.Video.Poll, Retention: c.Video.Retention, DuplicateWindow: c.Video.DuplicateWindow,
		AllowPrivate: c.Webhooks.AllowPrivate,
	}
}

func (r *reader) video(n ast.Node, v *Video) {
	v.Pos = position(n)
	r.object(n, "video", fields{
		"retention":        r.duration(&v.Retention, "retention"),
		"poll":             r.duration(&v.Poll, "poll"),
		"duplicate_window": into(r, &v.DuplicateWindow, "duplicate_window", window),
	})
}

// window reads a duration of which 0 means never.
func window(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d == 0 {
		d = -1
	}
	return d, err
}

func (r *reader) webhooks(n ast.Node, w *Webhooks) {
	w.Pos = position(n)
	r.object(n, "webhooks", fields{"allow_private": r.boolean(&w.AllowPrivate, "allow_private")})
}
