package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// sound is what the mistakes are put into; they begin at line 4.
const sound = `billing: prepaid
channels: [{name: main, driver: sim, models: {m: m}}]
prices: {m: {input: "1"}}
`

func TestEveryMistakeIsFoundWhereItStands(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{sound + "biling: count", `4:1: the file has no field "biling"; did you mean billing?`},
		{sound + "limits: {burst: 1}", `4:10: limits has no field "burst"; its fields are max_concurrent, max_concurrent_videos, rpm, tpm`},
		{sound + "limits: {rpm: 1.5}", "4:15: rpm: it must be a whole number"},
		{sound + "limits: {rpm: 1e3}", "4:15: rpm: it must be a whole number"},
		{sound + "limits: {rpm: -1}", "4:15: rpm: it must be a whole number"},
		{sound + "limits: [1]", "4:9: limits must be a mapping of keys to values; its fields are max_concurrent, max_concurrent_videos, rpm, tpm"},
		{sound + "limits: {rpm: [1]}", "4:15: rpm must be a single value: it must be a whole number, 0 or more"},
		{sound + "limits: {rpm: }", "4:14: rpm must be a single value"},
		{sound + "limits: {rpm: '${NO_SUCH}'}", "4:15: rpm: the environment variable NO_SUCH is not set"},
		{sound + "limits: {rpm: '${}'}", "4:15: rpm: ${ must be followed by"},
		{sound + "limits: *nowhere", "4:9: there is no anchor"},
		{sound + "limits: {<<: {rpm: 1}}", "4:10: merge keys"},
		{sound + "limits: {rpm: 1, tpm: 1, rpm: 1}", `4:26: limits has "rpm" twice, first in line 4: remove one of them`},
		{sound + "limits: {}\nlimits: {}", `5:1: the file has "limits" twice, first in line 4`},
		{sound + "---\na: 1", "1:1: the file has more than one YAML document"},
		{"", "1:1: there are no channels"},
		{"- a", "1:1: the file must be a mapping"},
		{sound + "listen: 8080", "4:9: listen: it must be host:port"},
		{sound + "listen: off", "4:9: listen: it must be host:port"},
		{sound + "admin: nowhere", "4:8: admin: it must be host:port, for example 127.0.0.1:8080, or off"},
		{sound + "listen: 127.0.0.1:8080\nadmin: 127.0.0.1:8080", "5:8: admin: it is the address of listen, too: give one of them another port"},
		{sound + "data: ''", "4:7: data: it must not be empty"},
		{sound + "store: redis", `4:8: store: it must be sqlite:PATH, postgres://… or "memory:"`},
		{sound + "store: memories", "4:8: store: it must be sqlite:PATH"},
		{sound + "store: 'sqlite:'", "4:8: store: it must be sqlite:PATH"},
		{sound + "store: sqlite://x.db", "4:8: store: it must be sqlite:PATH"},
		{sound + "store: postgres:x", "4:8: store: it must be sqlite:PATH"},
		{sound + "currency: Euro", "4:11: currency: it must be three capital letters"},
		{"billing: free\n", "1:10: billing: it must be one of prepaid, count"},
		{"billing: ''\n", "1:10: billing: it must be one of prepaid, count"},
		{"billing: [count]\n", "1:10: billing must be a single value: it must be one of prepaid, count"},
		{"billing: {mode: count}\n", "1:10: billing must be a single value: it must be one of prepaid, count"},
		{"billing:\n", "1:10: billing must be a single value: it must be one of prepaid, count"},
		{sound + "affinity: [on]", "4:11: affinity must be a single value: it must be one of session, prefix, off"},
		{sound + "data: [x]", "4:7: data must be a single value"},
		{sound + "mcp: {enabled: [yes]}", "4:16: enabled must be a single value: it must be true or false"},
		{sound + "affinity: on", "4:11: affinity: it must be one of session, prefix, off"},
		{sound + "models: {m: {affinity: sticky}}", "4:24: affinity: it must be one of session, prefix, off"},
		{"billing: count\nchannels: [{name: main, driver: sim, session_header: Host, models: {m: m}}]", `2:12: channel "main": the session cannot be sent in a header "Host"; one for it is X-Session-Id`},
		{sound + "video: {poll: often}", "4:15: poll: write a duration"},
		{sound + "video: {pol: 5s}", `4:9: video has no field "pol"`},
		{sound + "video: {poll: 0s}", "4:15: poll: it must be longer than 0"},
		{sound + "video: {poll: -5s}", "4:15: poll: write a duration"},
		{sound + "video: {retention: week}", "4:20: retention: write a duration"},
		{sound + "video: {retention: 0}", "4:20: retention: it must be longer than 0"},
		{sound + "video: {duplicate_window: 5}", "4:27: duplicate_window: write a duration"},
		{sound + "video: {duplicate_window: [5s]}", "4:27: duplicate_window must be a single value"},
		{sound + "video: 5s", "4:8: video must be a mapping"},
		{sound + "responses: {store: yes}", "4:20: store: it must be one of off, native, on"},
		{sound + "responses: {store: memory}", "4:20: store: it must be one of off, native, on"},
		{sound + "responses: {retention: 0s}", "4:24: retention: it must be longer than 0"},
		{sound + "responses: {keep: on}", `4:13: responses has no field "keep"; its fields are retention, store`},
		{sound + "responses: on", "4:12: responses must be a mapping"},
		{sound + "secrets: [{env: NO_SUCH}]", "4:17: env: the environment variable NO_SUCH is not set"},
		{sound + "secrets: [short]", "4:10: secrets: each must have at least 32 characters"},
		{sound + "secrets: {env: ACME_KEY}", "4:10: secrets must be a list, for example secrets: [{env: TOLLHOUSE_SECRET}]"},
		{sound + "webhooks: {allow_private: maybe}", "4:27: allow_private: it must be true or false"},
		{sound + "webhooks: {allow_privat: true}", `4:12: webhooks has no field "allow_privat"; did you mean allow_private?`},
		{sound + "webhooks: true", "4:11: webhooks must be a mapping"},
	} {
		t.Run(c.text[max(0, len(c.text)-30):], func(t *testing.T) { refuses(t, c.text, c.want) })
	}
}

