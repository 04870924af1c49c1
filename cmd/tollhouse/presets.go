package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// preset is a channel that variables of the environment configure. A new vendor of
// OpenAI's wire is one row of presets, and one of docs/reference/vendors.md, which a test compares.
type preset struct {
	vendor  string // the channel's name
	driver  string // empty means openai
	keyVar  string // the variable with the key
	urlVar  string // the variable with the base URL
	local   bool   // urlVar turns it on: a server of the operator's own, which may need no key
	baseURL string // empty means the driver's; ${NAME} stands for a variable that has to be set too
	path    string // added to the base URL, also to that of urlVar
	// parseURL reads urlVar where it is more than a base URL.
	parseURL func(text string) (string, error)

	models map[string]string
	begins []string // the beginnings of the vendor's own ids, which "*" passes through
	// host is the prefix of public ids of a vendor that hosts other vendors' models where an earlier row
	// passes every id through: "groq/". It must not begin ids of any vendor in the table.
	host string
	// lists says that the vendor lists its models, so that they can be shown. Those of host
	// do in any case.
	lists bool
	// behind names a row of the same vendor, of whose models this address serves those that it
	// lists, under the same ids: alone where that row does not list them, and by priority among
	// the rows behind it. The address is asked only if that of the other row is the vendor's own.
	behind   string
	priority int
	// example is a model to try, for the start's message.
	example string

	auth upstream.Auth
	wire []upstream.Op
	// messages is the path to which /v1/messages is added, of a vendor that has that wire too.
	messages        string
	drop            []string
	rename          map[string]string
	sessionHeader   string
	doneOptional    bool
	noStreamOptions bool
}

var (
	every        = map[string]string{"*": "*"}
	bothWays     = []upstream.Op{upstream.ChatCompletion, upstream.Responses}
	withMessages = []upstream.Op{upstream.ChatCompletion, upstream.Messages}
	// Most vendors have the older of the two names for the bound of an answer, and
	// ignore the other one, by which an answer would be longer than what is held for it.
	olderBound = map[string]string{"max_completion_tokens": "max_tokens"}
	newerBound = map[string]string{"max_tokens": "max_completion_tokens"}
)

