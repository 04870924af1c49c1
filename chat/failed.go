package chat

import "github.com/tollhouse-ai/gateway/internal/rawjson"

// failures are words with which an event says that it is an error, where it has
// no member "error".
var failures = map[string][]string{
	"type":   {"error", "response.error", "response.failed"},
	"object": {"error"},
}

// failed reports whether an event without choices is an error in a form of a
// vendor's own (faults.md, row 4): its kind is one, or it is a code with a
// message, or nothing but a "detail".
func failed(o *rawjson.Object) bool {
	for name, words := range failures {
		said, ok := rawjson.String(o.Raw(name))
		for _, word := range words {
			if ok && said == word {
				return true
			}
		}
	}
	_, message := rawjson.String(o.Raw("message"))
	return message && !rawjson.IsNull(o.Raw("code")) || len(o.Members) == 1 && o.Raw("detail") != nil
}
