// Package openapi is the OpenAPI 3.1 document of the HTTP API.
package openapi

import "embed"

//go:embed openapi.json
var files embed.FS

// JSON is the document as it is served: a fresh copy of the same bytes at every
// call. It fails only in a program that was built without them.
func JSON() ([]byte, error) { return files.ReadFile("openapi.json") }