// The parser's own words would show the line, in which a key may stand, and say nothing of what
// would be right.
func TestWhatIsNotYAMLIsSaidInOurWords(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"\tlimits: 1", "4:1: this line is indented with a tab"},
		{"limits:\n\trpm: 1", "5:1: this line is indented with a tab"},
		{"limits: {rpm: 1", "4:9: this { is not closed: add the }"},
		{"secrets: [", "4:10: this [ is not closed: add the ]"},
		{"secrets: [{env: A]", "4:18: a comma or the closing } is missing before this"},
		{`data: "x`, `4:7: this text has no closing "`},
		{"data: 'x", "4:7: this text has no closing '"},
		{`data: "\q"`, `a \ begins an escape`},
		{"currency USD", "this line is no key with a value: write KEY: VALUE"},
		{"data: x\n   currency: USD", "4:7: the next line is indented as if it belonged to this value"},
		{"limits:\n  rpm: 1\n tpm: 1", "6:2: this line begins in another column"},
		{"data: @x", "4:7: a value cannot begin with @ or `"},
		{"data: %x", "a value cannot begin with %"},
		{"models: {*: *}", "a key or a value is missing here"},
		{"models:\n  *: *", `a * needs quotes, as in "*": "*"`},
		{"store: memory:", `4:8: this value has a colon in it: put it in quotes, as in store: "memory:"`},
		{"store: memory: # in memory", "4:8: this value has a colon in it"},
		{"store: a: b", "4:8: this value has a colon in it"},
	} {
		t.Run(c.text, func(t *testing.T) { refuses(t, sound+c.text, c.want) })
	}
}

// What a problem shows as an example must be right itself.
func TestEachListAndMappingHasAnExampleThatCanBeRead(t *testing.T) {
	env := func(string) (string, bool) { return "sk-0123456789abcdefghijklmnopqrstuvwxyz", true }
	for _, of := range []any{Config{}, Channel{}, Discovery{}, Account{}, Key{}, Model{}, Server{}, Telemetry{}, MCP{}} {
		d, _, err := newDecoder("t.yaml", nil, env)
		if err != nil {
			t.Fatal(err)
		}
		structure := reflect.TypeOf(of)
		for key, f := range d.fieldsOf(structure).keys {
			to := reflect.New(structure.FieldByIndex(f.index).Type).Elem()
			if to.Kind() != reflect.Slice && to.Kind() != reflect.Map {
				continue
			}
			if f.example == "" {
				t.Errorf("%s of %s has no example", key, structure)
				continue
			}
			body, err := parseYAML([]byte(f.example))
			if err != nil {
				t.Fatalf("%s: %v", f.example, err)
			}
			if d.value(body, key, f, to); len(d.problems) > 0 || to.Len() == 0 {
				t.Errorf("%s: %s is read as %v, with %v", key, f.example, to, d.problems)
			}
		}
	}
}

