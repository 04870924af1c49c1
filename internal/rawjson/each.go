package rawjson

import "errors"

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

// EachUntil is [Each] that ends where visit returns false.
func EachUntil(raw []byte, visit func(i int, at Span) bool) {
	r := NewReader(raw)
	defer r.Close()
	if r.Kind() != '[' {
		return
	}
	_ = r.Array(func(i int) error {
		at, err := r.Skip()
		if err == nil && !visit(i, at) {
			err = errEnded
		}
		return err
	})
}

var errEnded = errors.New("the walk was ended")

// Within fails with a *SyntaxError if a document holds more than the bounds say.
// What is not JSON is for its reader to refuse, and is within them.
func Within(raw []byte, bounds Bounds) error {
	r := NewReader(raw)
	defer r.Close()
	r.bounds = bounds
	if _, err := r.Skip(); r.exceeded {
		return err
	}
	return nil
}

// Elements are those that [Each] visits; none if raw is no array.
func Elements(raw []byte) (all [][]byte) {
	Each(raw, func(_ int, at Span) { all = append(all, at.Of(raw)) })
	return all
}
