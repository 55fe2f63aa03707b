package main

import (
	"testing"

	"github.com/clairun/clai-sandbox/grants"
)

func TestADenialSaysWhatToTypeNext(t *testing.T) {
	denied := func(reason string) grants.CommandAnswer {
		return grants.CommandAnswer{Status: grants.CommandDenied, Reason: reason}
	}
	for _, c := range []struct {
		answer  grants.CommandAnswer
		command grants.Command
		want    string
	}{
		{denied("security=deny: security is deny"), grants.Command{Line: "git status"}, "; to let an allowlist decide: clai-sandbox config set agents.main.execution.outside.security allowlist"},
		{denied("security=deny: security is deny"), grants.Command{Argv: []string{"a"}, Security: "deny"}, "; what decided: clai-sandbox explain --host gateway --agent main -- a"},
		{denied("allowlist-miss: x"), grants.Command{Argv: []string{"rm", "a b", "\x1b"}, Agent: "other"}, "; what decided: clai-sandbox explain --host gateway --agent other -- rm 'a b' '\\u{1B}'"},
		{grants.CommandAnswer{Status: grants.CommandTimeout}, grants.Command{Line: "x"}, ""},
	} {
		if got := afterDenial(c.answer, c.command); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
