package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// rule reads a single value into a field, or says what would be right.
type rule func(text string, to reflect.Value) error

// into is the rule that a function parses.
func into[T any](parse func(string) (T, error)) rule {
	return func(text string, to reflect.Value) error {
		v, err := parse(text)
		to.Set(reflect.ValueOf(v).Convert(to.Type()))
		return err
	}
}

// ruleFor is the rule of that name. Without a name it is that of the type: text is not empty,
// a number is not negative, and a duration is longer than 0.
func ruleFor(name string, t reflect.Type) rule {
	switch {
	case name != "":
		return rules[name]
	case t == reflect.TypeFor[time.Duration]():
		return into(parseDuration)
	case t.Kind() == reflect.Bool:
		return into(choose("true", "false"))
	case t.Kind() == reflect.Int64:
		return into(whole(0, math.MaxInt64, ", 0 or more"))
	}
	return into(parseWord)
}

// rules are the rules that tags name.
var rules = map[string]rule{
	"address":   into(func(text string) (string, error) { return parseAddress(text) }),
	"admin":     into(func(text string) (string, error) { return parseAddress(text, "off") }),
	"affinity":  into(oneOf(gateway.Affinities()...)),
	"auth":      into(upstream.ParseAuth),
	"batch":     into(whole(0, math.MaxInt32, ", 0 or more")),
	"billing":   into(oneOf(Prepaid, Count)),
	"bytes":     into(parseBytes),
	"cache":     into(parseCache),
	"collector": into(parseCollector),
	"credit":    into(parseCredit),
	"currency":  into(parseCurrency),
	"date":      into(parseDate),
	"done":      into(parseDone),
	"drain":     into(parseDrain),
	"driver":    into(func(text string) (string, error) { return oneOf(slices.Sorted(maps.Keys(drivers))...)(text) }),
	"every":     into(parseEvery),
	"kind":      into(oneOf(gateway.Kinds()...)),
	"limit":     into(whole(0, math.MaxInt32, ", 0 or more; 0 is no limit")),
	"mode":      into(oneOf(gateway.ResponsesModes()...)),
	"network":   into(parsePrefix),
	"not":       into(choose("false", "true")),
	"origin":    into(parseOrigin),
	"page":      into(parsePageOrigin),
	"positive":  into(whole(1, math.MaxInt32, ", 1 or more; leave it out for the default")),
	"prefix":    into(parseIDPrefix),
	"priority":  into(whole(math.MinInt32, math.MaxInt32, "")),
	"ratio":     into(parseRatio),
	"reasoning": into(oneOf(gateway.Reasonings()...)),
	"secret":    into(func(text string) (secret.String, error) { return secret.New(text), nil }),
	"share":     into(parseShare),
	"store":     into(parseStore),
	"streams":   into(parseStreamOptions),
	"thinking":  into(parseThinking),
	"weight":    into(whole(1, 1_000_000, " from 1 to 1000000")),
	"window":    into(parseWindow),
	"wire":      into(oneOf(upstream.ChatCompletion, upstream.Responses, upstream.Messages)),
}

// whole reads a whole number of a range, which says names in a problem: ", 0 or more".
func whole(least, most int64, says string) func(string) (int64, error) {
	return func(text string) (int64, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return 0, errors.New("it must be a whole number" + says)
		}
		return n, nil
	}
}

// oneOf reads one of several words.
func oneOf[S ~string](choices ...S) func(string) (S, error) {
	return func(text string) (S, error) {
		if slices.Contains(choices, S(text)) {
			return S(text), nil
		}
		names := make([]string, len(choices))
		for i, c := range choices {
			names[i] = string(c)
		}
		return "", errors.New("it must be one of " + strings.Join(names, ", "))
	}
}

// choose reads true or false, of which set stands for true.
func choose(set, unset string) func(string) (bool, error) {
	return func(text string) (bool, error) {
		if text != set && text != unset {
			return false, errors.New("it must be true or false")
		}
		return text == set, nil
	}
}

var errEmpty = errors.New("it must not be empty")

func parseWord(text string) (string, error) {
	if text == "" {
		return "", errEmpty
	}
	return text, nil
}

// ParseDuration reads Go's durations and whole days: "90s", "24h", "30d".
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return 0, errors.New("write a duration such as 90s, 24h or 30d")
}

// parseDuration reads a duration above 0: where 0 means the default, a file that says 0
// would not get what it says.
func parseDuration(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d == 0 {
		err = errors.New("it must be longer than 0; leave it out for the default")
	}
	return d, err
}

// parseWindow reads a duration. 0, which switches the window off, becomes negative,
// since 0 is the default.
func parseWindow(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d == 0 {
		d = -1
	}
	return d, err
}

func parseDrain(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d > router.MaxDrain {
		err = fmt.Errorf("it must be at most %s", router.MaxDrain)
	}
	return d, err
}

func parseEvery(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d < discovery.MinEvery {
		err = fmt.Errorf("it must be at least %s", discovery.MinEvery)
	}
	return d, err
}

// parseDate reads a day or a moment.
func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write a day such as 2026-12-31")
}

// parseAddress reads host:port, or one of the words.
func parseAddress(text string, words ...string) (string, error) {
	if _, _, err := net.SplitHostPort(text); err != nil && !slices.Contains(words, text) {
		return text, errors.New(strings.Join(append([]string{"it must be host:port, for example 127.0.0.1:8080"}, words...), ", or "))
	}
	return text, nil
}

