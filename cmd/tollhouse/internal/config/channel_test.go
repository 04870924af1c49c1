package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
)

// keyFile writes a file of keys.
func keyFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// withKeys is a file whose channel has these items of keys, which begin at 2:48.
func withKeys(items string) string {
	return "billing: count\nchannels: [{name: a, driver: openai, keys: [   " + items + "], models: {m: m}}]\n"
}

func TestEveryDriverOfTheContractIsThereAndThoseOfVendorsHaveAnAddress(t *testing.T) {
	have := slices.Sorted(maps.Keys(drivers))
	if diff := cmp.Diff([]string{"anthropic", "ark", "cohere", "dashscope", "openai", "sim", "tei", "voyage"}, have); diff != "" {
		t.Error(diff)
	}
	for _, name := range have {
		if address := (&Channel{Driver: name}).Address(); (address == "") != (name == Simulated) {
			t.Errorf("the address of %s is %q", name, address)
		}
	}
}

func TestAChannelMayPassThroughBesideWhatItDiscovers(t *testing.T) {
	for models, defers := range map[string]bool{
		"{'*': '*'}":                                            false,
		"{discover: true}":                                      false,
		"{discover: true, map: {a: b}}":                         false,
		"{discover: true, map: {'*': '*', a: b}}":               true,
		"{discover: true, prefix: groq/, map: {'groq/*': '*'}}": true,
	} {
		c := read(t, "billing: count\nchannels: [{name: a, driver: openai, models: "+models+"}]\n").Channels[0]
		if c.DefersToDiscovered != defers || (c.Discover != nil) != strings.Contains(models, "discover") {
			t.Errorf("%s: it defers to discovered ids: %t, discovery %+v", models, c.DefersToDiscovered, c.Discover)
		}
	}
}

func TestListsThatChangeNothingReplaceNoRouter(t *testing.T) {
	built, err := read(t, "billing: count\nchannels: [{name: a, driver: openai, models: {discover: true}}]\n").Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer built.Close()
	var list discovery.List
	lists := func(discovery.Source) discovery.List { return list }
	first, err := built.WithLists(lists)
	if err != nil || first == built || first.Router != built.Router {
		t.Errorf("the first lists, empty: %v", err)
	}
	if again, err := first.WithLists(lists); err != nil || again != first {
		t.Errorf("the same lists: %v", err)
	}
	list.Models = []discovery.Model{{ListedModel: upstream.ListedModel{ID: "m"}}}
	if next, err := first.WithLists(lists); err != nil || next.Router == first.Router || !next.Router.Serves("m") {
		t.Errorf("another list: %v", err)
	}
}

func TestAKeyIsWrittenNamedByItsVariableOrInAFile(t *testing.T) {
	several := keyFile(t, "sk-new\r\n\n  sk-old \n")
	for items, want := range map[string][]string{
		`plain`:             {"plain"},
		`"${VENDOR_KEY}"`:   {"sk-vendor"},
		`{env: VENDOR_KEY}`: {"sk-vendor"},
		`{env: LINE}, "${LINE}", {env: VENDOR_KEY}`:    {"sk-vendor"},
		`{file: ` + keyFile(t, "\ufeffsk-new\n") + `}`: {"sk-new"},
		`{file: ` + several + `}`:                      {"sk-new", "sk-old"},
		`sk-old, {file: ` + several + `}`:              {"sk-old", "sk-new"},
		`{env: VENDOR_KEY}, "${VENDOR_KEY}", one`:      {"sk-vendor", "one"},
	} {
		var got []string
		for _, k := range read(t, withKeys(items)).Channels[0].Keys {
			got = append(got, k.Reveal())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", items, diff)
		}
	}
}

func TestWhatIsNoKeyIsRefusedWhereItStands(t *testing.T) {
	for _, c := range []struct{ items, want string }{
		{"{env: NO_SUCH}", "2:54: env: the environment variable NO_SUCH is not set"},
		{"{env: EMPTY}", "2:54: env: the environment variable EMPTY is empty"},
		{"{env: BLANK}", "2:54: env: the environment variable BLANK is empty"},
		{"{env: sk-vendor-0123}", "2:54: env: it must be the name of an environment variable, never the key itself"},
		{"{file: ''}", "2:55: file: it must not be empty"},
		{"{file: /nowhere/sk-1}", "2:55: file: the file cannot be read: no such file or directory"},
		{"{file: " + t.TempDir() + "}", "2:55: file: it is not a regular file"},
		{"{file: /dev/zero}", "2:55: file: it is not a regular file"},
		{"{file: " + keyFile(t, "") + "}", "2:55: file: the file is empty; it must hold a key"},
		{"{file: " + keyFile(t, " \n\n") + "}", "2:55: file: the file is empty; it must hold a key"},
		{"{file: " + keyFile(t, "sk-1\nsk 2\n") + "}", "2:55: file: line 2 of the file is no key"},
		{"{file: " + keyFile(t, "sk-1\x00\n") + "}", "2:55: file: line 1 of the file is no key"},
		{"{file: " + keyFile(t, strings.Repeat("sk-1\n", maxKeyFile)) + "}", fmt.Sprintf("2:55: file: the file is larger than %d bytes", maxKeyFile)},
		{"{}", "2:48: an item of keys is the key itself, {env:"},
		{"{env: VENDOR_KEY, file: x}", "2:72: file: the file cannot be read"},
		{"{env: VENDOR_KEY, file: " + keyFile(t, "k") + "}", "2:48: an item of keys is the key itself, {env:"},
		{"{key: x}", `2:49: an item of keys has no field "key"; its fields are env, file`},
		{"[x]", "2:48: an item of keys must be a mapping"},
	} {
		t.Run(c.items[:min(20, len(c.items))], func(t *testing.T) { refuses(t, withKeys(c.items), c.want) })
	}
}

// A server that watches must know the files also where the configuration is
// refused: what is wrong may be in one of them.
func TestTheFilesOfKeysAreToldWhateverComesOfThem(t *testing.T) {
	good, bad := keyFile(t, "sk-1"), keyFile(t, "")
	if c := read(t, withKeys("{file: "+good+"}")); len(c.KeyFiles) != 1 || c.KeyFiles[0].Path != good || c.KeyFiles[0].Info.Size() != 4 {
		t.Errorf("%+v", c.KeyFiles)
	}
	_, err := Read("t.yaml", []byte(withKeys("{file: "+good+"}, {file: "+bad+"}, {file: /nowhere}")), env)
	refused := err.(*Error)
	if n := len(refused.KeyFiles); n != 3 || refused.KeyFiles[1].Path != bad || refused.KeyFiles[2].Info != nil {
		t.Errorf("%+v", refused.KeyFiles)
	}
}

func TestNoMessageRepeatsAKeyOfAFile(t *testing.T) {
	_, err := Read("t.yaml", []byte(withKeys("{file: "+keyFile(t, "sk-1\nsk-hidden x\n")+"}, {file: sk-hidden}, {env: sk-hidden}")), env)
	if text := strings.Join(lines(err), "\n"); strings.Contains(text, "sk-hidden") || strings.Count(text, "\n") != 2 {
		t.Error(text)
	}
}
