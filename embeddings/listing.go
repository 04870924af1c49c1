package embeddings

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// listing is an answer that was read: its members, and the items of data.
type listing struct {
	hollowed
	object rawjson.Object // over the answer, vectors included
	list   rawjson.Span   // of data
	items  []item
}

// item is one element of data. Its spans are the answer's.
type item struct {
	first  int          // where its first name begins
	index  rawjson.Span // empty where none is given
	number int64        // the index, or its place in data
	vector rawjson.Span // empty where there is none
}

// read reads an answer but for its vectors, and with them if that fails: a
// number behind a vector's object can have been taken for the vector's.
func read(data []byte) (*listing, error) {
	h := hollow(data)
	l, err := readHollowed(h)
	if err != nil && len(h.holes) > 0 {
		return readHollowed(hollowed{data: data, skeleton: data})
	}
	return l, err
}

func readHollowed(h hollowed) (*listing, error) {
	l := &listing{hollowed: h}
	var err error
	l.object, err = rawjson.Index(l.skeleton, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "data" && rd.Kind() == '[' {
			return rd.Array(func(i int) error { return l.item(rd, i) })
		}
		_, err := rd.Skip()
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range l.object.Members {
		m := &l.object.Members[i]
		m.Key, m.Value = l.span(m.Key), l.span(m.Value)
		if m.Name == "data" {
			l.list = m.Value
		}
	}
	l.object.Src = h.data
	return l, nil
}

// item reads one element of data.
func (l *listing) item(rd *rawjson.Reader, i int) error {
	if rd.Kind() != '{' {
		return errors.New("an item is not an object")
	}
	it := item{number: int64(i)}
	err := rd.Object(func(name []byte, key rawjson.Span) error {
		if it.first == 0 {
			it.first = l.origin(key.Start)
		}
		kind := rd.Kind()
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		switch string(name) {
		case "index":
			return it.readIndex(span.Of(l.skeleton), l.span(span))
		case "embedding":
			if kind == '"' || l.isHole(span.Start) || kind == '[' && !bytes.ContainsAny(span.Of(l.skeleton)[1:], `[{"`) {
				it.vector = l.span(span)
			}
		}
		return nil
	})
	l.items = append(l.items, it)
	return err
}

func (it *item) readIndex(raw []byte, span rawjson.Span) error {
	n, ok := rawjson.Int(raw)
	if !ok {
		return errors.New("an index is not an integer")
	}
	it.number, it.index = n, span
	return nil
}

// check finds each of the indexes up to want once, with a vector.
func (l *listing) check(want int) error {
	if len(l.items) != want {
		return fmt.Errorf("%d items for %d inputs", len(l.items), want)
	}
	seen := make([]bool, want)
	for i := range l.items {
		it := &l.items[i]
		if it.number < 0 || it.number >= int64(want) || seen[it.number] {
			return fmt.Errorf("the index %d does not belong there", it.number)
		}
		seen[it.number] = true
		if v := it.vector.Of(l.data); len(v) < 2 || len(bytes.Trim(v[1:len(v)-1], space)) == 0 {
			return fmt.Errorf("item %d has no vector", i)
		}
	}
	return nil
}

// public are the patches by which the items get the encoding that is asked for,
// and an index where they have none.
func (l *listing) public(base64 bool) (patches []patch, err error) {
	for i := range l.items {
		it := &l.items[i]
		if it.index == (rawjson.Span{}) {
			index := strconv.AppendInt([]byte(`"index":`), it.number, 10)
			patches = append(patches, patch{rawjson.Span{Start: it.first, End: it.first}, append(index, ',')})
		}
		before := it.vector.Of(l.data)
		after, err := encoded(before, base64)
		if err != nil {
			return nil, err
		}
		if &after[0] != &before[0] {
			patches = append(patches, patch{it.vector, after})
		}
	}
	return patches, nil
}

// moved are the items with their indexes moved by before, without the brackets
// around them. Every item has an index.
func (l *listing) moved(before int64) []byte {
	patches := make([]patch, len(l.items))
	for i := range l.items {
		it := &l.items[i]
		patches[i] = patch{it.index, strconv.AppendInt(nil, before+it.number, 10)}
	}
	inner := rawjson.Span{Start: l.list.Start + 1, End: l.list.End - 1}
	return bytes.Trim(patched(l.data, inner, patches), space)
}
