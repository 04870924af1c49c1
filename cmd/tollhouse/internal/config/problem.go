package config

import (
	"cmp"
	"fmt"
	"slices"
)

// Problem is one mistake in a configuration.
type Problem struct {
	Pos     Pos
	Message string
}

// Error is why a configuration is refused: its problems in the order in which
// they stand in the file, at least one.
type Error struct {
	File     string
	Problems []Problem
	KeyFiles []KeyFile // that the file names; what is wrong may be in one of them
}

// Error is the first problem and how many there are besides.
func (e *Error) Error() string {
	first := e.Lines()[0]
	if n := len(e.Problems) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more: `tollhouse check --config %s` lists them)", first, n, e.File)
	}
	return first
}

// Lines are all problems as FILE:LINE:COLUMN: message.
func (e *Error) Lines() []string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = e.File + ": " + p.Message
		if p.Pos.Line > 0 {
			lines[i] = fmt.Sprintf("%s:%d:%d: %s", e.File, p.Pos.Line, p.Pos.Column, p.Message)
		}
	}
	return lines
}

// problems gathers what is wrong.
type problems []Problem

func (p *problems) add(at Pos, format string, args ...any) {
	*p = append(*p, Problem{at, fmt.Sprintf(format, args...)})
}

// err is the error of a file; nil without problems.
func (p problems) err(file string) error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return &Error{File: file, Problems: p}
}
