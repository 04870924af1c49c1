package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
)

func TestVideosAreKeptAsTheFileSays(t *testing.T) {
	usual := gateway.VideoOptions{Poll: 5 * time.Second, Retention: 168 * time.Hour, DuplicateWindow: 5 * time.Second}
	edited := func(edit func(*gateway.VideoOptions)) gateway.VideoOptions {
		o := usual
		edit(&o)
		return o
	}
	for text, want := range map[string]gateway.VideoOptions{
		"":                                 usual,
		"video:":                           usual,
		"video: {}":                        usual,
		"video: {poll: 1m}":                edited(func(o *gateway.VideoOptions) { o.Poll = time.Minute }),
		"video: {retention: 30d}":          edited(func(o *gateway.VideoOptions) { o.Retention = 720 * time.Hour }),
		"video: {duplicate_window: 1d}":    edited(func(o *gateway.VideoOptions) { o.DuplicateWindow = 24 * time.Hour }),
		"video: {duplicate_window: 0s}":    edited(func(o *gateway.VideoOptions) { o.DuplicateWindow = -1 }), // off
		"video: {duplicate_window: 0d}":    edited(func(o *gateway.VideoOptions) { o.DuplicateWindow = -1 }),
		"webhooks: {}":                     usual,
		"webhooks: {allow_private: false}": usual,
		"webhooks: {allow_private: true}":  edited(func(o *gateway.VideoOptions) { o.AllowPrivate = true }),
	} {
		if diff := cmp.Diff(want, read(t, sound+text).VideoOptions()); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestASectionOfVideosIsTheSameWhereverItStands(t *testing.T) {
	plain := read(t, sound).Video
	for text, same := range map[string]bool{
		"video: {poll: 5s, retention: 7d, duplicate_window: 5s}": true,
		"limits: {rpm: 1}\nvideo: {retention: 168h}":             true,
		"video: {poll: 6s}":             false,
		"video: {retention: 8d}":        false,
		"video: {duplicate_window: 0s}": false,
	} {
		if got := plain.Same(read(t, sound+text).Video); got != same {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestThePlacesAreReadWithoutTheRestOfTheFile(t *testing.T) {
	p, err := ReadLocations("t.yaml", []byte("admin: 127.0.0.1:7\nchannels: [{keys: ['${NOT_SET}']}]"), env)
	if err != nil || p.Admin.Value != "127.0.0.1:7" {
		t.Errorf("%+v, %v", p, err)
	}
}
