package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
)

// preset is a channel that stands ready for whoever has a vendor's key.
type preset struct {
	vendor  string
	driver  string // empty means openai
	keyVar  string // its twin …_BASE_URL is urlVar
	urlVar  string
	baseURL string // empty means the driver's
	path    string // added to the base URL, whosever it is
	models  map[string]string
	begins  string // how the ids begin that "*" lets through
	drop    []string
	rename  map[string]string
}

var presets = []preset{
	{vendor: "openai", keyVar: "OPENAI_API_KEY", urlVar: "OPENAI_BASE_URL", models: map[string]string{"*": "*"}},
	{
		// The vendor's own ids, which openai's channel is then not asked for.
		vendor: "anthropic", driver: "anthropic", keyVar: "ANTHROPIC_API_KEY", urlVar: "ANTHROPIC_BASE_URL",
		models: map[string]string{"*": "*"}, begins: "claude-",
	},
	{
		vendor: "moonshot", keyVar: "MOONSHOT_API_KEY", urlVar: "MOONSHOT_BASE_URL", baseURL: "https://api.moonshot.ai/v1",
		models: map[string]string{"delta-k3": "kimi-k3"}, rename: map[string]string{"max_tokens": "max_completion_tokens"},
	},
	{
		// The variable names the bare host, as for the other half of the vendor.
		vendor: "dashscope-compatible", keyVar: "DASHSCOPE_API_KEY", urlVar: "DASHSCOPE_BASE_URL",
		baseURL: "https://dashscope.aliyuncs.com", path: "/compatible-mode/v1",
		models: map[string]string{"text-embedding-v4": "text-embedding-v4"}, drop: []string{"user"},
	},
	{
		vendor: "dashscope", driver: "dashscope", keyVar: "DASHSCOPE_API_KEY", urlVar: "DASHSCOPE_BASE_URL",
		baseURL: "https://dashscope.aliyuncs.com", path: "/api/v1",
		models: map[string]string{
			"alpha-image-2.0": "qwen-image-2.0", "alpha-image-2.0-pro": "qwen-image-2.0-pro", "alpha-image-max": "qwen-image-max",
			"alpha-image-edit": "qwen-image-edit", "alpha-image-edit-plus": "qwen-image-edit-plus", "alpha-image-edit-max": "qwen-image-edit-max",
			"alpha3-tts-flash": "qwen3-tts-flash", "alpha3-tts-instruct-flash": "qwen3-tts-instruct-flash",
			"beta2.5-t2v-preview": "wan2.5-t2v-preview", "beta2.5-i2v-preview": "wan2.5-i2v-preview",
			"beta2.6-t2v": "wan2.6-t2v", "beta2.6-i2v": "wan2.6-i2v", "beta2.6-i2v-flash": "wan2.6-i2v-flash",
			"beta2.6-r2v": "wan2.6-r2v", "beta2.6-r2v-flash": "wan2.6-r2v-flash",
			"beta2.7-t2v": "wan2.7-t2v", "beta2.7-t2v-2026-04-25": "wan2.7-t2v-2026-04-25",
			"beta2.7-i2v": "wan2.7-i2v", "beta2.7-i2v-2026-04-25": "wan2.7-i2v-2026-04-25", "beta2.7-r2v": "wan2.7-r2v",
		},
	},
	{
		// Without text-embedding-004, which the vendor has withdrawn.
		vendor: "gemini", keyVar: "GEMINI_API_KEY", urlVar: "GEMINI_BASE_URL",
		baseURL: "https://generativelanguage.googleapis.com/v1beta/openai",
		models:  map[string]string{"embx-001": "gemini-embedding-001", "embx-2-preview": "gemini-embedding-2-preview"}, drop: []string{"user"},
	},
	{
		vendor: "voyage", driver: "voyage", keyVar: "VOYAGE_API_KEY", urlVar: "VOYAGE_BASE_URL",
		models: map[string]string{"vox-4-large": "voyage-4-large", "vox-4": "voyage-4", "vox-4-lite": "voyage-4-lite"},
	},
	{
		// The ids of the Chinese site; the other one's differ, and want a file.
		vendor: "ark", driver: "ark", keyVar: "ARK_API_KEY", urlVar: "ARK_BASE_URL",
		models: map[string]string{
			"gamma-2.5": "doubao-seedance-2-5-260628", "gamma-2-0-260128": "doubao-seedance-2-0-260128",
			"gamma-2-0-fast-260128": "doubao-seedance-2-0-fast-260128", "gamma-2-0-mini-260615": "doubao-seedance-2-0-mini-260615",
			"gamma-1-5-pro-251215": "doubao-seedance-1-5-pro-251215", "gamma-1-0-pro-250528": "doubao-seedance-1-0-pro-250528",
			"gamma-1-0-pro-fast-251015": "doubao-seedance-1-0-pro-fast-251015",
		},
	},
}

const defaultAccount = "default"

// presets makes a channel for each vendor whose key is in the environment.
// Usage is counted and no money moves.
func (p *program) presets() *source {
	src := &source{firstAccount: defaultAccount, config: &config.Config{
		Billing:  config.Setting{Value: config.Count},
		Accounts: []config.Account{{Name: defaultAccount}},
	}}
	for _, v := range presets {
		if key, _ := p.env(v.keyVar); key != "" {
			src.config.Channels = append(src.config.Channels, p.channel(v, key))
		}
	}
	reserveModels(src.config.Channels)
	return src
}

func (p *program) channel(v preset, key string) config.Channel {
	base, _ := p.env(v.urlVar)
	if base == "" {
		base = v.baseURL
	}
	if v.path != "" {
		base = strings.TrimSuffix(base, "/") + v.path
	}
	return config.Channel{
		Name: v.vendor, Driver: cmp.Or(v.driver, "openai"), BaseURL: base, Keys: []secret.String{secret.New(key)},
		Models: v.models, Drop: v.drop, Rename: v.rename, Begins: v.begins,
	}
}

// reserve keeps a channel that passes every id through from being asked for a
// model that another vendor has.
func reserveModels(channels []config.Channel) {
	var taken []string
	for i := range channels {
		for _, id := range slices.Sorted(maps.Keys(channels[i].Models)) {
			if shown := channels[i].Shown(id); shown != "*" {
				taken = append(taken, shown)
			}
		}
	}
	for i := range channels {
		c := &channels[i]
		if _, every := c.Models["*"]; every && c.Begins == "" {
			c.Except = taken
		}
	}
}
