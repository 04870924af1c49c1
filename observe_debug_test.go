package gateway_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
)

func TestTheDebugLogTellsOfAttempts(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d := &gateway.DebugLog{Logger: logger}
	h := newHouse(t, twoDoors(t, &moody{scripted: scripted{text: whole("")}}), "1", func(o *gateway.Options) { o.Observe = d.Observer() })
	if _, err := h.Chat(t.Context(), chatRequest()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"msg=attempt", "op=chat channel=one model=vendor-m", "status=503", "channel=two"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "four words") {
		t.Errorf("the log has the vendor's text:\n%s", log.String())
	}
}

func TestTheDebugLogWritesSoManyLinesOfAKindASecond(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	d := &gateway.DebugLog{
		Logger:    slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		PerSecond: 2, Now: func() time.Time { return now },
	}
	o := d.Observer()
	for range 5 {
		o.Event(context.Background(), gateway.TaskMoved{})
	}
	o.Event(context.Background(), gateway.NoticeTried{})
	o.Event(context.Background(), gateway.CaptureRetried{})
	now = now.Add(time.Second)
	o.Event(context.Background(), gateway.TaskMoved{})
	if n := strings.Count(log.String(), "msg=task"); n != 3 {
		t.Errorf("%d lines tell of tasks:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), "left_out=3") || strings.Count(log.String(), "left_out") != 1 {
		t.Errorf("the log does not tell what it has left out:\n%s", log.String())
	}
	if !strings.Contains(log.String(), "msg=notice") || !strings.Contains(log.String(), "msg=capture") {
		t.Errorf("one kind has used up the room of another:\n%s", log.String())
	}
}

func TestTheDebugLogIsSilentAboveItsLevel(t *testing.T) {
	var log bytes.Buffer
	d := &gateway.DebugLog{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	d.Observer().Event(context.Background(), gateway.TaskMoved{})
	if log.Len() != 0 {
		t.Errorf("it wrote %s", log.String())
	}
}
