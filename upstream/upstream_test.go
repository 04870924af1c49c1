package upstream

import (
	"errors"
	"testing"
)

// wrapped is a middleware's upstream.
type wrapped struct{ Upstream }

func (w wrapped) Unwrap() Upstream { return w.Upstream }

func TestWhatAnUpstreamCanDoIsAskedBehindMiddlewares(t *testing.T) {
	chats := oneWire{ChatCompletion, new([]string), "main", nil, nil}
	mute := Func(chats.Do)
	for name, row := range map[string]struct {
		up              Upstream
		supports, lists bool // messages; its models
	}{
		"one that supports chats alone": {wrapped{wrapped{chats}}, false, false},
		"one that lists its models":     {wrapped{wrapped{listing{chats}}}, false, true},
		"one that cannot say":           {wrapped{mute}, true, false},
		"nothing":                       {nil, true, false},
	} {
		_, lists := As[Lister](row.up)
		if supports := Supports(row.up, Messages, "m"); supports != row.supports || lists != row.lists {
			t.Errorf("%s: supports messages: %t, lists its models: %t", name, supports, lists)
		}
	}
	if !Supports(wrapped{chats}, ChatCompletion, "m") {
		t.Error("chats are not supported")
	}
}

func TestEveryFailureHasAMessage(t *testing.T) {
	for status := range 600 {
		for _, sent := range []bool{true, false} {
			if e := (&Failure{Status: status, Sent: sent}).Fault(); e.Message == "" || e.HTTPStatus() < 400 || status == 404 && e.HTTPStatus() != 404 {
				t.Errorf("status %d: %v", status, e)
			}
		}
	}
	if text := (&Failure{Status: 529, Err: errors.New("why")}).Error(); text != "upstream status 529: why" {
		t.Error(text)
	}
}
