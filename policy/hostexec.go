package policy

import (
	"fmt"
	"regexp"
	"strings"
)

// HostExecLists are the expressions of hostexec: what a request server may run without asking, and
// what only with.
type HostExecLists struct {
	AutoApprove   []string `json:"autoApprove,omitempty"`
	ManualApprove []string `json:"manualApprove,omitempty"`
}

// HostExecRules are lists made ready, the project's behind the global ones.
type HostExecRules struct{ auto, manual []hostExecRule }

type hostExecRule struct {
	place      string
	text       string // the expression as it was written
	expression *regexp.Regexp
}

// A HostExecError names the expression that cannot be read. It is never skipped.
type HostExecError struct {
	Place string // "hostexec.autoApprove[2]"
	Err   error
}

func (e *HostExecError) Error() string { return e.Place + ": " + e.Err.Error() }
func (e *HostExecError) Unwrap() error { return e.Err }

// NewHostExecRules compiles global lists and those of a project. Every expression is anchored at
// both ends, whatever it says.
func NewHostExecRules(global, project HostExecLists) (*HostExecRules, error) {
	r := &HostExecRules{}
	for _, part := range [...]struct {
		place string
		list  []string
		into  *[]hostExecRule
	}{
		{"hostexec.autoApprove", global.AutoApprove, &r.auto},
		{"project hostexec.autoApprove", project.AutoApprove, &r.auto},
		{"hostexec.manualApprove", global.ManualApprove, &r.manual},
		{"project hostexec.manualApprove", project.ManualApprove, &r.manual},
	} {
		for i, text := range part.list {
			place := fmt.Sprintf("%s[%d]", part.place, i)
			expression, err := anchored(text)
			if err != nil {
				return nil, &HostExecError{place, err}
			}
			*part.into = append(*part.into, hostExecRule{place, text, expression})
		}
	}
	return r, nil
}

// Decide answers for words that no shell will read: the automatic list first, then the manual one,
// else deny.
func (r *HostExecRules) Decide(argv []string) (Verdict, string) {
	verdict, rule, why := r.match(argv)
	switch verdict {
	case Run:
		return verdict, rule.place + " allows it"
	case AskPerson:
		return verdict, rule.place + " wants a person asked"
	}
	return verdict, why
}

// Matched decides as Decide does, and returns the expression that decided, as it was written;
// empty: none did, and the words are denied.
func (r *HostExecRules) Matched(argv []string) (Verdict, string) {
	verdict, rule, _ := r.match(argv)
	return verdict, rule.text
}

func (r *HostExecRules) match(argv []string) (v Verdict, by hostExecRule, why string) {
	if len(argv) == 0 {
		return Deny, by, "no command"
	}
	text := CanonicalArgv(argv)
	if len(text) > MaxLine || strings.ContainsRune(text, 0) {
		return Deny, by, fmt.Sprintf("a command of more than %d bytes, or with a zero byte", MaxLine)
	}
	for _, rule := range r.auto {
		if rule.expression.MatchString(text) {
			return Run, rule, ""
		}
	}
	for _, rule := range r.manual {
		if rule.expression.MatchString(text) {
			return AskPerson, rule, ""
		}
	}
	return Deny, by, "neither list has it"
}

// CanonicalArgv is the one text of a list of words: a word of [A-Za-z0-9-_./:@+=] as it stands,
// every other in single quotes.
func CanonicalArgv(argv []string) string {
	var b strings.Builder
	for i, word := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if word != "" && plain(word, "-_./:@+=") {
			b.WriteString(word)
		} else {
			b.WriteString(quote(word))
		}
	}
	return b.String()
}
