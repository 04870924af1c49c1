package main

import (
	"errors"
	"log/slog"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// source is what a server is made of and where that came from.
type source struct {
	config *config.Config
	file   string   // the configuration file; empty where there is none
	read   fileStates     // it and the files that it names, as they were read
	demo   bool     // everything is simulated
	firstAccount  string   // the account for which one key is made and printed; empty for none
	notes  []string // what the operator should know
}

// store is the address of the store; data is the data directory.
func (s *source) store(data string) string {
	if s.demo {
		return config.Memory
	}
	return config.StoreIn(data, s.config.Store)
}

// begin is what a gateway in this process is made of, and its log. It completes
// the settings.
func (p *program) load(s *settings) (*source, *slog.Logger, error) {
	logger, err := p.logger(s.logLevel, s.logFormat)
	if err != nil {
		return nil, nil, err
	}
	src, err := p.source(s)
	if err != nil {
		return nil, nil, err
	}
	s.applyFile(src.config)
	return src, logger, nil
}

// source decides between the demo, a file and the keys of vendors in the
// environment.
func (p *program) source(s *settings) (*source, error) {
	switch {
	case s.demo:
		return p.demo()
	case s.config != "":
		c, seen, err := readConfig(s.config, p.env)
		if err != nil {
			return nil, err
		}
		return &source{config: c, file: s.config, read: seen, notes: fileNotes(c)}, nil
	}
	src := p.presets()
	if len(src.config.Channels) == 0 {
		return nil, errors.New("there is nothing to serve: try `tollhouse serve --demo`, or set OPENAI_API_KEY, ANTHROPIC_API_KEY or MOONSHOT_API_KEY, or write a file and name it with --config")
	}
	return src, nil
}

// fileNotes are what a file says that has less effect than it seems.
func fileNotes(c *config.Config) []string {
	var notes []string
	if c.Prepaid() {
		for _, name := range c.Wildcards() {
			notes = append(notes, "channel "+name+` passes every model through ("*"), but prepaid billing serves only models that have a price`)
		}
		ids, missing := c.NotSoldForChat()
		for i, id := range ids {
			notes = append(notes, id+" is not sold for chat, as its price lacks "+missing[i]+": add that, or name its kind under models")
		}
	}
	return notes
}
