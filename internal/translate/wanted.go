package translate

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Some vendors of chat put members into an answer that only they can read, and refuse the next
// turn without them. Gemini signs each call (extra_content.google.thought_signature).
// OpenRouter gives encrypted reasoning_details. Messages and responses have no place for them.
// They travel sealed in reasoningSignature, and go back to the same vendor alone.

// The members that a vendor wants back with a call, and with a message.
var (
	wantedOfCall    = []string{"extra_content", "provider_specific_fields"}
	wantedOfMessage = []string{"extra_content", reasoningDetails}
)

// reasoningDetails is the member of a message in which OpenRouter has what its vendors
// encrypted or signed.
const reasoningDetails = "reasoning_details"

// mostWanted is how many bytes of such members are carried of one answer.
const mostWanted = 1 << 20

// wanted are members of a message, or of one of its calls, that its vendor wants back.
type wanted struct {
	Vendor  string         `json:"vendor"`
	Call    string         `json:"call,omitzero"`   // the vendor's id of the call
	Number  int            `json:"number,omitzero"` // of the call in its answer, from 1; 0 for the message
	Members jsontext.Value `json:"members"`
}

// keeper seals for one account what its vendor wants back, and opens it for that vendor.
type keeper struct {
	secrets         *seal.Secrets
	account, vendor string
}

// The prefix and the purpose of what a keeper seals.
const (
	wantedPrefix  = "wb1."
	wantedPurpose = "wanted back"
)

// keeper is that of a call to the bridge's upstream; nil if nothing can be sealed. An
// upstream that does not say who its vendor is has that of its model.
func (b *bridge) keeper(call *upstream.Call) *keeper {
	if b.Secrets == nil {
		return nil
	}
	vendor := "model " + call.Model
	if v, ok := upstream.As[upstream.Vendored](b.up); ok {
		vendor = "at " + v.Vendor()
	}
	return &keeper{b.Secrets, call.Account, vendor}
}

// seal is the members as a JSON string.
func (k *keeper) seal(w wanted) []byte {
	w.Vendor = k.vendor
	return rawjson.Quote(nil, k.secrets.SealText(wantedPrefix, wantedPurpose, k.account, rawjson.Encoded(w)))
}

// open opens what was sealed for this account and this vendor; false for anything else.
func (k *keeper) open(sealed string) (w wanted, ok bool) {
	if k == nil {
		return w, false
	}
	data, ok := k.secrets.OpenText(wantedPrefix, wantedPurpose, k.account, sealed)
	return w, ok && json.Unmarshal(data, &w) == nil && w.Vendor == k.vendor
}

// wantedReader gathers what a vendor wants back, while its answer is read.
type wantedReader struct {
	keeper *keeper // nil if nothing is carried
	size   int     // bytes that were gathered

	calls   int    // that have begun
	lastID  string // of the last one, if the vendor gave it
	extra   []byte // the message's own extra_content
	details []detail
}

// detail is an element of reasoning_details. In a stream the pieces of one have its type
// and its index.
type detail struct {
	Type      string         `json:"type,omitzero"`
	Text      string         `json:"text,omitzero"`
	Summary   string         `json:"summary,omitzero"`
	Data      string         `json:"data,omitzero"`
	Signature *string        `json:"signature,omitzero"`
	Index     jsontext.Value `json:"index,omitzero"`
	Extra     jsontext.Value `json:",embed"`
}

// message takes in the members of a message, or of a piece of one.
func (r *wantedReader) message(o *rawjson.Object) {
	if r.keeper == nil {
		return
	}
	if extra := o.Raw("extra_content"); bytes.Contains(extra, []byte("signature")) && r.fits(extra) {
		r.extra = bytes.Clone(extra)
	}
	list := o.Raw(reasoningDetails)
	var pieces []detail
	if rawjson.IsNull(list) || !r.fits(list) || json.Unmarshal(list, &pieces, jsontext.AllowDuplicateNames(true)) != nil {
		return
	}
	for _, d := range pieces {
		if n := len(r.details); n > 0 && r.details[n-1].Type == d.Type && string(r.details[n-1].Index) == string(d.Index) && d.Data == "" {
			last := &r.details[n-1]
			last.Text, last.Summary = last.Text+d.Text, last.Summary+d.Summary
			if d.Signature != nil {
				last.Signature = d.Signature
			}
			continue
		}
		r.details = append(r.details, d)
	}
}

// fits counts bytes to carry; false if they are too many.
func (r *wantedReader) fits(raw []byte) bool {
	r.size += len(raw)
	return r.size <= mostWanted
}