// presets are in the order in which they serve: of those that pass every id through, the
// first has the ids without a prefix. Every rule names the vendor's page that it is from.
var presets = []preset{
	{vendor: "openai", keyVar: "OPENAI_API_KEY", urlVar: "OPENAI_BASE_URL", models: every, lists: true, example: "gpt-5-mini"},
	{
		// The vendor's own ids, which reserveModels takes out of the channels of other ids.
		vendor: "anthropic", driver: "anthropic", keyVar: "ANTHROPIC_API_KEY", urlVar: "ANTHROPIC_BASE_URL",
		models: every, begins: []string{"claude-"}, lists: true, example: "claude-haiku-4-5",
	},
	{
		vendor: "moonshot", keyVar: "MOONSHOT_API_KEY", urlVar: "MOONSHOT_BASE_URL", baseURL: "https://api.moonshot.ai/v1",
		models: map[string]string{"delta-k3": "kimi-k3"}, rename: newerBound, messages: "/anthropic",
	},
	{
		// The variable names the bare host, since both of the vendor's APIs use it.
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
			"qwen3-rerank": "qwen3-rerank", "gte-rerank-v2": "gte-rerank-v2",
		},
	},
	{
		// An unknown field is a 400, "Unknown name"; text-embedding-004 is missing, since the
		// vendor has withdrawn it (ai.google.dev/gemini-api/docs/openai).
		vendor: "gemini", keyVar: "GEMINI_API_KEY", urlVar: "GEMINI_BASE_URL",
		baseURL: "https://generativelanguage.googleapis.com/v1beta/openai",
		models:  map[string]string{"embx-001": "gemini-embedding-001", "embx-2-preview": "gemini-embedding-2-preview", "*": "*"},
		begins:  []string{"gemini-"}, lists: true, example: "gemini-2.5-flash", drop: []string{"user", "store", "metadata", "logit_bias"},
	},
	{
		vendor: "voyage", driver: "voyage", keyVar: "VOYAGE_API_KEY", urlVar: "VOYAGE_BASE_URL",
		models: map[string]string{
			"vox-4-large": "voyage-4-large", "vox-4": "voyage-4", "vox-4-lite": "voyage-4-lite",
			"rerank-2.5": "rerank-2.5", "rerank-2.5-lite": "rerank-2.5-lite", "rerank-2": "rerank-2", "rerank-2-lite": "rerank-2-lite",
		},
	},
	{
		// The ids of the Chinese site. The international site has other ids, and needs a
		// configuration file.
		vendor: "ark", driver: "ark", keyVar: "ARK_API_KEY", urlVar: "ARK_BASE_URL",
		models: map[string]string{
			"gamma-2.5": "doubao-seedance-2-5-260628", "gamma-2-0-260128": "doubao-seedance-2-0-260128",
			"gamma-2-0-fast-260128": "doubao-seedance-2-0-fast-260128", "gamma-2-0-mini-260615": "doubao-seedance-2-0-mini-260615",
			"gamma-1-5-pro-251215": "doubao-seedance-1-5-pro-251215", "gamma-1-0-pro-250528": "doubao-seedance-1-0-pro-250528",
			"gamma-1-0-pro-fast-251015": "doubao-seedance-1-0-pro-fast-251015",
		},
	},
	{
		// An unknown field is a 422, "extra_forbidden", as is stream_options.include_usage
		// (openai/openai-agents-python#442); streams report usage unasked. The seed is called
		// random_seed (docs.mistral.ai/api).
		vendor: "mistral", keyVar: "MISTRAL_API_KEY", urlVar: "MISTRAL_BASE_URL", baseURL: "https://api.mistral.ai/v1",
		models:  every,
		begins:  []string{"mistral-", "open-mistral-", "open-mixtral-", "codestral-", "devstral-", "magistral-", "ministral-", "pixtral-", "voxtral-"},
		lists:   true,
		example: "mistral-small-latest", noStreamOptions: true,
		drop:   []string{"user", "logprobs", "top_logprobs", "logit_bias", "store", "service_tier"},
		rename: map[string]string{"max_completion_tokens": "max_tokens", "seed": "random_seed"},
	},
	{
		// Reasoning is in reasoning_content, and what its cache served in
		// usage.prompt_cache_hit_tokens (api-docs.deepseek.com/guides/kv_cache). Messages are at
		// another path (api-docs.deepseek.com/guides/anthropic_api).
		vendor: "deepseek", keyVar: "DEEPSEEK_API_KEY", urlVar: "DEEPSEEK_BASE_URL", baseURL: "https://api.deepseek.com/v1",
		models: every, begins: []string{"deepseek-"}, lists: true, example: "deepseek-chat", rename: olderBound,
		messages: "/anthropic",
	},
	{
		// Deprecates chat completions for responses (docs.x.ai/developers/model-capabilities).
		vendor: "xai", keyVar: "XAI_API_KEY", urlVar: "XAI_BASE_URL", baseURL: "https://api.x.ai/v1",
		models: every, begins: []string{"grok-"}, lists: true, example: "grok-4", wire: bothWays,
	},
	{
		// Its chat completions ended in September 2026; what is left is the Agent API, which is
		// OpenAI's responses (docs.perplexity.ai/docs/agent-api/migrate-from-sonar/overview).
		vendor: "perplexity", keyVar: "PERPLEXITY_API_KEY", urlVar: "PERPLEXITY_BASE_URL", baseURL: "https://api.perplexity.ai/v1",
		models: map[string]string{"sonar": "perplexity/sonar", "*": "*"}, begins: []string{"perplexity/"}, example: "sonar",
		wire: []upstream.Op{upstream.Responses},
	},
	{
		// A balance that is used up is a 429 with the code 1113, and a model that it does not
		// have a 400 with 1211 (docs.z.ai/api-reference/api-code). It keeps a session's cache
		// together by X-Session-Id.
		vendor: "zai", keyVar: "ZAI_API_KEY", urlVar: "ZAI_BASE_URL", baseURL: "https://api.z.ai/api/paas/v4",
		models: every, begins: []string{"glm-"}, example: "glm-4.6", drop: []string{"user"}, rename: olderBound, sessionHeader: "X-Session-Id",
		messages: "/api/anthropic",
	},
	{
		// Errors are a base_resp in a 200; max_tokens is deprecated, and one candidate is all
		// (platform.minimax.io/docs/api-reference/text-openai-api).
		vendor: "minimax", keyVar: "MINIMAX_API_KEY", urlVar: "MINIMAX_BASE_URL", baseURL: "https://api.minimax.io/v1",
		models: every, begins: []string{"MiniMax-"}, example: "MiniMax-M2", drop: []string{"n"}, rename: newerBound,
		messages: "/anthropic",
	},
	{
		// Refuses stream_options, and has one candidate only; errors are a bare message
		// (docs.cohere.com/docs/compatibility-api). The variable names the bare host, since
		// the rerankers are at another path.
		vendor: "cohere", keyVar: "COHERE_API_KEY", urlVar: "COHERE_BASE_URL",
		baseURL: "https://api.cohere.ai", path: "/compatibility/v1",
		models: every, begins: []string{"command-", "c4ai-", "embed-"}, example: "command-a-03-2025", noStreamOptions: true,
		drop: []string{"user", "n", "store", "metadata", "logit_bias", "top_logprobs", "service_tier", "parallel_tool_calls"}, rename: olderBound,
	},
	{
		vendor: "cohere-rerank", driver: "cohere", keyVar: "COHERE_API_KEY", urlVar: "COHERE_BASE_URL",
		models: map[string]string{
			"rerank-v4.0-pro": "rerank-v4.0-pro", "rerank-v4.0-fast": "rerank-v4.0-fast", "rerank-v3.5": "rerank-v3.5",
			"rerank-english-v3.0": "rerank-english-v3.0", "rerank-multilingual-v3.0": "rerank-multilingual-v3.0",
		},
	},
	{
		// Errors are a detail (api.jina.ai/docs).
		vendor: "jina", keyVar: "JINA_API_KEY", urlVar: "JINA_BASE_URL", baseURL: "https://api.jina.ai/v1",
		models: map[string]string{
			"jina-reranker-v3": "jina-reranker-v3", "jina-reranker-m0": "jina-reranker-m0",
			"jina-reranker-v2-base-multilingual": "jina-reranker-v2-base-multilingual", "jina-colbert-v2": "jina-colbert-v2",
		},
	},
	{
		// All ids begin with accounts/. A session's cache is kept together by a header
		// (docs.fireworks.ai/guides/prompt-caching).
		vendor: "fireworks", keyVar: "FIREWORKS_API_KEY", urlVar: "FIREWORKS_BASE_URL", baseURL: "https://api.fireworks.ai/inference/v1",
		models: every, begins: []string{"accounts/"}, example: "accounts/fireworks/models/gpt-oss-120b", rename: olderBound, sessionHeader: "X-Session-Affinity",
	},
	{
		// The key is in a header of its own, and a model is the name of a deployment
		// (learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle).
		vendor: "azure", keyVar: "AZURE_OPENAI_API_KEY", urlVar: "AZURE_OPENAI_BASE_URL", baseURL: "${AZURE_OPENAI_ENDPOINT}/openai/v1",
		host: "azure/", example: "gpt-5-mini", auth: upstream.Auth{By: upstream.ByHeader, Name: "api-key"}, wire: bothWays,
	},
	{
		// The endpoint that AWS recommends. Some models are at bedrock-mantle alone, each at one
		// of its two paths, and the other one refuses it
		// (docs.aws.amazon.com/bedrock/latest/userguide/inference-responses-api.html).
		vendor: "bedrock", keyVar: "AWS_BEARER_TOKEN_BEDROCK", urlVar: "BEDROCK_BASE_URL",
		baseURL: "https://bedrock-runtime.${AWS_REGION}.amazonaws.com/openai/v1", host: "bedrock/", example: "openai.gpt-oss-120b-1:0",
	},
	{
		vendor: "bedrock-mantle", keyVar: "AWS_BEARER_TOKEN_BEDROCK", urlVar: "BEDROCK_MANTLE_BASE_URL",
		baseURL: "https://bedrock-mantle.${AWS_REGION}.api.aws/v1", behind: "bedrock", priority: 1,
	},
	{
		vendor: "bedrock-mantle-openai", keyVar: "AWS_BEARER_TOKEN_BEDROCK", urlVar: "BEDROCK_MANTLE_OPENAI_BASE_URL",
		baseURL: "https://bedrock-mantle.${AWS_REGION}.api.aws/openai/v1", behind: "bedrock", priority: 2,
	},
	{
		// logprobs, logit_bias and a second candidate are a 400; reasoning is in "reasoning",
		// and a stream's usage in x_groq (console.groq.com/docs/openai).
		vendor: "groq", keyVar: "GROQ_API_KEY", urlVar: "GROQ_BASE_URL", baseURL: "https://api.groq.com/openai/v1",
		host: "groq/", example: "llama-3.3-70b-versatile", drop: []string{"logprobs", "top_logprobs", "logit_bias", "n"},
	},
	{
		// Comments keep its streams alive, and codes of errors are numbers
		// (openrouter.ai/docs/api-reference).
		vendor: "openrouter", keyVar: "OPENROUTER_API_KEY", urlVar: "OPENROUTER_BASE_URL", baseURL: "https://openrouter.ai/api/v1",
		host: "openrouter/", example: "openai/gpt-5-mini", sessionHeader: "X-Session-Id",
	},
	{
		// Knows max_tokens alone; its list of models is a bare array
		// (docs.together.ai/reference/chat-completions-1).
		vendor: "together", keyVar: "TOGETHER_API_KEY", urlVar: "TOGETHER_BASE_URL", baseURL: "https://api.together.xyz/v1",
		host: "together/", example: "openai/gpt-oss-20b", rename: olderBound,
	},
	{
		// The fields that are dropped are a 400 (inference-docs.cerebras.ai/resources/openai).
		vendor: "cerebras", keyVar: "CEREBRAS_API_KEY", urlVar: "CEREBRAS_BASE_URL", baseURL: "https://api.cerebras.ai/v1",
		host: "cerebras/", example: "gpt-oss-120b", drop: []string{"frequency_penalty", "presence_penalty", "logit_bias", "service_tier", "prompt_cache_key"},
	},
	{
		// Each model has a closed schema, in which max_tokens is the bound; errors are a title
		// and a detail (docs.api.nvidia.com/nim/reference/llm-apis). Ids begin with nvidia/
		// themselves, hence nim/.
		vendor: "nvidia", keyVar: "NVIDIA_API_KEY", urlVar: "NVIDIA_BASE_URL", baseURL: "https://integrate.api.nvidia.com/v1",
		host: "nim/", example: "meta/llama-3.3-70b-instruct", drop: []string{"user", "store", "metadata", "service_tier", "prompt_cache_key"}, rename: olderBound,
	},
	{
		// Sends on to vendors of several kinds, some of which end streams without [DONE]
		// (huggingface.co/docs/inference-providers).
		vendor: "huggingface", keyVar: "HF_TOKEN", urlVar: "HF_BASE_URL", baseURL: "https://router.huggingface.co/v1",
		host: "hf/", example: "openai/gpt-oss-20b", doneOptional: true,
	},
	{
		// Ignores max_completion_tokens, and makes an answer without a bound (openai/openai.go
		// of ollama/ollama 0.17.4).
		vendor: "ollama", keyVar: "OLLAMA_API_KEY", urlVar: "OLLAMA_HOST", local: true, parseURL: ollamaURL,
		host: "ollama/", example: "llama3.2", rename: olderBound,
	},
	{vendor: "lmstudio", keyVar: "LMSTUDIO_API_KEY", urlVar: "LMSTUDIO_BASE_URL", local: true, parseURL: localURL, host: "lmstudio/", example: "local-model"},
	{vendor: "vllm", keyVar: "VLLM_API_KEY", urlVar: "VLLM_BASE_URL", local: true, parseURL: localURL, host: "vllm/", example: "my-model"},
	{
		// Reports the tokens of one candidate only, however many it makes.
		vendor: "llamacpp", keyVar: "LLAMACPP_API_KEY", urlVar: "LLAMACPP_BASE_URL", local: true, parseURL: localURL, host: "llamacpp/", example: "my-model",
		drop: []string{"n"},
	},
}