func TestEveryMistakeInAChannelIsFoundWhereItStands(t *testing.T) {
	for _, c := range []struct{ channel, want string }{
		{"{}", "2:14: a channel needs a name"},
		{"{name: a}", `2:14: channel "a" needs a driver`},
		{"{name: a, driver: ark, models: {m: m}, base_url: 'ftp://h'}", `2:14: channel "a": the base URL must be`},
		{"{name: a, driver: anthropic, models: {m: m}, base_url: 'ftp://h'}", `2:14: channel "a": the base URL must be`},
		{"{name: a, driver: [openai], models: {m: m}}", "2:32: driver must be a single value: it must be one of anthropic, ark, cohere"},
		{"{name: a, driver: openai, models: {m: m}, keys: [{file: [k]}]}", "2:70: file must be a single value"},
		{"{name: a, driver: openai, models: {m: m}, keys: [{file: ''}]}", "2:70: file: it must not be empty"},
		{"{name: a, driver: opnai}", "2:32: driver: it must be one of anthropic, ark, cohere"},
		{"{name: a, driver: sim}", `2:14: channel "a": it has no models`},
		{"{name: a, driver: sim, models: [m]}", "2:45: models must be a mapping"},
		{"{name: a, driver: sim, models: {m: ''}}", "2:49: models: m: it must not be empty"},
		{"{name: a, driver: sim, models: {'*': m}}", `2:14: channel "a": the model "*" leads to "m"`},
		{"{name: a, driver: sim, models: {m: m}, keys: [k]}", "2:14: channel \"a\": the sim driver answers in this process"},
		{"{name: a, driver: voyage, models: {m: m}, base_url: 'ftp://h'}", `2:14: channel "a": the base URL must be`},
		{"{name: a, driver: openai, models: {m: m}, base_url: 'ftp://h'}", `2:14: channel "a": the base URL must be`},
		{"{name: a, driver: openai, models: {m: m}, base_url: ''}", "2:66: base_url: it must not be empty"},
		{"{name: a, driver: openai, models: {m: m}, wire: responses}", "2:62: wire must be a list"},
		{"{name: a, driver: openai, models: {m: m}, wire: [chat, agents]}", "2:69: an item of wire: it must be one of chat, responses, messages"},
		{"{name: a, driver: openai, models: {m: m}, base_url: 'http://h/api/v4', wire: [chat, messages]}", `2:14: channel "a": wire has messages: say in messages, base_url, to what address /v1/messages is added`},
		{"{name: a, driver: openai, models: {m: m}, wire: [messages], messages: {base_url: 'ftp://h'}}", `2:14: channel "a": messages: the base URL must be`},
		{"{name: a, driver: openai, models: {m: m}, wire: [messages], messages: {auth: sk-1}}", "2:91: auth: it must be one of bearer, header:NAME, query:NAME, none"},
		{"{name: a, driver: openai, models: {m: m}, messages: {base_url: 'http://h'}}", `2:14: channel "a": messages is for a channel that has messages in wire`},
		{"{name: a, driver: openai, models: {m: m}, wire: [chat, messages], drop: [max_tokens]}", `2:14: channel "a": messages cannot be asked for without max_tokens`},
		{"{name: a, driver: anthropic, models: {m: m}, thinking: always}", "2:69: thinking: it must be adaptive or enabled, or left out"},
		{"{name: a, driver: anthropic, models: {m: m}, cache: always}", "2:66: cache: it must be auto, or left out"},
		{"{name: a, driver: anthropic, models: {m: m}, wire: [chat]}", `2:14: channel "a": wire is for the driver openai only`},
		{"{name: a, driver: openai, models: {m: m}, auth: sk-1}", "2:62: auth: it must be one of bearer, header:NAME, query:NAME, none"},
		{"{name: a, driver: openai, models: {m: m}, auth: none, keys: [sk-1]}", `2:14: channel "a": auth: none sends no key: take keys out`},
		{"{name: a, driver: openai, models: {m: m}, headers: {X-Api-Key: sk-1}}", `2:14: channel "a": headers: X-Api-Key is a header for secrets. A key goes under keys`},
		{"{name: a, driver: openai, models: {m: m}, headers: {x-session-id: b}, session_header: X-Session-Id}", `2:14: channel "a": headers and session_header both set x-session-id`},
		{"{name: a, driver: openai, models: {m: m}, headers: [b]}", "2:65: headers must be a mapping of keys to values, for example headers: {X-Title: my-app}"},
		{"{name: a, driver: openai, models: {m: m}, done: never}", "2:62: done: it must be one of optional, required"},
		{"{name: a, driver: anthropic, models: {m: m}, done: optional}", `2:14: channel "a": done is for the driver openai only`},
		{"{name: a, driver: openai, models: {m: m}, usage: no}", "2:63: usage must be a mapping"},
		{"{name: a, driver: openai, models: {m: m}, usage: {stream_options: never}}", "2:80: stream_options: it must be one of yes, no: no is for a vendor"},
		{"{name: a, driver: anthropic, models: {m: m}, usage: {stream_options: no}}", `2:14: channel "a": usage is for the driver openai only`},
		{"{name: a, driver: openai, models: {m: m}, begins: [b-]}", `2:14: channel "a": begins says which ids "*" passes through, and models has no "*"`},
		{"{name: a, driver: openai, models: {m: m}, except: [b-]}", `2:14: channel "a": except says which ids "*" does not pass through, and models has no "*"`},
		{"{name: a, driver: openai, models: {'*': '*'}, begins: ['b-*']}", `2:14: channel "a": begins has the beginnings of ids, such as gemini-, without *`},
		{"{name: a, driver: sim, models: {m: m}, headers: {X-Title: b}}", `2:14: channel "a": the sim driver answers in this process`},
		{"{name: a, driver: sim, models: {m: m}, wire: [responses]}", `2:14: channel "a": wire is for the driver openai only`},
		{"{name: a, driver: openai, models: {m: m}, keys: ['${EMPTY}']}", "2:63: an item of keys: it must not be empty"},
		{"{name: a, driver: openai, models: {m: m}, keys: k}", "2:62: keys must be a list"},
		{"{name: a, driver: sim, models: {m: m}, weight: 0}", "2:61: weight: it must be a whole number from 1"},
		{"{name: a, driver: sim, models: {m: m}, weight: -2}", "2:61: weight: it must be a whole number from 1"},
		{"{name: a, driver: sim, models: {m: m}, priority: first}", "2:63: priority: it must be a whole number"},
		{"{name: a, driver: sim, models: {m: m}, rpm: -1}", "2:58: rpm: it must be a whole number, 0 or more; 0 is no limit"},
		{"{name: a, driver: sim, models: {m: m}, rpm: 99999999999}", "2:58: rpm: it must be a whole number"},
		{"{name: a, driver: sim, models: {m: m}, max_concurrent: many}", "2:69: max_concurrent: it must be a whole number"},
		{"{name: a, driver: sim, models: {m: m}, timeout: 5s}", "2:62: timeout must be a mapping"},
		{"{name: a, driver: sim, models: {m: m}, timeout: {idle: 5}}", "2:69: idle: write a duration"},
		{"{name: a, driver: sim, models: {m: m}, timeout: {idle: 0s}}", "2:69: idle: it must be longer than 0"},
		{"{name: a, driver: sim, models: {m: m}, timeout: {idle: -5s}}", "2:69: idle: write a duration"},
		{"{name: a, driver: sim, models: {m: m}, timeout: {read: 5s}}", `2:63: timeout has no field "read"`},
		{"{name: a, driver: sim, models: {m: m}, drop: [model]}", `2:14: channel "a": the field "model" cannot be dropped`},
		{"{name: a, driver: sim, models: {m: m}, rename: {model: x}}", `2:14: channel "a": the field "model" cannot be renamed`},
		{"{name: a, driver: sim, models: {m: m, n: n}}", "2:52: the model n has no price, and billing is prepaid"},
		{"{name: a, driver: sim, models: {m: m}}, {name: a, driver: sim, models: {m: m}}", `2:54: another channel is called "a" too`},
	} {
		t.Run(c.channel, func(t *testing.T) {
			refuses(t, "billing: prepaid\nchannels:  [ "+c.channel+" ]\nprices: {m: {input: \"1\"}}\n", c.want)
		})
	}
}

