package video

// The families' names, as a [Task] has them. A model that no table describes
// has none: the checks that are common to all are made, and its request passes
// through.
const (
	FamilyBeta  = "beta"
	FamilyGamma = "gamma"
)

// Family is a group of models with one form of request and of answer.
type Family struct {
	Name   string
	Models []string // public ids
}

// Families are the families of api.md.
func Families() []Family {
	b, g := Family{Name: FamilyBeta}, Family{Name: FamilyGamma}
	for _, row := range BetaFamily() {
		b.Models = append(b.Models, row.IDs...)
	}
	for _, row := range GammaFamily() {
		g.Models = append(g.Models, row.ID)
	}
	return []Family{b, g}
}

// What is taken for granted of a model that no table describes.
const (
	unknownLongest    = 30      // seconds of a request that does not say
	unknownMost       = 60 * 60 // seconds that a request may say
	unknownResolution = p1080   // of a request that does not say
)
