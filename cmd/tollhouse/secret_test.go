package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Nothing that a server or a command prints holds a key of a vendor, a key of
// a customer, or the admin token, whatever goes wrong.
func TestNoSecretIsEverPrinted(t *testing.T) {
	const vendorKey, literalKey, customerKey = "sk-vendor-0123456789", "sk-literal-0123456789", "sk-customer-0123456789"
	base, _ := vendor(t, 401, `{"error":{"message":"Incorrect API key provided: sk-vendor-0123456789","type":"authentication_error","code":"invalid_api_key"}}`)
	env := environment{"VENDOR_KEY": vendorKey, "CUSTOMER_KEY": customerKey, "BASE": base}
	name := file(t, `billing: count
channels:
  - {name: main, driver: openai, base_url: "${BASE}", keys: ["${VENDOR_KEY}", `+literalKey+`], models: {"*": "*"}}
accounts:
  - {name: acme, keys: [{env: CUSTOMER_KEY}]}
`)
	i := start(t, env, "--config", name, "--log-level", "debug")
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", customerKey, chatBody("m", false)); status != 502 || strings.Contains(body, vendorKey) {
		t.Errorf("the call got %d %s", status, body)
	}
	token, err := os.ReadFile(filepath.Join(i.data, tokenFile))
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	add := func(r result) { said.WriteString(r.stdout + r.stderr) }
	for _, args := range [][]string{{"key", "list", "--json"}, {"account", "list"}, {"usage"}} {
		add(i.command(args...))
	}
	add(tollhouse(t, env, "check", "--config", name))
	add(tollhouse(t, env, "models", "--config", name))
	for _, wrong := range []string{
		"channels: [" + literalKey + "]",
		"channels:\n  - keys: {" + literalKey,
		"channels:\n  - {name: a, driver: openai, base_url: 'https://u:" + literalKey + "@h', models: {a: b}}",
		"channels:\n  - {name: a, driver: " + literalKey + "}",
		"accounts:\n  - {name: a, keys: [{env: " + literalKey + "}, {hash: " + literalKey + "}, " + literalKey + "]}",
		"accounts:\n  - {name: a, keys: [{env: VENDOR_KEY, rpm: '${VENDOR_KEY}'}]}",
		"listen: '${VENDOR_KEY}'\nstore: '${VENDOR_KEY}'\ncurrency: '${VENDOR_KEY}'\nlimits: {rpm: '${VENDOR_KEY}'}",
	} {
		r := tollhouse(t, env, "check", "--config", file(t, wrong))
		if r.code != exitFailed {
			t.Errorf("%q was not refused", wrong)
		}
		add(r)
	}
	i.stop()
	said.WriteString(i.stdout.String() + i.stderr.String())
	for _, secret := range []string{vendorKey, literalKey, customerKey, strings.TrimSpace(string(token))} {
		if at := strings.Index(said.String(), secret); at >= 0 {
			t.Errorf("printed: …%s", said.String()[max(0, at-200):at+len(secret)])
		}
	}
}

func TestATokenThatOthersCanReadIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, tokenFile), "admin-0123456789012345678901234567890\n")
	if err := os.Chmod(filepath.Join(dir, tokenFile), 0o644); err != nil {
		t.Fatal(err)
	}
	r := tollhouse(t, nil, "admin", "token", "--data", dir)
	if r.code != exitFailed || !strings.Contains(r.stderr, "chmod 600") || r.stdout != "" {
		t.Errorf("%d %q %q", r.code, r.stdout, r.stderr)
	}
}

func TestTheAdminTokenIsMadeOnDemandAndStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first := tollhouse(t, nil, "admin", "token", "--data", dir)
	second := tollhouse(t, environment{"TOLLHOUSE_DATA": dir}, "admin", "token")
	if first.code != exitOK || first.stdout != second.stdout || len(first.stdout) < 40 {
		t.Errorf("%+v, then %+v", first, second)
	}
	info, err := os.Stat(filepath.Join(dir, tokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
