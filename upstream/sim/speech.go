package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"unicode"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/speechapi"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The simulated voice: a tone of 20 ms for each character, and silence for
// white space. It is no speech, and its file says so.
const (
	simulatedRate   = 24_000
	simulatedTone   = simulatedRate / 50 // samples of one character
	simulatedVolume = 6_000              // of 32,767
	longestText     = 4_096              // characters, as OpenAI's
)

// synthesize answers a request for speech with a WAV file: the simulated vendor
// has no other format.
func (u *Upstream) synthesize(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, err := speechapi.ReadCall(call)
	if err == nil {
		err = r.Validate(nil)
	}
	if err == nil && r.Characters() > longestText {
		err = fault.Invalid("input", fmt.Sprintf("The simulated vendor speaks at most %d characters at once.", longestText))
	}
	if err == nil && !r.TakesWAV {
		err = speechapi.CannotEncode(nil)
	}
	if err := u.refusal(err, call.Model); err != nil {
		return nil, err
	}
	return u.send(ctx, speechapi.ContentType(speech.WAV), tones(r.Input), f)
}

// tones is a WAV file with a tone for each character of a text.
func tones(text string) []byte {
	const note = "Simulated by tollhouse: tones, no speech. " // of even length
	form := speech.PCM{Channels: 1, Rate: simulatedRate, Bits: 16}
	head := speechapi.WAVHeader(form)
	file := append([]byte(nil), head[:36]...)
	file = append(file, "LIST"...)
	file = binary.LittleEndian.AppendUint32(file, uint32(12+len(note)))
	file = append(file, "INFOICMT"...)
	file = binary.LittleEndian.AppendUint32(file, uint32(len(note)))
	file = append(file, note...)
	file = append(file, head[36:]...)
	begin := len(file)
	for _, c := range text {
		file = appendTone(file, c)
	}
	binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
	binary.LittleEndian.PutUint32(file[begin-4:], uint32(len(file)-begin))
	return file
}

// appendTone appends the samples of a character.
func appendTone(samples []byte, c rune) []byte {
	volume := float64(simulatedVolume)
	if unicode.IsSpace(c) {
		volume = 0
	}
	const lowest, steps, octave = 220, 36, 12
	pitch := lowest * math.Exp2(float64(c%steps)/octave)
	for i := range simulatedTone {
		swell := math.Sin(math.Pi * float64(i) / simulatedTone) // without which it clicks
		value := volume * swell * math.Sin(2*math.Pi*pitch*float64(i)/simulatedRate)
		samples = binary.LittleEndian.AppendUint16(samples, uint16(int16(value)))
	}
	return samples
}
