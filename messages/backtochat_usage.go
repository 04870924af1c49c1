package messages

import "strconv"

// appendChatUsage appends chat's usage object of the sides that were reported;
// nothing if neither was, so that the gateway estimates. The prompt there
// includes what the cache read and wrote.
func appendChatUsage(dst []byte, p *report) []byte {
	if !p.Has[input] && !p.Has[output] {
		return dst
	}
	dst = append(dst, '{')
	prompt := p.N[input] + p.N[cacheWrite] + p.N[cached]
	if p.Has[input] {
		dst = appendCount(dst, `"prompt_tokens":`, prompt)
	}
	if p.Has[output] {
		if p.Has[input] {
			dst = append(dst, ',')
		}
		dst = appendCount(dst, `"completion_tokens":`, p.N[output])
	}
	if p.Has[input] && p.Has[output] {
		dst = appendCount(dst, `,"total_tokens":`, prompt+p.N[output])
	}
	if p.Has[input] {
		dst = appendCount(dst, `,"prompt_tokens_details":{"cached_tokens":`, p.N[cached])
		if n := p.N[cacheWrite]; n > 0 {
			dst = appendCount(dst, `,"cache_write_tokens":`, n)
		}
		dst = append(dst, '}')
	}
	if p.Has[output] && p.Has[reasoning] {
		dst = appendCount(dst, `,"completion_tokens_details":{"reasoning_tokens":`, p.N[reasoning])
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func appendCount(dst []byte, head string, n int64) []byte {
	return strconv.AppendInt(append(dst, head...), n, 10)
}
