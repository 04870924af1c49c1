"""Writes a model of chats in GGUF, of a few hundred tokens, whose next one depends on the last alone.

python3 model.py FILE. Its attention and feed-forward layers are zero, so that the
residual is the word's one-hot embedding, and the output matrix is a table of what follows.
"""

import sys

import gguf
import numpy

special = ["<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endless|>"]
words = ["Hello", "▁from", "▁a", "▁model", "▁of", "▁some", "▁few", "▁words", ".", "▁tick", "▁tock"]
tokens = special + [f"<0x{b:02X}>" for b in range(256)] + words
types = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * (len(special) - 1) + [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(words)
first = len(special) + 256
n = 320  # of embeddings; more than there are tokens
assert len(tokens) <= n

after = {tokens.index("<|assistant|>"): first, tokens.index("<|endless|>"): first + 9}
for i in range(8):
    after[first + i] = first + i + 1
after[first + 8] = tokens.index("<|end|>")
after[first + 9], after[first + 10] = first + 10, first + 9

# A user who asks for "endless" words gets ticks and tocks until the bound.
template = (
    "{% for m in messages %}<|{{ m.role if m.role in ['system', 'user', 'assistant'] else 'user' }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}{% if 'endless' in messages[-1].content %}<|endless|>{% else %}<|assistant|>{% endif %}{% endif %}"
)

w = gguf.GGUFWriter(sys.argv[1], "llama")
w.add_name("few-words")
w.add_context_length(8192)
w.add_embedding_length(n)
w.add_block_count(1)
w.add_feed_forward_length(n)
w.add_head_count(5)
w.add_head_count_kv(5)
w.add_rope_dimension_count(n // 5)
w.add_layer_norm_rms_eps(1e-5)
w.add_vocab_size(len(tokens))
w.add_tokenizer_model("llama")
w.add_tokenizer_pre("default")
w.add_token_list(tokens)
w.add_token_scores([0.0] * first + [-float(i) for i in range(len(words))])
w.add_token_types(types)
w.add_unk_token_id(0)
w.add_bos_token_id(1)
w.add_eos_token_id(tokens.index("<|end|>"))
w.add_add_bos_token(True)
w.add_add_space_prefix(False)
w.add_chat_template(template)


def add(name, value):
    w.add_tensor(name, value.astype(numpy.float32))


embedding = numpy.zeros((len(tokens), n))
embedding[numpy.arange(len(tokens)), numpy.arange(len(tokens))] = 1
output = numpy.zeros((len(tokens), n))
for last, following in after.items():
    output[following, last] = 2
add("token_embd.weight", embedding)
add("output.weight", output)
add("output_norm.weight", numpy.ones(n))
add("blk.0.attn_norm.weight", numpy.ones(n))
add("blk.0.ffn_norm.weight", numpy.ones(n))
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    add(f"blk.0.{name}.weight", numpy.zeros((n, n)))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