// parseCurrency reads a currency by the form of ISO 4217. Any such word is taken: amounts are
// never converted.
func parseCurrency(text string) (string, error) {
	if len(text) != 3 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return text, errors.New("it must be three capital letters such as USD")
	}
	return text, nil
}

// parseStore reads where accounts, keys and balances are kept. The word memory is taken
// for "memory:", which is not YAML without quotes.
func parseStore(text string) (string, error) {
	path, sqlite := strings.CutPrefix(text, SQLite)
	switch {
	case text == Memory, text+":" == Memory:
		return Memory, nil
	case strings.HasPrefix(text, postgres), strings.HasPrefix(text, "postgresql://"):
		return text, nil
	case sqlite && path != "" && !strings.HasPrefix(path, "//") && path != Memory:
		return text, nil
	}
	return text, errors.New(`it must be sqlite:PATH, postgres://… or "memory:"`)
}

func parseCredit(text string) (billing.Money, error) {
	m, err := billing.ParseMoney(text)
	if err != nil || m < 0 {
		return 0, errors.New(`it must be a decimal such as "25.00", with at most 9 digits after the point, and not negative`)
	}
	return m, nil
}

// parseHash reads the hash of a key in the form of [auth.ParseHash].
func parseHash(text string) ([32]byte, error) {
	hash, err := auth.ParseHash(text)
	if err != nil {
		err = errors.New(fault.From(err).Message)
	}
	return hash, err
}

// parseBytes reads a size of memory.
func parseBytes(text string) (int64, error) {
	const least = 64 << 20
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		number, ok := strings.CutSuffix(text, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if bytes := int64(1) << (10 * (i + 1)); err == nil && n > 0 && n <= math.MaxInt64/bytes && n*bytes >= least {
			return n * bytes, nil
		}
	}
	return 0, errors.New("write a size such as 512MiB or 2GiB, at least 64MiB")
}

// parsePrefix reads an address or a network.
func parsePrefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.Prefix{}, errors.New("write an address such as 10.0.0.7, or a network such as 10.0.0.0/8")
}

// parseCollector reads the base address of a collector.
func parseCollector(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("write a collector's address such as http://127.0.0.1:4318; a key goes into headers")
	}
	return strings.TrimSuffix(text, "/"), nil
}

// parseShare reads a share such as 0.25 in thousandths, without a float.
func parseShare(text string) (int, error) {
	wrong := errors.New("write a share of traces from 0.001 to 1, such as 0.25")
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > 3 {
		return 0, wrong
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", 3-len(part)), 10, 16)
	if err != nil || n < 1 || n > 1000 {
		return 0, wrong
	}
	return int(n), nil
}

// parseOrigin reads the origin of a web page as browsers send it.
func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != text {
		return "", errors.New("write the origin of a page, as browsers do: a scheme, a host and a port if it is not the usual one, such as https://app.example.com")
	}
	return text, nil
}

// The origins of pages that are none of a host's.
const (
	everyOrigin = "*"    // of all pages
	nullOrigin  = "null" // of files and of sandboxed frames, which any page can open
)

// parsePageOrigin reads an origin exactly as browsers send it: an origin that never
// matches would be a mistake that nothing reports. Apps have schemes of their own.
func parsePageOrigin(text string) (string, error) {
	if text == everyOrigin || text == nullOrigin {
		return text, nil
	}
	u, err := url.Parse(text)
	usualPort := err == nil && (u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443")
	switch {
	case err == nil && strings.Contains(u.Host, "*"):
		return "", errors.New(`each origin is written out, there are no patterns; "*" alone stands for every origin`)
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme+"://"+u.Host != text || usualPort || text != strings.ToLower(text) || strings.Trim(text, printableASCII) != "":
		return "", errors.New("write the origin of a page, exactly as browsers send it: a scheme, a host in lower case and a port if it is not the usual one, with nothing behind it, such as https://app.example.com")
	}
	return text, nil
}

// printableASCII is what an origin may consist of: browsers send other names encoded.
const printableASCII = "abcdefghijklmnopqrstuvwxyz0123456789+-._:/[]"

// parseRatio reads a word such as "16:9", which YAML takes for a mapping without quotes.
func parseRatio(text string) (string, error) {
	if text == "" {
		return "", errors.New(`write it in quotes, such as "16:9"`)
	}
	return text, nil
}

func parseDone(text string) (optional bool, err error) {
	_, err = oneOf("optional", "required")(text)
	return text == "optional", err
}

// parseStreamOptions reads whether a vendor refuses stream_options.
func parseStreamOptions(text string) (refuses bool, err error) {
	switch text {
	case "yes", "true":
		return false, nil
	case "no", "false":
		return true, nil
	}
	return false, errors.New("it must be one of yes, no: no is for a vendor that refuses the field")
}

func parseCache(text string) (bool, error) {
	if text != "auto" {
		return false, errors.New("it must be auto, or left out: then only callers mark what is cached")
	}
	return true, nil
}

func parseThinking(text string) (string, error) {
	if text != "adaptive" && text != "enabled" {
		return "", errors.New("it must be adaptive or enabled, or left out: then only clients that ask to see reasoning get any")
	}
	return text, nil
}

// maxPrefix bounds the prefix of discovered ids, in bytes.
const maxPrefix = 100

// parseIDPrefix reads the beginning of discovered ids. It has no *, which would make a
// pattern of each id.
func parseIDPrefix(text string) (string, error) {
	if text == "" || len(text) > maxPrefix || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '*' }) {
		return "", fmt.Errorf("it must be the beginning of ids, such as groq/, of at most %d characters without space and *", maxPrefix)
	}
	return text, nil
}
