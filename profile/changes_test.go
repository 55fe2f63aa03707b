package profile

import (
	"strings"
	"testing"
	"time"
)

func TestRulesJudgeAPath(t *testing.T) {
	for name, c := range map[string]struct {
		rules string // of lists "apply; ask; never"
		path  string
		fixed []int
		want  Verdict
	}{
		"no rule":                              {"", "a", nil, VerdictAsk},
		"all below":                            {"src/**", "src/a/b", nil, VerdictApply},
		"the directory itself":                 {"src/**", "src", nil, VerdictApply},
		"a name that begins the same":          {"src/**", "srcs/a", nil, VerdictAsk},
		"a plain name is not what is in it":    {"src", "src/a", nil, VerdictAsk},
		"one name":                             {"src/*", "src/a/b", nil, VerdictAsk},
		"one name with a dot":                  {"*", ".x", nil, VerdictApply},
		"the case counts":                      {"src/**", "SRC/a", nil, VerdictAsk},
		"directories between":                  {"src/**/*.go", "src/a/b/c.go", nil, VerdictApply},
		"none between":                         {"src/**/*.go", "src/c.go", nil, VerdictApply},
		"two of any number":                    {"**/a/**/b", "x/a/y/a/b/b", nil, VerdictApply},
		"not at the end":                       {"**/b", "a/b/c", nil, VerdictAsk},
		"names are bytes":                      {"src/a?b", "src/a\xffb", nil, VerdictApply},
		"an escaped star":                      {`a\*`, "ab", nil, VerdictAsk},
		"the star itself":                      {`a\*`, "a*", nil, VerdictApply},
		"a line end is in a name":              {"a*", "a\nb", nil, VerdictApply},
		"ask of all yields":                    {"src/**; **", "src/a", nil, VerdictApply},
		"ask of a part wins":                   {"**; src/auth/**", "src/auth/a", nil, VerdictAsk},
		"ask of the same wins":                 {"src/**; src/**", "src/a", nil, VerdictAsk},
		"ask of a directory yields to a part":  {"src/gen/**; src/**", "src/gen/a", nil, VerdictApply},
		"and to no other":                      {"**/*.go; src/**", "src/a.go", nil, VerdictAsk},
		"ask of a kind wins":                   {"src/**; **/*.sql", "src/a.sql", nil, VerdictAsk},
		"ask holds for all below":              {"**; src/auth", "src/auth/a/b", nil, VerdictAsk},
		"never wins":                           {"src/**; ; src/x/**", "src/x/a", nil, VerdictNever},
		"never holds for the directory":        {"src/**; ; src/x/**", "src/x", nil, VerdictNever},
		"never holds for all below a name":     {"**; ; .github", ".github/workflows/a.yml", nil, VerdictNever},
		"never without apply":                  {"; ; **", "a", nil, VerdictNever},
		"a fixed name":                         {"**", "src/Makefile", []int{1}, VerdictAsk},
		"a fixed name by a star":               {"src/*", "src/Makefile", []int{1}, VerdictAsk},
		"a fixed name written out":             {"**/Makefile", "src/Makefile", []int{1}, VerdictApply},
		"two fixed names, one written out":     {"**/.git/**", ".git/hooks/x", []int{0, 1}, VerdictAsk},
		"two fixed names, both written out":    {"**/.git/hooks/*", ".git/hooks/x", []int{0, 1}, VerdictApply},
		"a fixed name written with characters": {"[M]akefile", "Makefile", []int{0}, VerdictAsk},
	} {
		var rules ChangeRules
		lists := []*[]ChangePattern{&rules.Apply, &rules.Ask, &rules.Never}
		for i, text := range strings.Split(c.rules, "; ") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			p, err := ParseChangePattern(text)
			if err != nil {
				t.Fatal(err)
			}
			*lists[i] = append(*lists[i], p)
		}
		if got, _ := rules.Judge(c.path, c.fixed); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestPatternsThatMeanNothingAreRefused(t *testing.T) {
	for _, text := range []string{"", "/a", "~/a", "a//b", "a/", "../a", "a/../b", "./a", "a**", "**a/b", "[", "a/[b", `a\`, "a\x00", strings.Repeat("a", 1025)} {
		if _, err := ParseChangePattern(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// What a command calls its files must not make a rule slow.
func TestPatternsTakeNoLongerForHostileNames(t *testing.T) {
	p, err := ParseChangePattern(strings.Repeat("**/", 40) + strings.Repeat("*a", 300) + "b")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.Matches(strings.Split(strings.Repeat("a/", 1000)+strings.Repeat("a", 255), "/"), nil)
	if took := time.Since(began); took > time.Second {
		t.Error(took)
	}
}