const defaultAccount = "default"

// presets makes a channel for each vendor whose key is in the environment, and for each
// server of the operator's own whose address is. Usage is counted and no money moves.
func (p *program) presets() (*source, error) {
	src := &source{firstAccount: defaultAccount, config: &config.Config{
		Locations: config.Locations{Billing: config.Count},
		Accounts:  []config.Account{{Name: defaultAccount}},
	}}
	env := config.Env(p.env).Trimmed()
	bare := true // no channel has the ids without a prefix yet
	for i := range presets {
		v := &presets[i]
		if on, _ := env(v.turnedOnBy()); on == "" {
			continue
		}
		var front *config.Channel
		if v.behind != "" {
			if front = src.config.Channel(v.behind); front == nil || !v.asked(env) {
				continue
			}
		}
		base, missing, err := v.base(env)
		switch {
		case err != nil:
			return nil, err
		case missing != "":
			src.notes = append(src.notes, fmt.Sprintf("%s is set, but not %s: %s is left out", v.keyVar, missing, v.vendor))
			continue
		}
		c := v.channel(base, bare)
		if address := v.messagesAt(env, base); address != "" {
			c.Wire, c.Messages.BaseURL = withMessages, address
		}
		if front != nil {
			c.Discover, c.Models, c.Priority = &config.Discovery{}, map[string]string{}, v.priority
			c.Discover.Prefix, front.DefersToDiscovered = front.Discover.Prefix, true
		}
		if key, _ := env(v.keyVar); key != "" {
			c.Keys = []secret.String{secret.New(key)}
		}
		bare = bare && (c.Models["*"] == "" || len(c.Begins) > 0)
		if warning := c.AddressWarning(); warning != "" {
			src.notes = append(src.notes, warning)
		}
		src.config.Channels = append(src.config.Channels, c)
	}
	reserveModels(src.config.Channels)
	return src, nil
}

