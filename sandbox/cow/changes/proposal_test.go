package changes

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
)

// proposes is what becomes of a proposal: "path state" of each.
func (b *bench) proposes(r *profile.ChangeRules, message string, paths ...string) string {
	b.t.Helper()
	l := b.layer()
	l.Rules = r
	list, inUse, err := l.Propose(b.t.Context(), message, paths, 0)
	if err != nil {
		return "error: " + err.Error()
	}
	var words []string
	for _, o := range list {
		words = append(words, fmt.Sprintf("%s %s", o.Path, o.State))
	}
	if inUse {
		words = append(words, "in use")
	}
	return strings.Join(words, ", ")
}

func (b *bench) wants(got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s\nwant %s", got, want)
	}
}

func TestAnAgentIsToldWhatBecameOfWhatItProposed(t *testing.T) {
	b := newBench(t).files("a", "b", "c", "d", "src/a").begin()
	b.wants(b.proposes(nil, "look"), "error: nothing was changed")
	b.sh(b.upper, "for f in a b c d; do echo new >$f; done; mkdir src no; echo new >src/a; echo x >no/x")
	r := rules(t, "src/**; ; no/**", 0)
	b.wants(b.proposes(r, "", "e"), `error: nothing was changed in "e"`)
	b.wants(b.proposes(r, "please \x1b[2J", "a", "src", "no/x"), "a waiting, no/x never, src/a applied_by_rule")
	if p, err := b.layer().Proposal(); err != nil || p.Message != "please \x1b[2J" {
		t.Errorf("%+v %v", p, err)
	}
	b.wants(b.proposes(r, "and these", "b", "c"), "a waiting, b waiting, c waiting, no/x never, src/a applied_by_rule")
	if _, err := b.layer().Apply(t.Context(), Selection{Paths: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.layer().Discard(t.Context(), []string{"b"}); err != nil {
		t.Fatal(err)
	}
	os.Remove(b.upper + "/c")
	b.wants(b.proposes(r, ""), "a applied, b discarded, c undone, no/x never, src/a applied_by_rule")
	// What was decided and is changed again is proposed again.
	b.sh(b.upper, "echo newer >a")
	b.wants(b.proposes(r, "", "a"), "a waiting, b discarded, c undone, no/x never, src/a applied_by_rule")
	if _, err := b.layer().Discard(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.wants(b.proposes(r, ""), "a discarded, b discarded, c discarded, no/x discarded, src/a applied_by_rule")
	if p, err := b.layer().Proposal(); p != nil || err != nil {
		t.Errorf("%+v %v", p, err)
	}
}

func TestADirectoryThatWasAppliedSaysNothingOfWhatIsInIt(t *testing.T) {
	b := newBench(t).begin()
	b.sh(b.upper, "mkdir n; echo x >n/a.go; echo x >n/b.txt")
	b.wants(b.proposes(rules(t, "**/*.go", 0), "look"), "n applied_by_rule, n/a.go applied_by_rule, n/b.txt waiting")
}

func TestRulesAreAskedLaterWhereTheLayerIsInUse(t *testing.T) {
	b := newBench(t).files("a").begin()
	b.sh(b.upper, "echo new >a")
	held, err := cow.Take(b.layer().Dir)
	if err != nil {
		t.Fatal(err)
	}
	b.wants(b.proposes(rules(t, "a", 0), "look"), "a waiting, in use")
	held.Close()
	b.wants(b.proposes(rules(t, "a", 0), ""), "a applied_by_rule")
}

// Whether a command's own file is the same as what it does not see would be told by whether there
// is a change.
func TestAProposalTellsNothingOfWhatCommandsDoNotSee(t *testing.T) {
	for name, content := range map[string]string{"a wrong guess": "x", "a right one": "old s/token"} {
		b := newBench(t).files("s/token", "s/other").begin()
		b.write(b.dir+"/veil/s/token", "")
		b.sh(b.upper, "mkdir s; echo '"+content+"' >s/token; echo new >s/other")
		if got := b.proposes(nil, "", "s/token"); got != `error: nothing was changed in "s/token"` {
			t.Errorf("%s: %s", name, got)
		}
		if got := b.proposes(nil, "look"); got != "s/other waiting" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestProposalsAreBounded(t *testing.T) {
	b := newBench(t).begin()
	b.sh(b.upper, fmt.Sprintf("i=0; while [ $i -le %d ]; do : >f$i; i=$((i+1)); done", MaxProposed))
	b.wants(b.proposes(nil, "look"), "error: 1001 changes are more than 1000 at a time: name the paths that matter")
	b.wants(b.proposes(nil, strings.Repeat("a", MaxMessage+1)), "error: the message has more than 2000 bytes")
	b.wants(b.proposes(nil, "\xff"), "error: the message is not UTF-8")
	began := time.Now()
	if got := b.proposes(nil, strings.Repeat("a", MaxMessage), "f7"); got != "f7 waiting" {
		t.Error(got)
	}
	t.Log(time.Since(began))
}
