package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTheSectionOfMCPIsRead(t *testing.T) {
	m := read(t, sound+"\nmcp: {enabled: false, origins: [https://app.example.com, \"http://10.0.0.1:3000\"]}\n").MCP
	if !m.Off || !slices.Equal(m.Origins, []string{"https://app.example.com", "http://10.0.0.1:3000"}) {
		t.Errorf("it is %+v", m)
	}
	plain := read(t, sound).MCP
	if plain.Off || plain.Origins != nil {
		t.Errorf("without a section it is %+v", plain)
	}
	on := read(t, sound+"\nmcp: {enabled: true}\n").MCP
	if !on.Same(&plain) || m.Same(&plain) || m.Same(&MCP{Off: true}) {
		t.Error("what is the same is not told from what is not")
	}
}

func TestAnOriginIsWhatABrowserSends(t *testing.T) {
	for _, wrong := range []string{"app.example.com", "https://app.example.com/", "https://app.example.com/path", "ftp://app.example.com", "https://", "https://user@app.example.com", "'*'", "null"} {
		_, err := Read("f", []byte(sound+"\nmcp: {origins: ["+wrong+"]}\n"), env)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "origin") {
			t.Errorf("%s gave %v", wrong, err)
		}
	}
}
