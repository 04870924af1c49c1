// Package presets holds the vendors that the gateway knows without a configuration file:
// their addresses, the variables with their keys, and what their APIs lack.
package presets

import (
	_ "embed"
	"strings"
)

//go:embed presets.yaml
var file string

// YAML returns presets.yaml, whose comment says what its fields mean.
func YAML() []byte { return []byte(file) }

// Address says where a vendor's API is, by the fields of presets.yaml.
type Address struct {
	Driver   string
	BaseURL  string // empty for the driver's own; ${NAME} stands for a variable
	Path     string // is added to BaseURL; may be empty
	Messages string // the path of Anthropic's API at the same host; may be empty
}

// Addresses returns the addresses of all presets but those of the operator's own servers. It
// reads the lines that it needs, so that a program which imports it links no reader of YAML. A
// test compares it with what such a reader finds.
func Addresses() (all []Address) {
	for entry := range strings.SplitSeq("\n"+file, "\n- channel:") {
		values := make(map[string]string)
		for line := range strings.Lines(entry) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			values[name] = strings.ReplaceAll(value, "$${", "${")
		}
		if values["driver"] != "" && values["local"] == "" {
			all = append(all, Address{values["driver"], values["base_url"], values["path"], values["messages"]})
		}
	}
	return all
}