func TestEveryMistakeAboutMoneyAndModelsIsFoundWhereItStands(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"  x: {input: '-1'}", "4:14: price of input is negative"},
		{"  x: {input: 1e3}", "4:14: price of input: not an amount"},
		{"  x: {input: '0.0000001'}", "4:14: price of input: not an amount"},
		{"  x: {imput: '1'}", `4:7: unknown price unit "imput"`},
		{"  x: {input: {720p: '1'}}", "4:21: price of input has the variant \"720p\"; only second has variants"},
		{"  x: {}", "4:3: the price of x is empty"},
		{"  x: 5", "4:6: the price of x must be a mapping"},
		{"models: {x: {kind: poem}}", "4:20: kind: it must be one of chat, messages, embeddings, image, image_edit, video, speech"},
		{"models: {x: {batch: -1}}", "4:21: batch: it must be a whole number"},
		{"models: {x: {batch: 1.5}}", "4:21: batch: it must be a whole number"},
		{"models: {x: {dimensions: 256}}", "4:26: dimensions must be a list"},
		{"models: {x: {dimensions: [256, big]}}", "4:32: an item of dimensions: it must be a whole number"},
		{"models: {x: {max_output: -1}}", "4:26: max_output: it must be a whole number"},
		{"models: {x: {ratios: 16:9}}", "4:22: ratios must be a list"},
		{"models: {x: {ratios: [16:9]}}", "4:23: an item of ratios must be a single value: write it in quotes, such as \"16:9\""},
		{"models: {x: {ratios: ['']}}", "4:23: an item of ratios: write it in quotes"},
		{"models: {x: {reasoning: some}}", "4:25: reasoning"},
		{"models: {x: {priorities: low}}", "4:26: priorities must be a list"},
		{"models: {x: {priorities: [[low]]}}", "4:27: an item of priorities must be a single value"},
		{"models: {x: {withdrawn: soon}}", "4:25: withdrawn: write a day"},
		{"accounts: [{name: 'a b'}]", "4:12: An account name is"},
		{"accounts: [{credit: '1'}]", "4:12: An account name is"},
		{"accounts: [{name: a}, {name: a}]", `4:23: There already is an account "a"`},
		{"accounts: [{name: a, tmp: 1}]", `4:22: an account has no field "tmp"`},
		{"accounts: [a]", "4:12: an account must be a mapping of keys to values; its fields are credit"},
		{"accounts: [{name: a, credit: '-1'}]", "4:30: credit: it must be a decimal"},
		{"accounts: [{name: a, credit: 1e3}]", "4:30: credit: it must be a decimal"},
		{"accounts: [{name: a, keys: [{}]}]", "4:29: a key needs one of env and hash: write {env: NAME}"},
		{"accounts: [{name: a, keys: [{env: ACME_KEY, hash: x}]}]", "4:29: a key needs one of env"},
		{"accounts: [{name: a, keys: [{env: NO_SUCH}]}]", "4:35: env: the environment variable NO_SUCH is not set"},
		{"accounts: [{name: a, keys: [{env: SHORT_KEY}]}]", "4:35: env: the environment variable SHORT_KEY does not hold a key"},
		{"accounts: [{name: a, keys: [{env: sk-acme-0123456789abcdef}]}]", "4:35: env: it must be the name of an environment variable"},
		{"accounts: [{name: a, keys: [{env: ACME_KEY}, {env: ACME_KEY}]}]", "4:46: this is the same key as that of line 4: each needs its own secret"},
	} {
		t.Run(c.text, func(t *testing.T) {
			refuses(t, "channels: [{name: main, driver: sim, models: {m: m}}]\nprices:\n  m: {input: '1'}\n"+c.text, c.want)
		})
	}
	refuses(t, "billing: count\nchannels: [{name: a, driver: sim, models: {m: m}}]\naccounts: [{name: a, credit: '1'}]", "3:12: This ledger counts usage")
}

