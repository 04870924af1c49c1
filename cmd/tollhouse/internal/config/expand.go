package config

import (
	"errors"
	"fmt"
	"strings"
)

// Env looks a variable of the environment up; os.LookupEnv is one.
type Env func(name string) (value string, set bool)

// expand puts variables in the place of ${NAME}; "$${" stands for "${" itself.
// Nothing in a value is expanded again.
func expand(text string, env Env) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !isName(name) {
			return "", errors.New("${ must be followed by a variable's name and }; write $${ for ${ itself")
		}
		value, set := env(name)
		if !set {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		out.WriteString(before + value)
		text = after
	}
}

func isName(name string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return name != "" && strings.Trim(name, letters+"0123456789") == "" && strings.Contains(letters, name[:1])
}
