package rule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// mostUnknown bounds the members that are left out; each is an edit of the body.
const mostUnknown = 64

// errUnknown says that a request has members that are not known; which, is asked again.
var errUnknown = errors.New("a field is not known")

// Unknown are the members of a request that prepaid billing leaves out. The gateway does not
// know that they cost no more than the vendor's counts show.
type Unknown []string

// Find notes the members whose names known does not know, unless pass lets them through. It
// fails if there are too many and, with a nil pass, if there is any.
func (u *Unknown) Find(o *rawjson.Object, known func(name string) bool, pass PassUnpriced) error {
	names := UnknownMembers(o, known, func(name string) bool { return pass.allows(name, name) })
	if pass == nil && len(names) > 0 {
		return errUnknown
	}
	*u = names
	return u.Check()
}

// Check refuses a request from which too many members would be left out.
func (u Unknown) Check() error {
	if len(u) <= mostUnknown {
		return nil
	}
	return fault.Invalid(u[mostUnknown], fmt.Sprintf("The request has more than %d fields that this gateway does not know. Leave them out.", mostUnknown))
}

// UnknownMembers lists the members of an object that neither known nor pass takes, of too
// many only the first.
func UnknownMembers(o *rawjson.Object, known, pass func(name string) bool) (names []string) {
	for i := range o.Members {
		m := &o.Members[i]
		if known(m.Name) || rawjson.IsNull(m.Value.Of(o.Src)) || pass(m.Name) || slices.Contains(names, m.Name) {
			continue
		}
		if names = append(names, m.Name); len(names) > mostUnknown {
			break
		}
	}
	return names
}

// IsVendorField reports whether a member of a chat completion or a message is one of
// vendorFields.
func IsVendorField(name string) bool { return slices.Contains(vendorFields, name) }

// vendorFields are members that servers of these two wires take besides those of OpenAI and
// Anthropic, by the vendors' public references. They decide how a model samples, reasons or
// writes its answer. The vendor's count of tokens includes what they cost.
//
// Not here is what multiplies answers (best_of, num_completions), bounds them under another
// name (n_predict, max_new_tokens), or answers later (deferred). Nor is what searches, asks
// another model, or names something in the vendor's account.
var vendorFields = []string{
	// sampling: vLLM, SGLang, llama.cpp, Fireworks, Together, DashScope, Mistral, Z.ai
	"seed", "random_seed", "top_k", "top_a", "min_p", "typical_p", "tfs_z", "epsilon_cutoff", "eta_cutoff",
	"repetition_penalty", "repeat_penalty", "repeat_last_n", "penalize_nl", "penalty_score", "length_penalty", "no_repeat_ngram_size",
	"dynatemp_range", "dynatemp_exponent", "smoothing_factor", "mirostat", "mirostat_tau", "mirostat_eta", "mirostat_lr", "mirostat_target",
	"dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_probability", "xtc_threshold",
	"samplers", "min_keep", "do_sample", "bad_words", "allowed_token_ids", "logit_bias",
	// where an answer ends, within the bound of its tokens
	"stop_token_ids", "include_stop_str_in_output", "no_stop_trim", "ignore_eos", "min_tokens", "t_max_predict_ms",
	// form
	"grammar", "regex", "ebnf", "json_schema", "structural_tag", "structured_outputs",
	"guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern",
	"skip_special_tokens", "spaces_between_special_tokens", "echo", "incremental_output", "result_format",
	"logprobs", "top_logprobs", "prompt_logprobs", "n_probs", "post_sampling_probs", "return_tokens_as_token_ids", "return_token_ids",
	"timings_per_token", "return_progress", "perf_metrics_in_response", "raw_output", "usage",
	// the prompt
	"add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template_kwargs", "chat_template_args", "mm_processor_kwargs",
	"documents", "truncate_prompt_tokens", "prompt_truncate_len", "context_length_exceeded_behavior", "transforms",
	"cache_prompt", "cache_salt", "prompt_cache_isolation_key", "safe_prompt", "safety_mode", "mask_sensitive_info",
	"document_image_limit", "document_page_limit", "vl_high_resolution_images", "translation_options", "asr_options",
	// reasoning
	"thinking", "think", "reasoning", "reasoning_effort", "reasoning_format", "reasoning_split", "reasoning_history", "reasoning_budget",
	"include_reasoning", "separate_reasoning", "stream_reasoning", "disable_reasoning", "clear_thinking", "preserve_thinking", "prompt_mode",
	"enable_thinking", "thinking_budget", "thinking_token_budget", "min_thinking_tokens", "max_thinking_tokens", "thinking_forced_open",
	"prediction", "speculation", "verbosity",
	// tools that the client runs
	"parallel_tool_calls", "parse_tool_calls", "tool_stream", "strict_tools", "disable_tool_validation",
	// narrower searches of models that always search, whose requests have a price: Perplexity
	"search_domain_filter", "search_recency_filter", "search_language_filter", "search_after_date_filter", "search_before_date_filter",
	"last_updated_after_filter", "last_updated_before_filter", "disable_search",
	// who asks, and for what
	"user", "user_id", "safety_identifier", "session_id", "request_id", "metadata", "store", "prompt_cache_key", "prompt_cache_retention",
}
