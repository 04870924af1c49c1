package billing

import (
	"fmt"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
)

// Subject is what a budget is on. It is comparable, and prints as
//
//	account:A   group:A/G   key:ID   tag:A/NAME=VALUE   run:NAME   channel:NAME   model:ID
type Subject struct {
	Kind    SubjectKind
	Account string // of an account, a group and a tag
	Name    string // of all others than an account: for a key and a model its id
	Value   string // of a tag
	Key     string // of a run: the id of the key that it belongs to, which is not printed
}

// SubjectKind is the kind of a [Subject].
type SubjectKind string

// The kinds of a subject.
const (
	OnAccount SubjectKind = "account"
	OnGroup   SubjectKind = "group"
	OnKey     SubjectKind = "key"
	OnTag     SubjectKind = "tag"
	OnRun     SubjectKind = "run"
	OnChannel SubjectKind = "channel"
	OnModel   SubjectKind = "model"
)

// AccountSubject is an account as a subject.
func AccountSubject(name string) Subject { return Subject{Kind: OnAccount, Account: name} }

// KeySubject is a key as a subject, by its id.
func KeySubject(id string) Subject { return Subject{Kind: OnKey, Name: id} }

// ParseSubject reads the text form of a subject. It fails with fault.InvalidRequest, whose
// Param is "subject". A run has no Key then.
func ParseSubject(text string) (Subject, error) {
	kind, rest, _ := strings.Cut(text, ":")
	s := Subject{Kind: SubjectKind(kind), Name: rest}
	var within bool
	switch s.Kind {
	case OnAccount:
		s.Account, s.Name = rest, ""
	case OnGroup, OnTag:
		s.Account, s.Name, within = strings.Cut(rest, "/")
		if s.Kind == OnTag && within {
			s.Name, s.Value, _ = strings.Cut(s.Name, "=")
		}
	}
	if err := s.Validate(); err != nil {
		return Subject{}, fault.Invalid("subject", fmt.Sprintf(
			"A budget is on account:A, group:A/G, key:ID, tag:A/NAME=VALUE, run:NAME, channel:NAME or model:ID, and not on %q.", clip(text)))
	}
	return s, nil
}

// String is the text form that [ParseSubject] reads.
func (s Subject) String() string {
	switch s.Kind {
	case OnAccount:
		return string(s.Kind) + ":" + s.Account
	case OnGroup:
		return string(s.Kind) + ":" + s.Account + "/" + s.Name
	case OnTag:
		return string(s.Kind) + ":" + s.Account + "/" + s.Name + "=" + s.Value
	}
	return string(s.Kind) + ":" + s.Name
}

// Validate fails with fault.InvalidRequest unless the subject has all parts of its kind and no
// others.
func (s Subject) Validate() error {
	var account, name, value bool
	switch s.Kind {
	case OnAccount:
		account = true
	case OnGroup:
		account, name = true, true
	case OnTag:
		account, name, value = true, true, true
	case OnKey, OnRun, OnChannel, OnModel:
		name = true
	default:
		return fault.Invalid("subject", fmt.Sprintf("There is no budget on a thing of the kind %q.", clip(string(s.Kind))))
	}
	ends := ""
	if account && name {
		ends = "/="
	}
	for _, part := range [...]struct {
		text   string
		needed bool
		ends   string // characters that end the part
	}{{s.Account, account, "/"}, {s.Name, name, ends}, {strings.ReplaceAll(s.Value, " ", "_"), value, ""}} {
		if (part.text != "") != part.needed || !plain(part.text) || strings.ContainsAny(part.text, part.ends) {
			return fault.Invalid("subject", fmt.Sprintf("A budget cannot be on %q.", clip(s.String())))
		}
	}
	if s.Key != "" && (s.Kind != OnRun || !plain(s.Key)) {
		return fault.Invalid("subject", "Only a run belongs to a key.")
	}
	return nil
}
