package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// The gateway, its runner, `mcp` and each screen begin with the packages' own beginnings: none may
// take long, as one did that made a table of the widths of all characters (35 ms of each start).
func TestNoPackageTakesLongToBegin(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	least := map[string]float64{} // in milliseconds, of several runs: others keep the machine busy, too
	for range 5 {
		command := exec.Command(self, "--version")
		command.Env = append(os.Environ(), asCommand+"=1", "GODEBUG=inittrace=1")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, found := range regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock`).FindAllSubmatch(out, -1) {
			took, err := strconv.ParseFloat(string(found[2]), 64)
			if err != nil {
				t.Fatal(err)
			}
			if before, is := least[string(found[1])]; !is || took < before {
				least[string(found[1])] = took
			}
		}
	}
	if len(least) < 20 {
		t.Errorf("only %d packages are told of", len(least))
	}
	for name, took := range least {
		if took > 5 {
			t.Errorf("%s: %v ms", name, took)
		}
	}
}
