package config

import (
	"strings"
	"testing"
)

func TestTheStoreInMemoryMayBeAPlainWord(t *testing.T) {
	for _, text := range []string{`store: memory`, `store: "memory:"`, `store: 'memory'`} {
		if c := read(t, sound+text); c.Store.Value != Memory {
			t.Errorf("%s is %q", text, c.Store.Value)
		}
		places, err := ReadLocations("t.yaml", []byte(text), env)
		if err != nil || places.Store.Value != Memory {
			t.Errorf("%s is %q, %v", text, places.Store.Value, err)
		}
	}
	refuses(t, sound+"store: memories", "4:8: store: it must be sqlite:PATH")
}

func TestAStoreThatNeedsQuotesIsToldSo(t *testing.T) {
	for _, text := range []string{"store: memory:", "store: memory:   # for a test\n", "store: sqlite:\nlisten: 127.0.0.1:1\n"} {
		refuses(t, sound+text, `a value that ends in ":" needs quotes, such as store: "memory:"`)
	}
	for _, text := range []string{"data: x: y:", "store: a: b"} { // it is something else that is wrong
		_, err := Read("t.yaml", []byte(sound+text), env)
		if err == nil || strings.Contains(err.Error(), "quotes") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
