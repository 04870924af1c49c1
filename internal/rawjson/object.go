package rawjson

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"sync"
)

// Span is a half-open range of byte offsets.
type Span struct{ Start, End int }

// Of returns the bytes of the span.
func (s Span) Of(src []byte) []byte { return src[s.Start:s.End] }

// Member is one member of an object: its decoded name and where it stands.
type Member struct {
	Name  string
	Key   Span // the name with its quotes
	Value Span
}

// Object is an index of one JSON object's members in source order. It does not
// copy: Src must not change while the index is in use.
type Object struct {
	Src     []byte
	Members []Member
}

// All yields the members.
func (o *Object) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := range o.Members {
			if !yield(o.Members[i].Name, o.Members[i].Value.Of(o.Src)) {
				return
			}
		}
	}
}

// Raw returns the value of the first member called name, or nil.
func (o *Object) Raw(name string) []byte {
	for i := range o.Members {
		if o.Members[i].Name == name {
			return o.Members[i].Value.Of(o.Src)
		}
	}
	return nil
}

// Edit changes one member. Edits apply one after the other.
type Edit struct {
	Name   string
	Value  []byte // new value, valid JSON; with Rename empty and Value nil the member is deleted
	Rename string // new name; the value stays
}

// Set gives the member called name the value, which must be valid JSON, or
// appends such a member. It replaces the first member of that name and removes
// any other, so that readers cannot differ on which of them counts.
func Set(name string, value []byte) Edit { return Edit{Name: name, Value: value} }

// Delete removes every member called name.
func Delete(name string) Edit { return Edit{Name: name} }

// Rename gives a member another name, which must not be empty. A member that
// has it already wins: the renamed one is removed, as is any further member
// called from.
func Rename(from, to string) Edit { return Edit{Name: from, Rename: to} }

// Apply appends the object with the edits made to dst, which must not overlap
// Src. Every byte that no edit touches is copied as it stands; without an
// effective edit the copy equals Src. The Object must come from an Index that
// did not fail.
func (o *Object) Apply(dst []byte, edits ...Edit) []byte {
	if len(edits) == 1 && edits[0].Rename == "" {
		if out, ok := o.replace(dst, edits[0].Name, edits[0].Value); ok {
			return out
		}
	}
	var few [16]slot
	slots, room := o.edited(few[:0], edits)
	w := writer{out: slices.Grow(dst, room), long: math.MaxInt}
	o.render(&w, slots)
	return w.out
}

// ApplyInPlace is [Object.Apply] that writes over Src if the edits change the value of one
// member only, as most answers need. The Object is then no longer an index of Src. Otherwise
// the result is a copy. Values must not lie in Src.
func (o *Object) ApplyInPlace(edits ...Edit) []byte {
	var change *Edit
	for i := range edits {
		e := &edits[i]
		switch {
		case !o.changedBy(e):
		case change != nil, e.Rename != "":
			return o.Apply(nil, edits...)
		default:
			change = e
		}
	}
	if change == nil {
		return o.Src
	}
	at, ok := o.only(change.Name)
	size := len(o.Src) - (at.End - at.Start) + len(change.Value)
	if !ok || change.Value == nil || size > cap(o.Src) {
		return o.Apply(nil, edits...)
	}
	out := o.Src[:size]
	copy(out[at.Start+len(change.Value):], o.Src[at.End:])
	copy(out[at.Start:], change.Value)
	return out
}

// changedBy reports whether the edit, if made first, changes the object. A member that is
// deleted or renamed may be absent.
func (o *Object) changedBy(e *Edit) bool {
	missing := o.Raw(e.Name) == nil
	return !(missing && (e.Value == nil || e.Rename != "") || e.Rename != "" && e.Rename == e.Name)
}

// only returns where the value of the only member called name stands; false if there is none,
// or several.
func (o *Object) only(name string) (at Span, ok bool) {
	called := func(m Member) bool { return m.Name == name }
	i := slices.IndexFunc(o.Members, called)
	if i < 0 || slices.ContainsFunc(o.Members[i+1:], called) {
		return Span{}, false
	}
	return o.Members[i].Value, true
}

// Lookup returns the value of a member of an object or, by a path of names, of objects within
// it. It returns nil if there is none, or if raw is not an object.
func Lookup(raw []byte, path ...string) []byte {
	o := Borrow()
	defer GiveBack(o)
	for _, name := range path {
		if IndexInto(o, raw, nil, nil) != nil {
			return nil
		}
		raw = o.Raw(name)
	}
	return raw
}

