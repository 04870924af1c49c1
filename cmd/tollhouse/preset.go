package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// preset is a channel that stands ready for whoever has a vendor's key.
type preset struct {
	vendor  string
	driver  string // empty means openai
	keyVar  string // its twin …_BASE_URL is urlVar
	urlVar  string
	baseURL string            // empty means the driver's
	path    string            // added to the base URL, whosever it is
	models  map[string]string // nil: this version has no driver for the vendor
	drop    []string
	rename  map[string]string
}

var presets = []preset{
	{vendor: "openai", keyVar: "OPENAI_API_KEY", urlVar: "OPENAI_BASE_URL", models: map[string]string{"*": "*"}},
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
	{vendor: "anthropic", keyVar: "ANTHROPIC_API_KEY"},
	{vendor: "ark", keyVar: "ARK_API_KEY"},
}

const defaultAccount = "default"

// presets makes a channel for each vendor whose key is in the environment.
// Usage is counted and no money moves.
func (p *program) presets() *source {
	src := &source{guest: defaultAccount, config: &config.Config{
		Billing:  config.Setting{Value: config.Count},
		Accounts: []config.Account{{Name: defaultAccount}},
	}}
	for _, v := range presets {
		key, _ := p.env(v.keyVar)
		switch {
		case key == "":
		case v.models == nil:
			src.notes = append(src.notes, fmt.Sprintf("%s is set, but this version has no driver for %s, so it is not used", v.keyVar, v.vendor))
		default:
			src.config.Channels = append(src.config.Channels, p.channel(v, key))
		}
	}
	reserve(src.config.Channels)
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
		Models: v.models, Drop: v.drop, Rename: v.rename,
	}
}

// reserve keeps a channel that passes every id through from being asked for a
// model that another vendor has.
func reserve(channels []config.Channel) {
	var named []string
	for _, c := range channels {
		for id := range c.Models {
			if id != "*" {
				named = append(named, id)
			}
		}
	}
	for i := range channels {
		c := &channels[i]
		if _, every := c.Models["*"]; !every || len(named) == 0 {
			continue
		}
		up, err := openai.New(openai.Options{BaseURL: c.BaseURL, Keys: c.Keys})
		if err == nil { // else the channel is refused for it in a moment
			c.Upstream = except{up, named}
		}
	}
}

// except is an upstream that does not serve some models.
type except struct {
	*openai.Upstream
	models []string
}

// Supports implements [upstream.Supporter].
func (e except) Supports(op upstream.Op, model string) bool {
	return !slices.Contains(e.models, model) && e.Upstream.Supports(op, model)
}
