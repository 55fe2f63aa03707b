package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
)

// audit is what a person types, with what it printed and its exit status.
func (d *desk) audit(args ...string) (out string, status int) {
	d.Helper()
	command := exec.Command(d.bin+"/clai-sandboxd", append([]string{"audit"}, args...)...)
	var exited *exec.ExitError
	printed, err := command.CombinedOutput()
	if err != nil && !errors.As(err, &exited) {
		d.Fatal(err)
	}
	return string(printed), command.ProcessState.ExitCode()
}

// A command's way is on record, in words that are searched for; while the gateway runs it is
// proved, and kept elsewhere.
func TestTheRecordOfACommandIsShownAndProved(t *testing.T) {
	d := newDesk(t)
	if out, status := d.audit("verify"); status != 0 || !strings.Contains(out, "0 lines") {
		t.Errorf("%q, %d", out, status)
	}
	d.inside("printf", "x")
	d.inside("touch", "a\x1b[2J b")
	answered := make(chan struct{})
	go func() { d.inside("id", "-u"); close(answered) }()
	d.allow()
	<-answered
	kept := filepath.Join(d.home, "checkpoint")
	out, status := d.audit("checkpoint")
	key, head, _ := strings.Cut(out, "\n")
	if key = strings.TrimPrefix(key, "key: "); status != 0 {
		t.Fatal(out)
	}
	d.write("checkpoint", head)
	denied := make(chan struct{})
	go func() { d.inside("id", "-g"); close(denied) }()
	if _, err := d.client.Decide(t.Context(), d.waiting().ID, grants.Decision{Kind: grants.Deny, Reason: "no"}); err != nil {
		t.Fatal(err)
	}

	<-denied
	list, status := d.audit("list")
	for _, want := range []string{`HOSTEXEC REQUEST id=\w+ agent=main project=/\S+/work cmd="printf x"`, `HOSTEXEC AUTO_APPROVE .*pattern="printf \.\*"`, `HOSTEXEC COMPLETE .* exit=0 duration=`,
		`HOSTEXEC DENY .*reason="no-pattern`, `HOSTEXEC APPROVE .* user=\S+ decision=allowOnce`, `HOSTEXEC DENY .*decision=deny .*reason=no`} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("no %s in:\n%s", want, list)
		}
	}
	if status != 0 || strings.Contains(list, "\x1b") {
		t.Errorf("%d, %q", status, list)
	}
	if out, _ := d.audit("list", "--agent", "other"); out != "" {
		t.Errorf("%q", out)
	}
	if tail, status := d.audit("tail", "-n", "1"); status != 0 || !strings.HasSuffix(list, tail) || strings.Count(tail, "\n") != 1 {
		t.Errorf("%q", tail)
	}
	for _, format := range []string{"jsonl", "ocsf"} {
		out, status := d.audit("export", "--format", format)
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) || strings.Contains(out, "\x1b") {
				t.Errorf("%s: %q", format, line)
			}
		}
		if status != 0 || strings.Count(out, "\n") < 8 {
			t.Errorf("%s: %q", format, out)
		}
	}

	for _, what := range []string{"0", "3", kept} {
		proof, status := d.audit("prove", what)
		d.write("proof", proof)
		if out, checked := d.audit("verify", "--key", key, d.home+"/proof"); status != 0 || checked != 0 || !strings.Contains(out, "proves what it says") {
			t.Errorf("%s: %q, %q", what, proof, out)
		}
		d.write("proof", strings.Replace(strings.Replace(proof, "printf x", "printf y", 1), `"hashes":["`, `"hashes":["A`, 1))
		if out, checked := d.audit("verify", "--key", key, d.home+"/proof"); checked == 0 {
			t.Errorf("a forged proof: %q", out)
		}
	}
	if out, status := d.audit("verify", kept); status != 0 {
		t.Error(out)
	}
	path := d.home + "/state/clai-sandbox/audit.log"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "printf x", "printf y", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, status := d.audit("verify", kept); status != 1 || !strings.Contains(out, "lines 0 to 1: one of them was changed") {
		t.Errorf("%d, %q", status, out)
	}
}