// LookupString is the string that [Lookup] finds; empty if it finds none.
func LookupString(raw []byte, path ...string) string {
	s, _ := String(Lookup(raw, path...))
	return s
}

// Apply is an object with the edits, as [Object.Apply] makes them; raw itself if they change
// nothing, or if it is no object.
func Apply(raw []byte, edits ...Edit) []byte {
	o := Borrow()
	defer GiveBack(o)
	if IndexInto(o, raw, nil, nil) != nil {
		return raw
	}
	if !slices.ContainsFunc(edits, func(e Edit) bool { return o.changedBy(&e) }) {
		return raw
	}
	return o.Apply(nil, edits...)
}

// AddMissing is an object with those of the edits whose members it lacks.
func AddMissing(object []byte, edits []Edit) ([]byte, error) {
	o, err := Index(object, nil, nil)
	if err != nil {
		return nil, err
	}
	var missing []Edit
	for _, e := range edits {
		if o.Raw(e.Name) == nil {
			missing = append(missing, e)
		}
	}
	return o.Apply(nil, missing...), nil
}

// Edited yields the members as [Object.Apply] writes them.
func (o *Object) Edited(edits ...Edit) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var few [16]slot
		slots, _ := o.edited(few[:0], edits)
		for i := range slots {
			if s := &slots[i]; !s.gone && !yield(s.name, s.value) {
				return
			}
		}
	}
}

// replace appends the object with another value of a member. It is false, with nothing done,
// if the name does not occur exactly once, or without a value. It is the usual edit of an
// answer.
func (o *Object) replace(dst []byte, name string, value []byte) (out []byte, ok bool) {
	old, ok := o.only(name)
	if !ok || value == nil {
		return dst, false
	}
	dst = slices.Grow(dst, len(o.Src)-(old.End-old.Start)+len(value))
	dst = append(dst, o.Src[:old.Start]...)
	dst = append(dst, value...)
	return append(dst, o.Src[old.End:]...), true
}

// Pieces is [Object.Apply] without copying long values. It returns the result in pieces.
// Values of at least long bytes share the memory of Src and of the edits.
func (o *Object) Pieces(long int, edits ...Edit) [][]byte {
	var few [16]slot
	slots, _ := o.edited(few[:0], edits)
	w := writer{long: long}
	o.render(&w, slots)
	return append(w.pieces, w.out)
}

// edited are the object's members after the edits, and about how many bytes they need. An edit
// that takes a long value out needs no memory for it.
func (o *Object) edited(slots []slot, edits []Edit) (_ []slot, room int) {
	for i := range o.Members {
		m := &o.Members[i]
		slots = append(slots, slot{name: m.Name, key: m.Key.Of(o.Src), value: m.Value.Of(o.Src)})
	}
	for i := range edits {
		slots = edits[i].apply(slots)
	}
	room = len(o.Src)
	for i := range slots {
		s := &slots[i]
		if i < len(o.Members) {
			old := o.Members[i].Value
			room -= old.End - old.Start
		}
		if !s.gone {
			room += len(s.value)
		}
		if s.key == nil {
			room += len(s.name) + len(`,"":`)
		}
	}
	return slots, room
}

// writer takes the text of an object. A long value ends a piece of it.
type writer struct {
	pieces [][]byte
	out    []byte
	long   int
}

// add appends a text, or makes a piece of it where it is long.
func (w *writer) add(text []byte) {
	if len(text) < w.long {
		w.out = append(w.out, text...)
		return
	}
	w.pieces = append(w.pieces, w.out, text)
	w.out = nil
}

// slot is one member on its way out; the first len(Members) slots stand for
// the source's members, the rest are new.
type slot struct {
	name  string
	key   []byte // with its quotes; nil: to be written from name
	value []byte
	gone  bool
}

// apply makes the edit: a member that goes is only marked, so that what the source has keeps its
// place.
func (e *Edit) apply(slots []slot) []slot {
	switch i := find(slots, e.Name); {
	case e.Rename != "" && (i < 0 || e.Rename == e.Name):
	case e.Rename != "" && find(slots, e.Rename) >= 0:
		remove(slots, e.Name)
	case e.Rename != "":
		remove(slots[i+1:], e.Name)
		slots[i].name, slots[i].key = e.Rename, nil
	case e.Value == nil:
		remove(slots, e.Name)
	case i < 0:
		return append(slots, slot{name: e.Name, value: e.Value})
	default:
		remove(slots[i+1:], e.Name)
		slots[i].value = e.Value
	}
	return slots
}

