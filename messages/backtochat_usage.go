package messages

import "strconv"

// appendChatUsage appends chat's usage object of the sides that were reported;
// nothing if neither was, so that the gateway estimates. The prompt there
// includes what the cache read and wrote.
func appendChatUsage(dst []byte, p *report) []byte {
	if !p.has[input] && !p.has[output] {
		return dst
	}
	dst = append(dst, '{')
	prompt := p.counts[input] + p.counts[cacheWrite] + p.counts[cached]
	if p.has[input] {
		dst = appendCount(dst, `"prompt_tokens":`, prompt)
	}
	if p.has[output] {
		if p.has[input] {
			dst = append(dst, ',')
		}
		dst = appendCount(dst, `"completion_tokens":`, p.counts[output])
	}
	if p.has[input] && p.has[output] {
		dst = appendCount(dst, `,"total_tokens":`, prompt+p.counts[output])
	}
	if p.has[input] {
		dst = appendCount(dst, `,"prompt_tokens_details":{"cached_tokens":`, p.counts[cached])
		if n := p.counts[cacheWrite]; n > 0 {
			dst = appendCount(dst, `,"cache_write_tokens":`, n)
		}
		dst = append(dst, '}')
	}
	if p.has[output] && p.has[reasoning] {
		dst = appendCount(dst, `,"completion_tokens_details":{"reasoning_tokens":`, p.counts[reasoning])
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func appendCount(dst []byte, head string, n int64) []byte {
	return strconv.AppendInt(append(dst, head...), n, 10)
}
