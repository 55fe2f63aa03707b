package variables

import (
	"strings"
	"testing"
)

func TestAPatternIsABeginningAnEndAPartOrAWhole(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no string
	}{
		{"LD_*", "LD_ LD_PRELOAD", "XLD_ LD"}, {"*_OPTS", "A_OPTS _OPTS", "OPTS_ A_OPTSX OPTS"}, {"*KEYLOG*", "KEYLOG SSLKEYLOGFILE", "KEYLO"}, {"ENV", "ENV", "ENVX XENV"}, {"*", "A ANYTHING", ""},
	} {
		for _, name := range strings.Fields(c.yes) {
			if !Matches(c.pattern, name) {
				t.Errorf("%s does not match %s", c.pattern, name)
			}
		}
		for _, name := range strings.Fields(c.no) {
			if Matches(c.pattern, name) {
				t.Errorf("%s matches %s", c.pattern, name)
			}
		}
	}
}

func TestEachRowSaysWhyAndWhat(t *testing.T) {
	for _, row := range Table {
		if row.Reason == "" || strings.TrimSpace(row.Names) == "" {
			t.Errorf("%+v", row)
		}
		for name := range strings.FieldsSeq(row.Names) {
			if strings.Trim(name, "*") == "" || strings.ContainsAny(strings.Trim(name, "*"), "*=,\"") {
				t.Errorf("%q", name)
			}
		}
	}
}

// What no command gets in a sandbox, no request sets on a host.
func TestARequestMaySetNothingThatNoCommandGets(t *testing.T) {
	for _, row := range Table {
		if row.Kind != Command {
			continue
		}
		for name := range strings.FieldsSeq(row.Names) {
			name = strings.ToUpper(strings.TrimSuffix(name, "*"))
			if !Is(name, Command, Host, Secret, Request) {
				t.Errorf("%s", name)
			}
		}
	}
}
