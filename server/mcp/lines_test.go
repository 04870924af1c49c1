package mcp_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/server/mcp"
)

func TestALineThatIsNoMessageEndsNothing(t *testing.T) {
	s := open(t, shopOptions{})
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- mcp.Serve(context.Background(), s.g, s.key, toServer, fromServer, mcp.Options{}) }()
	answers := bufio.NewReader(toClient)
	ask := func(line, want string) {
		t.Helper()
		go func() { _, _ = io.WriteString(fromClient, line) }()
		got, err := answers.ReadString('\n')
		if err != nil || !strings.Contains(got, want) {
			t.Fatalf("%.60q was answered with %q, %v; want %s", line, got, err, want)
		}
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n", `"id":1`)
	if _, err := io.WriteString(fromClient, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"hello":                               `"code":-32700`,
		`{"jsonrpc":"2.0",`:                   `"code":-32700`,
		"{}":                                  `"code":-32700`,
		"7":                                   `"code":-32700`,
		`{"jsonrpc":"1.0","id":1}`:            `"code":-32700`,
		`[{"jsonrpc":"2.0","id":2}]`:          `"code":-32600`,
		strings.Repeat("x", 200_000):          `"code":-32700`,
		"\n\r\n \n\xff\xfe":                   `"code":-32700`,
		`{"jsonrpc":"2.0","id":9,"method":"`:  `"code":-32700`,
		"\ufeff" + `{"jsonrpc":"2.0","id":1}`: `"code":-32700`,
	} {
		ask(line+"\n", want)
		ask(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`+"\r\n", `"estimate_cost"`)
	}
	_ = fromClient.Close()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