// asked reports whether a row behind another one is asked: where both addresses are the
// vendor's own, or that of the row is given.
func (v *preset) asked(env config.Env) bool {
	own, _ := env(v.urlVar)
	front, _ := env(presetNamed(v.behind).urlVar)
	return own != "" || front == ""
}

// turnedOnBy is the variable without which the channel is not made.
func (v *preset) turnedOnBy() string {
	if v.local {
		return v.urlVar
	}
	return v.keyVar
}

// messagesVar is the variable with the address of a vendor's messages.
func (v *preset) messagesVar() string {
	return strings.TrimSuffix(v.urlVar, "BASE_URL") + "MESSAGES_BASE_URL"
}

// messagesAt is where the channel's messages go; empty if they are translated into chats. A
// proxy at an address of the operator's own need not have both wires: it is asked for messages
// only where the variable says so.
func (v *preset) messagesAt(env config.Env, base string) string {
	if v.messages == "" {
		return ""
	}
	if given, _ := env(v.messagesVar()); given != "" {
		return given
	}
	own, _ := url.Parse(v.baseURL)
	if at, err := url.Parse(base); err != nil || at.Scheme != own.Scheme || at.Host != own.Host {
		return ""
	}
	return own.Scheme + "://" + own.Host + v.messages
}

// base is the channel's base URL, or the variable that it lacks.
func (v *preset) base(env config.Env) (base, missing string, err error) {
	given, _ := env(v.urlVar)
	base = cmp.Or(given, v.baseURL)
	if given != "" && v.parseURL != nil {
		if base, err = v.parseURL(given); err != nil {
			return "", "", fmt.Errorf("%s: %w", v.urlVar, err)
		}
	}
	if before, rest, found := strings.Cut(v.baseURL, "${"); found && given == "" {
		name, after, _ := strings.Cut(rest, "}")
		value, _ := env(name)
		if value == "" {
			return "", name, nil
		}
		// An endpoint that is copied from the vendor's page may have the end already.
		base = before + strings.TrimSuffix(strings.TrimSuffix(value, "/"), after) + after
	}
	if v.path != "" {
		base = strings.TrimSuffix(base, "/") + v.path
	}
	return base, "", nil
}

