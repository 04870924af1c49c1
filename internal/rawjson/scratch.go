package rawjson

import "sync"

// scratch keeps indexes that nobody looks at any more, for the next.
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
