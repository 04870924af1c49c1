package chat

import (
	"sync"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// scratch keeps indexes of answers that nobody looks at any more, for the next.
var scratch = sync.Pool{New: func() any { return new(rawjson.Object) }}

// borrow returns an Object for rawjson.IndexInto. Give it back with giveBack.
func borrow() *rawjson.Object { return scratch.Get().(*rawjson.Object) }

// giveBack ends the use of o. The memory of an unusually large index is let go.
func giveBack(o *rawjson.Object) {
	const usual = 64
	if cap(o.Members) > usual {
		return
	}
	o.Src = nil
	scratch.Put(o)
}
