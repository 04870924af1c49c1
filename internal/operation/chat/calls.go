package chat

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// callNumbers numbers the tool calls of a stream, because clients join the pieces of a call by
// its index. Some vendors leave the index out, and some give one to several calls. The zero
// callNumbers is ready.
type callNumbers struct {
	candidates map[int64][]numberedCall // by their index
	edited     bool                     // the chunk at hand has an index that is not its vendor's
	unnamed    bool                     // a call of it began without an id
}

// numberedCall is a call that has begun.
type numberedCall struct {
	theirs int64 // the vendor's index; -1 for none
	id     string
	ours   int64 // the index that the client knows
}

// mostCalls bounds the calls of a stream that are numbered.
const mostCalls = 1024

// apply returns the choices of a chunk with the right index in each piece of a call. What has
// a right one stays byte for byte.
func (n *callNumbers) apply(choices []byte) []byte {
	n.edited, n.unnamed = false, false
	all := rawjson.Elements(choices)
	for i, choice := range all {
		candidate, _ := rawjson.Int(rawjson.Lookup(choice, "index"))
		delta := rawjson.Lookup(choice, "delta")
		pieces := rawjson.Elements(rawjson.Lookup(delta, "tool_calls"))
		edited := false
		for j, piece := range pieces {
			o, err := rawjson.Index(piece, nil, nil)
			if err != nil {
				continue // no object
			}
			given, isGiven := rawjson.Int(o.Raw("index"))
			if number := n.number(candidate, &o, given, isGiven); !isGiven || number != given {
				pieces[j] = o.Apply(nil, rawjson.Set("index", strconv.AppendInt(nil, number, 10)))
				edited = true
			}
		}
		if edited {
			n.edited = true
			delta = rawjson.Apply(delta, rawjson.Set("tool_calls", rawjson.AppendArray(nil, pieces)))
			all[i] = rawjson.Apply(choice, rawjson.Set("delta", delta))
		}
	}
	if !n.edited {
		return choices
	}
	return rawjson.AppendArray(nil, all)
}

// number returns the index of the call that a piece belongs to, or of a new call. A new id
// begins a call. Without an id and an index, a name does. Some vendors make up an id for each
// piece, so beside an index an id begins a call only together with a name.
func (n *callNumbers) number(candidate int64, piece *rawjson.Object, given int64, isGiven bool) int64 {
	id, _ := rawjson.String(piece.Raw("id"))
	name := rawjson.LookupString(piece.Raw("function"), "name")
	calls := n.candidates[candidate]
	next := int64(0)
	taken := false
	for i := len(calls) - 1; i >= 0; i-- {
		call := &calls[i]
		same := isGiven && call.theirs == given && (id == "" || call.id == "" || call.id == id || name == "")
		if !isGiven {
			same = id != "" && call.id == id || id == "" && name == "" && i == len(calls)-1
		}
		if same {
			if call.id == "" {
				call.id = id
			}
			return call.ours
		}
		next, taken = max(next, call.ours+1), taken || call.ours == given
	}
	if isGiven && !taken && given >= 0 {
		next = given
	}
	if !isGiven {
		given = -1
	}
	if n.unnamed = n.unnamed || id == ""; len(calls) < mostCalls && len(n.candidates) < mostCalls {
		if n.candidates == nil {
			n.candidates = make(map[int64][]numberedCall)
		}
		n.candidates[candidate] = append(calls, numberedCall{given, id, next})
	}
	return next
}
