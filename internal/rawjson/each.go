package rawjson

// Each tells visit where every element of an array stands, and counts them; -1
// means that raw is no array. It is for what was read before: in an array that
// is broken it goes as far as the break.
func Each(raw []byte, visit func(i int, at Span)) (count int) {
	r := NewReader(raw)
	defer r.Close()
	if r.Kind() != '[' {
		return -1
	}
	_ = r.Array(func(i int) error {
		at, err := r.Skip()
		if err == nil {
			visit(i, at)
			count++
		}
		return err
	})
	return count
}

// Elements are those that [Each] visits; none if raw is no array.
func Elements(raw []byte) (all [][]byte) {
	Each(raw, func(_ int, at Span) { all = append(all, at.Of(raw)) })
	return all
}
