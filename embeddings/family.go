package embeddings

import (
	"slices"
	"sync"
)

// Family is a group of models that obey the same rules.
type Family struct {
	Models     []string // public ids
	Batch      int      // the most texts of one upstream call
	Dimensions []int64  // the lengths that a vector can have; empty means whatever the upstream takes
	// Floats says that the upstream gives numbers only: base64 is made here.
	Floats bool
	// Texts says that the upstream takes no tokens, only texts.
	Texts bool
}

// Families are the models of api.md, Embedding request and response, with the
// limits of their vendors' pages.
func Families() []Family {
	return []Family{
		{Models: []string{"text-embedding-v4"}, Batch: 10, Dimensions: []int64{64, 128, 256, 512, 768, 1024, 1536, 2048}, Floats: true, Texts: true},
		{Models: []string{"text-embedding-004", "embx-001", "embx-2-preview"}, Batch: 100, Floats: true, Texts: true},
		{Models: []string{"vox-4-large", "vox-4", "vox-4-lite"}, Batch: 1000, Dimensions: []int64{256, 512, 1024, 2048}, Texts: true},
	}
}

// families are [Families], made once: nobody changes them.
var families = sync.OnceValue(Families)

// family is the model's; the zero Family for one that no table describes, which
// has OpenAI's limits.
func family(model string) Family {
	for _, f := range families() {
		if slices.Contains(f.Models, model) {
			return f
		}
	}
	return Family{Batch: 2048}
}
