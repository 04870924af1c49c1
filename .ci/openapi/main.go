// Command openapi lints the OpenAPI document of the API: openapi RULES DOCUMENT.
// It is a module of its own, so that nobody else's build knows the linter.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/speakeasy-api/openapi/linter"
	"github.com/speakeasy-api/openapi/openapi"
	rules "github.com/speakeasy-api/openapi/openapi/linter"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: openapi RULES DOCUMENT")
		os.Exit(2)
	}
	if err := lint(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// lint prints what the linter finds. Every finding counts, hints too.
func lint(ctx context.Context, ruleset, document string) error {
	config, err := linter.LoadConfigFromFile(ruleset)
	if err != nil {
		return err
	}
	l, err := rules.NewLinter(config)
	if err != nil {
		return err
	}
	f, err := os.Open(document)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	doc, invalid, err := openapi.Unmarshal(ctx, f)
	if err != nil {
		return err
	}
	found, err := l.Lint(ctx, linter.NewDocumentInfo(doc, document), invalid, nil)
	if err != nil {
		return err
	}
	fmt.Println(found.FormatText())
	if n := len(found.Results); n > 0 {
		return fmt.Errorf("%d findings", n)
	}
	if doc.GetOpenAPI() == "" {
		return errors.New("the document says no version of OpenAPI")
	}
	return nil
}