// ofMessage is what the vendor wants back of the message until now, sealed; nil if there is
// nothing.
func (r *wantedReader) ofMessage() []byte {
	var members []rawjson.Edit
	if r.extra != nil {
		members = append(members, rawjson.Set("extra_content", r.extra))
	}
	kept := slices.DeleteFunc(r.details, func(d detail) bool { // the others are read by everybody
		return d.Data == "" && (d.Signature == nil || *d.Signature == "")
	})
	if len(kept) > 0 {
		members = append(members, rawjson.Set(reasoningDetails, rawjson.Encoded(kept)))
	}
	r.extra, r.details = nil, nil
	if members == nil {
		return nil
	}
	return r.keeper.seal(wanted{Members: rawjson.Apply([]byte("{}"), members...)})
}

// ofCall does the same for a call or a piece of one. members are its members besides those
// that are translated.
func (r *wantedReader) ofCall(id, name string, members []byte) []byte {
	if r.keeper == nil {
		return nil
	}
	if id != "" && id != r.lastID || id == "" && name != "" {
		r.calls++
		r.lastID = id
	}
	if len(members) == 0 || r.calls == 0 {
		return nil
	}
	var own []rawjson.Edit
	for _, name := range wantedOfCall {
		if raw := rawjson.Lookup(members, name); !rawjson.IsNull(raw) && r.fits(raw) {
			own = append(own, rawjson.Set(name, raw))
		}
	}
	if own == nil {
		return nil
	}
	return r.keeper.seal(wanted{Call: r.lastID, Number: r.calls, Members: rawjson.Apply([]byte("{}"), own...)})
}

// giveBack takes reasoningSignature out of the messages of a chat, since strict vendors refuse
// unknown members, and restores what this vendor wants. An answer may stand in several
// consecutive messages of the assistant.
func (k *keeper) giveBack(list []byte) (out []byte, changed bool) {
	if !bytes.Contains(list, []byte(reasoningSignature)) {
		return nil, false
	}
	all := rawjson.Elements(list)
	for at := 0; at < len(all); at++ {
		var back []wanted
		from := at
		for ; at < len(all) && rawjson.LookupString(all[at], "role") == "assistant"; at++ {
			pieces := rawjson.LookupString(all[at], reasoningSignature)
			if pieces == "" {
				continue
			}
			own := k.pieces(pieces)
			all[at] = rawjson.Apply(all[at], append(membersOf(own), rawjson.Delete(reasoningSignature))...)
			back = append(back, own...)
		}
		if len(back) > 0 {
			giveCalls(all[from:at], back)
		}
	}
	return rawjson.AppendArray(nil, all), true
}

// pieces are those of a reasoningSignature that this vendor wants back.
func (k *keeper) pieces(signature string) (back []wanted) {
	for signature != "" {
		kind, _, value, rest, ok := cutPiece(signature)
		if !ok {
			return back
		}
		if w, ours := k.open(value); kind == 'v' && ours {
			back = append(back, w)
		}
		signature = rest
	}
	return back
}

// membersOf returns the edits that give a message its members back. A list gets the elements
// of all pieces; any other member gets the last value.
func membersOf(back []wanted) (edits []rawjson.Edit) {
	for _, name := range wantedOfMessage {
		var value []byte
		for _, w := range back {
			raw := rawjson.Lookup(w.Members, name)
			switch {
			case w.Number > 0 || raw == nil:
			case value != nil && value[0] == '[':
				value = rawjson.AppendArray(nil, append(rawjson.Elements(value), rawjson.Elements(raw)...))
			default:
				value = raw
			}
		}
		if value != nil {
			edits = append(edits, rawjson.Set(name, value))
		}
	}
	return edits
}

// giveCalls adds to each call of an answer what its vendor wants back with it. A call is
// found by its id, or by its number where the vendor gave none.
func giveCalls(messages [][]byte, back []wanted) {
	number := 0
	for i, m := range messages {
		calls := rawjson.Elements(rawjson.Lookup(m, "tool_calls"))
		for j, call := range calls {
			number++
			id := rawjson.LookupString(call, "id")
			for _, w := range back {
				if w.Number > 0 && (w.Call == id || w.Call == "" && w.Number == number) {
					for _, name := range wantedOfCall {
						if raw := rawjson.Lookup(w.Members, name); raw != nil {
							calls[j] = rawjson.Apply(calls[j], rawjson.Set(name, raw))
						}
					}
				}
			}
		}
		if len(calls) > 0 {
			messages[i] = rawjson.Apply(m, rawjson.Set("tool_calls", rawjson.AppendArray(nil, calls)))
		}
	}
}
