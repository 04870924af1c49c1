// Package presets holds the vendors that the gateway knows without a configuration file:
// their addresses, the variables with their keys, and what their APIs lack.
package presets

import _ "embed"

//go:embed presets.yaml
var file string

// YAML returns presets.yaml, whose comment says what its fields mean.
func YAML() []byte { return []byte(file) }
