package sim

import (
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// instance is a small JSON value that a JSON Schema allows: required members
// only, the first of several ways, the least of every range. `not`, `if`,
// `contains`, `dependentRequired`, `dependentSchemas` and patterns that Go's
// regexp does not know are not looked at.
func instance(schema []byte) []byte {
	const most = 1_000 // values; a schema that refers to itself may want more
	m := maker{root: schema, left: most}
	return m.value(nil, schema)
}

// maker makes one instance.
type maker struct {
	root  []byte // what "#" refers to
	left  int    // how many more values may be made
	depth int    // levels above the value
	vary  int    // makes elements of a list differ
}

// value appends an instance of the schema.
func (m *maker) value(dst, schema []byte) []byte {
	m.left--
	if m.left < 0 {
		return append(dst, "null"...)
	}
	m.depth++
	defer func() { m.depth-- }()
	s := m.view(schema)
	for _, name := range []string{"const", "default"} {
		if v := s.get(name); v != nil {
			return append(dst, v...)
		}
	}
	if choices := rawjson.Elements(s.get("enum")); len(choices) > 0 {
		return append(dst, choices[m.vary%len(choices)]...)
	}
	switch s.kind() {
	case "object":
		return m.object(dst, s)
	case "array":
		return m.array(dst, s)
	case "string":
		return rawjson.Quote(dst, m.text(s))
	case "number", "integer":
		return m.number(dst, s)
	case "boolean":
		return strconv.AppendBool(dst, m.vary%2 == 1)
	}
	return append(dst, "null"...)
}

// object appends an object of the required members, and of others only if
// minProperties wants them.
func (m *maker) object(dst []byte, s view) []byte {
	names := s.required()
	least, _ := s.most("minProperties")
	for _, name := range s.properties() {
		if float64(len(names)) >= least {
			break
		}
		names = appendNew(names, name)
	}
	for i := 1; float64(len(names)) < math.Min(least, float64(m.left)); i++ {
		names = appendNew(names, "extra"+strconv.Itoa(i))
	}
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.Quote(dst, name), ':')
		dst = m.value(dst, s.property(name))
	}
	return append(dst, '}')
}

// array appends an array as short as it may be.
func (m *maker) array(dst []byte, s view) []byte {
	first := rawjson.Elements(s.get("prefixItems"))
	least, _ := s.most("minItems")
	unique := string(s.get("uniqueItems")) == "true"
	before := m.vary
	dst = append(dst, '[')
	for i := 0; float64(i) < least && m.left > 0; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		item := s.get("items")
		if i < len(first) {
			item = first[i]
		}
		if unique {
			m.vary = i
		}
		dst = m.value(dst, item)
	}
	m.vary = before
	return append(dst, ']')
}

// formats are strings of the formats that have a form.
var formats = map[string]string{
	"date-time": "2026-01-01T00:00:00Z", "date": "2026-01-01", "time": "00:00:00Z", "duration": "PT1S",
	"email": "sim@example.com", "hostname": "example.com", "uri": "https://example.com/",
	"ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "00000000-0000-4000-8000-000000000000",
}

// text is a string of an allowed length.
func (m *maker) text(s view) string {
	text := "simulated"
	if pattern, ok := rawjson.String(s.get("pattern")); ok {
		if match, ok := matching(pattern); ok {
			return match
		}
	}
	if format, ok := rawjson.String(s.get("format")); ok && formats[format] != "" {
		return formats[format]
	}
	if m.vary > 0 {
		text = strconv.Itoa(m.vary) + text
	}
	const longest = 1 << 16
	if least, ok := s.most("minLength"); ok && least > float64(len(text)) {
		text += strings.Repeat("x", int(math.Min(least, longest))-len(text))
	}
	if most, ok := s.least("maxLength"); ok && most < float64(len(text)) {
		text = text[:int(math.Max(most, 0))]
	}
	return text
}

// number appends zero or, where that is not allowed, the allowed number that
// is nearest to it.
func (m *maker) number(dst []byte, s view) []byte {
	step, stepped := s.least("multipleOf")
	if s.kind() == "integer" && (!stepped || step != math.Trunc(step)) {
		step, stepped = 1, true
	}
	low, high := s.bounds()
	n := 0.0
	switch {
	case low > 0:
		n = low
	case high < 0:
		n = high
	}
	if stepped && step > 0 {
		n = nearest(n, step, low, high)
		n += step * float64(m.vary)
	} else {
		n += float64(m.vary)
	}
	n = min(max(n, -math.MaxFloat64), math.MaxFloat64) // JSON has no infinity
	if n == 0 {                                        // not "-0"
		return append(dst, '0')
	}
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	raw := jsontext.Float(n)
	return append(dst, raw.String()...)
}

// nearest is the multiple of step in [low, high] that is nearest to n, or n
// where steps are too small to be counted.
func nearest(n, step, low, high float64) float64 {
	steps := math.Round(n / step)
	if math.IsInf(steps, 0) {
		return n
	}
	if n = steps * step; n < low {
		n += step
	}
	if n > high {
		n -= step
	}
	return n
}
