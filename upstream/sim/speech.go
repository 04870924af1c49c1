package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"unicode"

	"github.com/tollhouse-ai/gateway/fault"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The simulated voice: a tone of 20 ms for each character, and silence for white space. It is
// not speech, and its file says so.
const (
	simulatedRate   = 24_000
	simulatedTone   = simulatedRate / 50 // samples of one character
	simulatedVolume = 3_000              // of 32,767
	longestText     = 4_096              // characters, as OpenAI's
)

// synthesize answers a request for speech with a WAV file: the simulated vendor
// has no other format.
func (u *Upstream) synthesize(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, err := speechop.ReadCall(call)
	if err == nil {
		err = obeys(r)
	}
	if err == nil && r.Characters() > longestText {
		err = fault.Invalid("input", fmt.Sprintf("The simulated vendor speaks at most %d characters at once.", longestText))
	}
	if err == nil && !r.TakesWAV {
		err = speechop.CannotEncode(nil)
	}
	if err := u.refusal(err, call.Model); err != nil {
		return nil, err
	}
	return u.send(ctx, speechop.ContentType(speech.WAV), tones(r.Input), f)
}

// tones is a WAV file with a tone for each character of a text.
func tones(text string) []byte {
	const note = "LIST\x36\x00\x00\x00INFOICMT\x2a\x00\x00\x00Simulated by tollhouse: tones, no speech. "
	head := speechop.WAVHeader(speech.PCM{Channels: 1, Rate: simulatedRate, Bits: 16})
	file := slices.Concat(head[:36], []byte(note), head[36:])
	begin := len(file)
	for _, c := range text {
		value := int16(simulatedVolume)
		if unicode.IsSpace(c) {
			value = 0
		}
		half := 16 + int(c)%32 // the samples of half a wave
		for i := range simulatedTone {
			if i%half == 0 {
				value = -value
			}
			file = binary.LittleEndian.AppendUint16(file, uint16(value))
		}
	}
	binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
	binary.LittleEndian.PutUint32(file[begin-4:], uint32(len(file)-begin))
	return file
}
