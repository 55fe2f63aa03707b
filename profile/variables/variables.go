// Package variables is the one list of environment variables that choose what runs, what a program
// trusts, or as whom it speaks. The filter of a sandbox (profile) and that of commands on a host
// (policy) read it; where they differ, the kind of a row says so. It imports nothing.
package variables

import "strings"

// A Kind says to whom a variable is refused.
type Kind uint8

const (
	Command Kind = iota // to every command, whoever asks for it; a request for a host may not set it, either
	Host                // on a host: what the process has of it is not handed on, and no request may set it
	Secret              // the same, because it is a secret
	Request             // only to a request: what the host's own user set is handed on
	Kept                // an exception: it is handed on, although another row has it
)

// A Row is some names with one reason. FOO* stands for all that begin so, *FOO for all that end so,
// *FOO* for all that hold it.
type Row struct {
	Kind    Kind
	Reason  string
	Feature string // what hands it over in a safe way, if anything does
	Names   string
}

// Find is the first row of a kind that has a name.
func Find(kind Kind, name string) (Row, bool) {
	for _, row := range Table {
		if row.Kind != kind {
			continue
		}
		for pattern := range strings.FieldsSeq(row.Names) {
			if Matches(pattern, name) {
				return row, true
			}
		}
	}
	return Row{}, false
}

// Is says whether a row of one of the kinds has a name.
func Is(name string, kinds ...Kind) bool {
	for _, kind := range kinds {
		if _, found := Find(kind, name); found {
			return true
		}
	}
	return false
}

// Matches holds a name against a pattern of a row.
func Matches(pattern, name string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	if suffix, both := strings.CutPrefix(prefix, "*"); both {
		if open {
			return strings.Contains(name, suffix)
		}
		return strings.HasSuffix(name, suffix)
	}
	if open {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
