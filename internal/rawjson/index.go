package rawjson

// Index checks that src is exactly one JSON object within [MaxDepth] and the
// rules, and returns the index of its members; it fails with a *SyntaxError.
// visit, when not nil, is called at each top-level value and must consume it
// with exactly one call of the Reader; its own error ends the walk and is
// returned as it is. It is not called at the objects that rules.Nested names.
func Index(src []byte, rules *Rules, visit func(r *Reader, name []byte) error) (Object, error) {
	var obj Object
	err := IndexInto(&obj, src, rules, visit)
	return obj, err
}

// IndexInto is [Index] into an Object whose memory is used again. After an
// error obj holds the members that were read before it.
func IndexInto(obj *Object, src []byte, rules *Rules, visit func(r *Reader, name []byte) error) error {
	r := NewReader(src)
	defer r.Close()
	if rules != nil {
		r.bounds = rules.Bounds
	}
	if cap(obj.Members) == 0 {
		const usual = 12
		obj.Members = make([]Member, 0, usual)
	}
	obj.Src, obj.Members = src, obj.Members[:0]
	if r.Kind() != '{' {
		value, err := r.Skip()
		if err != nil {
			return err
		}
		return &SyntaxError{int64(value.Start), "the document is not a JSON object"}
	}
	err := r.Object(func(name []byte, key Span) error {
		m := Member{Name: r.intern(name), Key: key}
		r.field = m.Name
		if err := r.top.check(rules, m.Name, key); err != nil {
			return err
		}
		start := r.next(key.End)
		if err := r.consume(rules, m.Name, name, visit); err != nil {
			return err
		}
		m.Value = Span{start, int(r.Offset())}
		obj.Members = append(obj.Members, m)
		return nil
	})
	if err != nil {
		return err
	}
	return r.End()
}

// consume reads one top-level value, and checks the names inside it where the rules say so.
func (r *Reader) consume(rules *Rules, name string, raw []byte, visit func(*Reader, []byte) error) error {
	switch {
	case rules.nests(name) && r.Kind() == '{':
		r.inner.reset()
		return r.Object(func(name []byte, key Span) error {
			if err := r.inner.check(rules, r.intern(name), key); err != nil {
				return err
			}
			_, err := r.Skip()
			return err
		})
	case visit != nil:
		return visit(r, raw)
	}
	_, err := r.Skip()
	return err
}

// intern returns the name as a string that equal names of earlier documents
// share. The table starts anew when it is full: no caller can grow it, nor
// fill it for good with names of no use.
func (r *Reader) intern(name []byte) string {
	const most, longest = 512, 40
	if s, ok := r.names[string(name)]; ok {
		return s
	}
	s := string(name)
	if len(s) > longest {
		return s
	}
	if len(r.names) >= most {
		clear(r.names)
	}
	r.names[s] = s
	return s
}
