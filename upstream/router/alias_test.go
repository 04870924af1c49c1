package router

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// All accounts share the vendor's account: what one of them names there must not be what
// another one names so.
func TestAnUpstreamGetsAliasesOfTheCallersOwnNames(t *testing.T) {
	const alias = `"alice/`
	for _, row := range []struct {
		name       string
		op         upstream.Op
		channel    Channel
		body, want string
	}{
		{"of users and caches", upstream.ChatCompletion, Channel{}, `{"model":"m","user":"u","safety_identifier":"s","prompt_cache_key":"k","session_id":"i","cache_salt":"c"}`,
			`{"model":"m","user":` + alias + `u","safety_identifier":` + alias + `s","prompt_cache_key":` + alias + `k","session_id":` + alias + `i","cache_salt":` + alias + `c"}`},
		{"of a number", upstream.ChatCompletion, Channel{}, `{"model":"m","user_id":7}`, `{"model":"m","user_id":` + alias + `7"}`},
		{"of the user of a message", upstream.Messages, Channel{}, `{"model":"m","metadata":{"user_id":"u","x":1.0}}`, `{"model":"m","metadata":{"user_id":` + alias + `u","x":1.0}}`},
		{"not of a chat's metadata, which are the caller's", upstream.ChatCompletion, Channel{}, `{"model":"m","metadata":{"user_id":"u"}}`, `{"model":"m","metadata":{"user_id":"u"}}`},
		{"not of nothing", upstream.Responses, Channel{}, `{"model":"m","user":null,"prompt_cache_key":""}`, `{"model":"m","user":null,"prompt_cache_key":""}`},
		{"not of what the channel passes", upstream.Responses, Channel{Pass: []string{"user", "Prompt_Cache_Key"}}, `{"model":"m","user":"u","prompt_cache_key":"k","safety_identifier":"s"}`, `{"model":"m","user":"u","prompt_cache_key":"k","safety_identifier":` + alias + `s"}`},
		{"under another name", upstream.ChatCompletion, Channel{Rename: map[string]string{"user": "safety_identifier"}}, `{"model":"m","user":"u"}`, `{"model":"m","safety_identifier":` + alias + `u"}`},
		{"of embeddings", upstream.Embeddings, Channel{}, `{"model":"m","user":"u"}`, `{"model":"m","user":` + alias + `u"}`},
	} {
		var got string
		row.channel.Name, row.channel.Models = "c", map[string]string{"m": "m"}
		row.channel.Upstream = upstream.Func(func(_ context.Context, c *upstream.Call) (*upstream.Reply, error) {
			data, err := c.Body.Bytes()
			got = string(data)
			return &upstream.Reply{Status: 200, Body: io.NopCloser(strings.NewReader("{}"))}, err
		})
		r, err := New([]Channel{row.channel}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := rawjson.Index([]byte(row.body), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := r.Do(t.Context(), &upstream.Call{
			Op: row.op, Model: "m", Account: "alice", Body: upstream.ObjectBody(o), Alias: func(account, name string) string { return account + "/" + name },
		})
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		_ = reply.Body.Close()
		if got != row.want {
			t.Errorf("%s: sent %s, want %s", row.name, got, row.want)
		}
	}
}
