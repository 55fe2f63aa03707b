package policy

import (
	"fmt"
	"slices"
	"strings"
)

var agentNames = []string{"security", "ask", "askFallback", "autoAllowSkills", "patternCase", "allowlist", "denylist"}

// restricting are the fields without which more would run. A name that is only nearly one of them
// is an error: what was meant to restrict would be lost without a word.
var restricting = []string{"version", "defaults", "agents", "security", "ask", "askFallback", "denylist", "pattern", "argPattern", "content", "env"}

// otherWords are what people write for these.
var otherWords = map[string]string{"deny": "denylist", "denied": "denylist", "denies": "denylist", "denyentries": "denylist", "blocklist": "denylist", "blacklist": "denylist", "block": "denylist", "blocked": "denylist", "forbidden": "denylist", "forbid": "denylist",
	"args": "argPattern", "arguments": "argPattern", "argspattern": "argPattern", "argumentpattern": "argPattern", "argregex": "argPattern", "agent": "agents", "default": "defaults", "fallback": "askFallback", "path": "pattern"}

// misspelt looks at the names that nobody knows in a part of the file, where others are known.
func (a *Approvals) misspelt(place string, unknown fields, known ...string) error {
	for _, name := range sortedNames(unknown) {
		meant := meantField(name, known)
		switch {
		case meant == "":
		case slices.Contains(restricting, meant):
			return &FileError{Err: fmt.Errorf("%s%s is not a known name: is %s meant?", place, DisplayText(name), meant), Hint: "names are exact; write " + meant + ", or another name for a note of your own"}
		default:
			a.problem(place+DisplayText(name), "is not a known name, and means nothing: is "+meant+" meant?")
		}
	}
	return nil
}

func meantField(name string, known []string) string {
	if slices.Contains(known, name) {
		return ""
	}
	fold := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(strings.ToLower(s))
	}
	folded := fold(name)
	if meant := otherWords[folded]; slices.Contains(known, meant) {
		return meant
	}
	for _, k := range known {
		limit := 1
		if len(k) >= 8 {
			limit = 2
		}
		if len(k) < 4 {
			limit = 0
		}
		if distance(folded, fold(k), limit) <= limit {
			return k
		}
	}
	return ""
}

// distance is how many letters differ between two words, were swapped with their neighbours, or are
// in one alone; more than limit is limit+1.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