// find is where the first member called name stands, or -1.
func find(slots []slot, name string) int {
	for i := range slots {
		if !slots[i].gone && slots[i].name == name {
			return i
		}
	}
	return -1
}

// remove marks every member called name.
func remove(slots []slot, name string) {
	for i := range slots {
		if slots[i].name == name {
			slots[i].gone = true
		}
	}
}

// render writes the slots with the source's own white space around them.
func (o *Object) render(w *writer, slots []slot) {
	open := bytes.IndexByte(o.Src, '{') + 1 // where the text before the first member ends
	tail := open                            // where the text after the last begins
	if n := len(o.Members); n > 0 {
		open, tail = o.Members[0].Key.Start, o.Members[n-1].Value.End
	}
	w.add(o.Src[:open])
	first := true
	for i := range slots {
		s := &slots[i]
		if s.gone {
			continue
		}
		old := i < len(o.Members)
		switch {
		case first:
		case old:
			w.add(o.Src[o.Members[i-1].Value.End:o.Members[i].Key.Start])
		default:
			w.out = append(w.out, ',')
		}
		first = false
		if s.key == nil {
			w.out = Quote(w.out, s.name)
		} else {
			w.add(s.key)
		}
		if old {
			w.add(o.Src[o.Members[i].Key.End:o.Members[i].Value.Start])
		} else {
			w.out = append(w.out, ':')
		}
		w.add(s.value)
	}
	w.add(o.Src[tail:])
}

// Index checks that src is exactly one JSON object within [MaxDepth] and the rules, and
// returns the index of its members. It fails with a *SyntaxError. visit, if not nil, is called
// at each top-level value, except the objects that rules.Nested names. It must consume the
// value with exactly one call of the Reader. Its own error ends the walk and is returned as it
// is.
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
	obj.Src, obj.Members = src, obj.Members[:0]
	if r.Kind() != '{' {
		value, err := r.Skip()
		if err != nil {
			return err
		}
		return &SyntaxError{Offset: int64(value.Start), Reason: "the document is not a JSON object"}
	}
	if cap(obj.Members) == 0 {
		const usual = 12
		obj.Members = make([]Member, 0, usual)
	}
	err := r.Object(func(name []byte, key Span) error {
		m := Member{Name: r.intern(name), Key: key}
		r.field = m.Name
		if err := r.top.check(rules, m.Name, key); err != nil {
			return err
		}
		r.Kind()
		start := r.next
		if err := r.consume(rules, m.Name, name, visit); err != nil {
			return err
		}
		m.Value = Span{start, r.at}
		obj.Members = append(obj.Members, m)
		return nil
	})
	if err != nil {
		return err
	}
	return r.End()
}

// Index consumes an object and indexes its members into obj, which reuses its memory; obj.Src
// is the object alone. visit is as in [Index], and sees offsets in the whole document. After
// an error obj is of no use.
func (r *Reader) Index(obj *Object, visit func(r *Reader, name []byte) error) error {
	r.Kind()
	start := r.next
	obj.Members = obj.Members[:0]
	err := r.Object(func(name []byte, key Span) error {
		m := Member{Name: r.intern(name), Key: Span{key.Start - start, key.End - start}}
		r.Kind()
		from := r.next
		if err := visit(r, name); err != nil {
			return err
		}
		m.Value = Span{from - start, r.at - start}
		obj.Members = append(obj.Members, m)
		return nil
	})
	obj.Src = r.src[start:r.at]
	return err
}

// scratch keeps indexes that are not used any more, for the next.
var scratch = sync.Pool{New: func() any { return new(Object) }}

// Borrow returns an Object for [IndexInto]. Give it back with [GiveBack].
func Borrow() *Object { return scratch.Get().(*Object) }

// GiveBack ends the use of o. The memory of an unusually large index is let go.
func GiveBack(o *Object) {
	const usual = 64
	if cap(o.Members) > usual {
		return
	}
	o.Src = nil
	scratch.Put(o)
}

// consume reads one top-level value, and checks the names inside it where the
// rules say so.
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
