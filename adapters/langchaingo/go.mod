module github.com/tollhouse-ai/gateway/adapters/langchaingo

go 1.26.0

toolchain go1.26.8

require (
	github.com/tmc/langchaingo v0.1.14
	github.com/tollhouse-ai/gateway v0.0.0
)

require (
	github.com/dlclark/regexp2 v1.10.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkoukk/tiktoken-go v0.1.6 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace github.com/tollhouse-ai/gateway => ../..