// channel is the preset's channel, without its key. bare says that it may have the ids of
// all models to itself.
func (v *preset) channel(base string, bare bool) config.Channel {
	c := config.Channel{
		Name: v.vendor, Driver: cmp.Or(v.driver, "openai"), BaseURL: base, Models: v.models, Begins: v.begins,
		Auth: v.auth, Wire: v.wire, Drop: v.drop, Rename: v.rename, SessionHeader: v.sessionHeader, DoneOptional: v.doneOptional, Usage: config.Usage{NoStreamOptions: v.noStreamOptions},
	}
	if v.lists {
		c.Discover = new(config.Discovery)
		for _, begin := range v.begins {
			c.Discover.Only = append(c.Discover.Only, begin+"*")
		}
	}
	if v.host != "" {
		c.Discover = new(config.Discovery)
		c.Models = every
		if !bare {
			c.Discover.Prefix = v.host
			c.Models = map[string]string{v.host + "*": "*"}
		}
	}
	return c
}

// reserveModels excepts the models of the other channels from a channel that passes
// every id through.
func reserveModels(channels []config.Channel) {
	var taken []string
	for i := range channels {
		for _, shown := range channels[i].Shown() {
			if shown != "*" {
				taken = append(taken, shown)
			}
		}
	}
	for i := range channels {
		c := &channels[i]
		if _, every := c.Models["*"]; every && len(c.Begins) == 0 {
			c.Except, c.DefersToDiscovered = taken, true
		}
	}
}