// refuses reads a file whose first problem must be the wanted one.
func refuses(t *testing.T, text, want string) {
	t.Helper()
	_, err := Read("t.yaml", []byte(text), env)
	if err == nil {
		t.Fatal("it was not refused")
	}
	if got := lines(err)[0]; !strings.Contains(strings.TrimPrefix(got, "t.yaml:"), want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAllProblemsAreToldInTheOrderOfTheFile(t *testing.T) {
	_, err := Read("t.yaml", []byte("limits: {rpm: x}\nlisten: x\ncurrency: x\n"), env)
	want := []string{
		"t.yaml:1:15: rpm: it must be a whole number, 0 or more",
		"t.yaml:2:9: listen: it must be host:port, for example 127.0.0.1:8080",
		"t.yaml:3:11: currency: it must be three capital letters such as USD",
	}
	if diff := cmp.Diff(want, lines(err)); diff != "" {
		t.Error(diff)
	}
	if got := err.Error(); got != want[0]+" (and 2 more: `tollhouse check --config t.yaml` lists them)" {
		t.Errorf("in one line: %s", got)
	}
}

func TestAKeyOfAnAccountThatIsWrittenOutGetsOneLineWithTheRightForm(t *testing.T) {
	_, err := Read("t.yaml", []byte("billing: count\nchannels: [{name: a, driver: sim, models: {m: m}}]\naccounts: [{name: a, keys: [sk-short]}]\n"), env)
	want := []string{`t.yaml:3:29: a key needs one of env and hash: write {env: NAME}, where the environment variable NAME holds it, or {hash: "sha256:…"}, and never the key itself`}
	if diff := cmp.Diff(want, lines(err)); diff != "" {
		t.Error(diff)
	}
}

// A model whose price lacks a unit of what it is called for would be free there.
func TestAPriceThatLacksAUnitOfItsModelIsFoundWhereItStands(t *testing.T) {
	const channels = "billing: prepaid\nchannels: [{name: main, driver: sim, models: {m: m}}]\nprices: {m: "
	for _, c := range []struct{ price, kind, want string }{
		{`{input: "1.00"}`, "chat", `3:10: the price of m, a model of the kind chat, lacks output: the operation chat would be free; where that is meant, write "0"`},
		{`{output: "1.00"}`, "messages", "lacks input"},
		{`{image: "1"}`, "chat", "lacks input and output"},
		{`{second: {720p: "1"}}`, "chat", "lacks input and output"},
		{`{output: "1"}`, "embeddings", "lacks input"},
		{`{input: "1"}`, "image", "lacks image, or image_output"},
		{`{image_output: "1"}`, "image_edit", "lacks image, or input"},
		{`{input: "1"}`, "video", "lacks second, or output"},
		{`{input: "1", output: "1"}`, "speech", "lacks character"},
		{`{output: "1"}`, "rerank", "lacks search_unit, or input, or request"},
		{`{cached_input: "1"}`, "", "3:10: the price of m is enough for no kind of model; for chat it lacks input and output"},

		{`{input: "1", output: "0"}`, "chat", ""},
		{`{input: "0"}`, "chat", ""}, // free on purpose
		{`{input: "1"}`, "embeddings", ""},
		{`{image: "1"}`, "image", ""},
		{`{input: "1", image_output: "1"}`, "image", ""},
		{`{input: "1", output: "1"}`, "image_edit", ""},
		{`{second: {720p: "1"}}`, "video", ""},
		{`{output: "1"}`, "video", ""},
		{`{character: "1"}`, "speech", ""},
		{`{search_unit: "0.002"}`, "rerank", ""},
		{`{request: "0.001"}`, "rerank", ""},
		{`{input: "0.02"}`, "rerank", ""},
		{`{input: "1"}`, "", ""},
	} {
		text := channels + c.price + "}\n"
		if c.kind != "" {
			text += "models: {m: {kind: " + c.kind + "}}\n"
		}
		t.Run(c.kind+c.price, func(t *testing.T) {
			if c.want != "" {
				refuses(t, text, c.want)
				return
			}
			if _, err := Read("f.yaml", []byte(text), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPriceThatIsNotEnoughForChatIsNotedWhereNothingSaysWhatTheModelIs(t *testing.T) {
	const channels = "channels: [{name: main, driver: sim, models: {m: m}}]\nprices: {m: {input: '1'}}\n"
	for text, want := range map[string]int{channels: 1, channels + "models: {m: {kind: embeddings}}\n": 0, "billing: count\n" + channels: 0} {
		c, err := Read("f.yaml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ids, missing := c.NotSoldForChat(); len(ids) != want || want == 1 && missing[0] != "output" {
			t.Errorf("%s: %v lack %v", text, ids, missing)
		}
	}
}

func TestDurationsAreGosAndDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "24h": 24 * time.Hour, "30d": 720 * time.Hour, "1h30m": 90 * time.Minute, "0s": 0, "0d": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "5", "-1d", "-5s", "1.5d", "1d12h", "99999d", "soon", "+1d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q = %v", text, got)
		}
	}
}

func TestVariablesAreExpandedOnce(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "a", "EMPTY": "", "NESTED": "${A}", "_B2": "b"}[name]
		return v, ok
	}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "${A}": "a", "x${A}y${_B2}z": "xaybz", "${EMPTY}": "", "${NESTED}": "${A}",
		"$${A}": "${A}", "$A": "$A", "$$": "$$", "a}b{": "a}b{", "$$${A}": "$${A}",
	} {
		if got, err := expand(text, env); err != nil || got != want {
			t.Errorf("expand(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"${", "${A", "${}", "${1}", "${A B}", "${A-b}", "${NOT_SET}"} {
		if got, err := expand(text, env); err == nil {
			t.Errorf("expand(%q) = %q", text, got)
		}
	}
}

// Whatever a file holds, reading it neither panics nor gives both an error and
// a configuration.
func TestReadingSurvivesEverything(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		"channels:", "\n", "  ", "- ", "{", "}", "[", "]", ": ", "name", "models", "*", "&a ", "*a", "<<", "|", ">", "'", `"`, "${A}", "${",
		"prices", "!!str ", "? ", "---\n", "#", "1.5", "null", "\t", "%", "é", "\x00", "accounts", "keys", ",", "limits", "rpm",
	})
	rapid.Check(t, func(t *rapid.T) {
		var text string
		for _, p := range rapid.SliceOfN(pieces, 0, 30).Draw(t, "pieces") {
			text += p
		}
		c, err := Read("t.yaml", []byte(text), env)
		if (c == nil) == (err == nil) {
			t.Fatalf("%q gave %v and %v", text, c, err)
		}
	})
}

// FuzzDuration: what is read is never below zero, and is what the standard
// library reads wherever that reads it.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"90s", "24h", "30d", "0", "-1s", "65536d", "1.5h", "1d1h", "d", "+5s", " 5s", "9223372036s", "9999999h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is %s", text, d)
		}
		standard, stdErr := time.ParseDuration(text)
		if !strings.HasSuffix(text, "d") && (stdErr != nil || standard != d) {
			t.Errorf("%q is %s, and %s to the standard library (%v)", text, d, standard, stdErr)
		}
	})
}

