package profile

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each command that an agent runs starts a process that links this package, and waits for what it
// does before main.
func TestThePackageDoesNextToNothingBeforeMain(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, "-test.run=^$")
	command.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, trace)
	}
	if !strings.Contains(string(trace), "\ninit ") {
		t.Fatalf("no trace: %s", trace)
	}
	// "init NAME @0.5 ms, 0.01 ms clock, 816 bytes, 3 allocs". A package without such work has no
	// line. The test binary makes a flag of its own, which is counted here as well.
	line := regexp.MustCompile(`(?m)^init github\.com/clairun/clai-sandbox/profile @.* (\d+) allocs$`).FindSubmatch(trace)
	if line == nil {
		return
	}
	if n, err := strconv.Atoi(string(line[1])); err != nil || n > 20 {
		t.Errorf("%s: make it where it is used", line[0])
	}
}

func TestNothingHeavyIsLinked(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool here")
	}
	out, err := exec.Command(tool, "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	for _, heavy := range []string{"regexp", "os/user", "net", "log/slog", "text/template", "github.com/google/jsonschema-go/jsonschema"} {
		if slices.Contains(linked, heavy) {
			t.Errorf("%s is linked", heavy)
		}
	}
	for _, name := range linked {
		if strings.HasPrefix(name, "github.com/clairun/") && !strings.HasPrefix(name, "github.com/clairun/clai-sandbox/profile") {
			t.Errorf("%s is linked: the arrows go down to this package", name)
		}
	}
}
