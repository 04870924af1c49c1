package speech

import (
	"slices"
	"sync"
)

// Family is a group of models that obey the same rules.
type Family struct {
	Models []string // public ids
	// Formats are the values of response_format; none if the field is refused.
	Formats []string
	// Default is the format of an answer where the request names none.
	Default string
	// Instructed says that `instructions` are taken.
	Instructed bool
	// Limit is the most characters of one upstream call; 0 means no limit.
	Limit int
	// Voices are the preset voices, of which the first is the default; none if
	// whatever the request names is passed on.
	Voices []string
}

// Families are the models of api.md, Speech request, with the limits and voices
// of their vendor's page.
func Families() []Family {
	const limit = 600
	return []Family{
		{
			Models: []string{"alpha3-tts-flash"}, Formats: []string{MP3, WAV}, Default: MP3,
			Limit: limit, Voices: slices.Concat(commonVoices(), flashVoices()),
		},
		{Models: []string{"alpha3-tts-instruct-flash"}, Default: WAV, Instructed: true, Limit: limit, Voices: commonVoices()},
	}
}

func commonVoices() []string {
	return []string{
		"Cherry", "Serena", "Ethan", "Chelsie", "Momo", "Vivian", "Moon", "Maia", "Kai", "Nofish", "Bella", "Eldric Sage",
		"Mia", "Mochi", "Bellona", "Vincent", "Bunny", "Neil", "Elias", "Arthur", "Nini", "Seren", "Pip", "Stella",
	}
}

func flashVoices() []string {
	return []string{
		"Jennifer", "Ryan", "Katerina", "Aiden", "Bodega", "Sonrisa", "Alek", "Dolce", "Sohee", "Ono Anna", "Lenn", "Emilien",
		"Andre", "Radio Gol", "Jada", "Dylan", "Li", "Marcus", "Roy", "Peter", "Sunny", "Eric", "Rocky", "Kiki",
	}
}

// openAIVoices are the names that OpenAI's clients send; they mean the default
// preset of a model that has presets.
func openAIVoices() []string {
	return []string{
		"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse",
	}
}

// families are [Families], made once: nobody changes them.
var families = sync.OnceValue(Families)

// family is the model's; for one that no table describes it is OpenAI's.
func family(model string) (f Family, described bool) {
	for _, f := range families() {
		if slices.Contains(f.Models, model) {
			return f, true
		}
	}
	return Family{Formats: slices.Clone(formats), Default: MP3, Instructed: true}, false
}