// A file that somebody changes under a running server must not end it, whatever
// is in it; and what is read can be built.
func FuzzAFileIsReadOrRefusedWithItsProblems(f *testing.F) {
	for _, text := range []string{complete, sound, withKeys("{file: /nowhere}, {env: VENDOR_KEY}"), "a: &a [*a]", "channels: [{}]", "\xff", "a: {<<: {b: c}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file:") || strings.Contains(text, "file\"") {
			t.Skip("it would read files of this machine")
		}
		c, err := Read("t.yaml", []byte(text), env)
		var refused *Error
		switch {
		case err == nil:
			p, err := c.Build(nil)
			if err != nil {
				t.Fatalf("read, but not built: %v", err)
			}
			p.Close()
		case !errors.As(err, &refused) || len(refused.Problems) == 0:
			t.Fatalf("the error is %T: %v", err, err)
		}
	})
}

// What a file of keys holds is keys or an error without a word of it.
func FuzzAFileOfKeysIsReadOrRefusedInSilence(f *testing.F) {
	for _, text := range []string{"sk-1\n", "sk-1\r\nsk-2", " \n\n", "sk 1", "\x00", "sk-1\n\u00a0sk-2\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys([]byte(text))
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys and %v", len(keys), err)
		}
		for _, k := range keys {
			if k == "" || strings.ContainsFunc(k, func(c rune) bool { return c <= ' ' || c > '~' }) || !strings.Contains(text, k) {
				t.Fatalf("%q is no key of %q", k, text)
			}
		}
	})
}
