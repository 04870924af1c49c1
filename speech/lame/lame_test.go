package lame

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/speech"
)

// cat stands in for lame: what goes in comes out.
func cat(ctx context.Context, _ string, _ ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "cat")
}

func found(string) (string, error) { return "/bin/lame", nil }

var voice = speech.PCM{Channels: 1, Rate: 22_050, Bits: 16}

func TestBytesGoThroughTheProgram(t *testing.T) {
	e := &Encoder{Look: found, command: cat}
	in := bytes.Repeat([]byte("abcd"), 1<<18)
	out, err := e.Encode(t.Context(), voice, bytes.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(out)
	if err = errors.Join(err, out.Close(), out.Close()); err != nil || !bytes.Equal(data, in) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestTheProgramDoesNotSeeTheEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-vendor")
	e := &Encoder{Look: found, command: func(ctx context.Context, _ string, _ ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "/bin/sh", "-c", "cat >/dev/null; /usr/bin/env")
	}}
	out, err := e.Encode(t.Context(), voice, strings.NewReader("abcd"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	seen, err := io.ReadAll(out)
	if err != nil || strings.Contains(string(seen), "sk-vendor") || !strings.Contains(string(seen), "LC_ALL=C") {
		t.Errorf("the program saw %q, %v", seen, err)
	}
}

func TestTheFirstBytesAreThereBeforeTheLastAreSent(t *testing.T) {
	e := &Encoder{Look: found, command: cat}
	samples, in := io.Pipe()
	out, err := e.Encode(t.Context(), voice, samples)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte("abcd"))
	if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	_ = in.Close()
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

func TestSamplesThatFailAreNoEnd(t *testing.T) {
	torn := errors.New("torn")
	e := &Encoder{Look: found, command: cat}
	out, err := e.Encode(t.Context(), voice, io.MultiReader(strings.NewReader("abcd"), failing{torn}))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(out); string(data) != "abcd" || !errors.Is(err, torn) {
		t.Errorf("%q, %v", data, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestAProgramThatFailsTellsWhy(t *testing.T) {
	e := &Encoder{Look: found, command: func(ctx context.Context, _ string, _ ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", "echo half; echo no codec >&2; exit 3")
	}}
	out, err := e.Encode(t.Context(), voice, strings.NewReader("abcd"))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(out); string(data) != "half\n" || err == nil || !strings.Contains(err.Error(), "no codec") {
		t.Errorf("%q, %v", data, err)
	}
}

func TestClosingEndsTheProgram(t *testing.T) {
	e := &Encoder{Look: found, command: cat}
	samples, in := io.Pipe()
	out, err := e.Encode(t.Context(), voice, samples)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.CloseWithError(context.Canceled) // as the voice does when the call ends
	if err := out.Close(); err != nil {
		t.Error(err)
	}
}

func TestAMissingProgramIsSaid(t *testing.T) {
	e := &Encoder{Look: func(string) (string, error) { return "", exec.ErrNotFound }}
	_, err := e.Encode(t.Context(), voice, strings.NewReader(""))
	if e.Ready() == nil || !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "lame") {
		t.Errorf("%v, %v", e.Ready(), err)
	}
	if got := strings.Join(arguments(voice), " "); !strings.Contains(got, "-s 22.05 --bitwidth 16 --signed") {
		t.Errorf("arguments %s", got)
	}
}

func TestTheRealProgramMakesAnMP3(t *testing.T) {
	e := new(Encoder)
	if err := e.Ready(); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	for _, form := range []speech.PCM{voice, {Channels: 2, Rate: 48_000, Bits: 16}, {Channels: 1, Rate: 24_000, Bits: 24}, {Channels: 1, Rate: 8_000, Bits: 8}} {
		out, err := e.Encode(t.Context(), form, bytes.NewReader(make([]byte, 192_000)))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(out)
		if err = errors.Join(err, out.Close()); err != nil || len(data) < 1000 || data[0] != 0xFF || data[1]&0xE0 != 0xE0 {
			t.Errorf("%+v: %d bytes, %v", form, len(data), err)
		}
	}
}