// exampleOf is a model to try on a preset's channel, among the ids that it passes through;
// empty for any other channel.
func exampleOf(c *config.Channel) string {
	if v := presetNamed(c.Name); v != nil && v.example != "" {
		for _, id := range slices.Sorted(maps.Keys(c.Models)) {
			if prefix, wild := strings.CutSuffix(id, "*"); wild {
				return prefix + v.example
			}
		}
	}
	return ""
}

// presetNamed is the preset of a channel; nil if there is none.
func presetNamed(channel string) *preset {
	i := slices.IndexFunc(presets, func(v preset) bool { return v.vendor == channel })
	if i < 0 {
		return nil
	}
	return &presets[i]
}

// presetVariables are the variables that turn presets on, sorted, and those that are
// needed besides.
func presetVariables() []string {
	names := make(map[string]bool)
	for i := range presets {
		v := &presets[i]
		name := v.turnedOnBy()
		if _, rest, found := strings.Cut(v.baseURL, "${"); found {
			also, _, _ := strings.Cut(rest, "}")
			name += " with " + also
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// localURL is the base URL of a server of the operator's own, which is often given
// without the /v1 at its end.
func localURL(text string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("it must be an address such as http://127.0.0.1:8000/v1")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1"
	}
	return u.String(), nil
}

// ollamaURL reads OLLAMA_HOST as Ollama's own clients do (envconfig/config.go of
// ollama/ollama): a host, a port or both, with or without a scheme. Without one the port
// is 11434, with one that of the scheme. An address to listen on everywhere means this
// machine.
func ollamaURL(text string) (string, error) {
	text = strings.Trim(strings.TrimSpace(text), `"'`)
	port := "11434"
	scheme, rest, given := strings.Cut(text, "://")
	switch {
	case !given:
		scheme, rest = "http", text
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	default:
		return "", errors.New("it must be host:port, or an http or https address")
	}
	at, path, _ := strings.Cut(rest, "/")
	host := strings.Trim(at, "[]")
	if h, p, err := net.SplitHostPort(at); err == nil {
		host, port = h, cmp.Or(p, port)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("%q is no port", port)
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	u := &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}
	return u.JoinPath(path, "v1").String(), nil
}
