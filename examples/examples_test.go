package examples

import (
	"testing"

	"github.com/tollhouse-ai/gateway/examples/internal/programs"
)

func TestEveryExamplePrintsWhatItSays(t *testing.T) { programs.Check(t, 21) }
