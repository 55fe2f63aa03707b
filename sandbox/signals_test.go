package sandbox

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/process"
)

// Which sandbox a process is in, the kernel says.
func TestAProcessIsInItsOwnSandbox(t *testing.T) {
	runs := func(control *Control) (inside int, end func()) {
		h := newHost(t)
		h.launcher.Control = control
		result := make(chan ran, 1)
		go func() { result <- h.run("/bin/sh", "-c", "touch ready; until test -e done; do sleep 0.01; done") }()
		waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
		a := control.attempt.Load()
		return process.Children(a.init())[0], func() { h.write(h.profile.Workspace+"/done", ""); <-result }
	}
	var one, other Control
	if one.Has(os.Getpid()) || one.Has(1) {
		t.Error("before there is a sandbox, a process is in it")
	}
	inOne, endOne := runs(&one)
	inOther, endOther := runs(&other)
	defer endOther()
	for name, c := range map[string]struct {
		control *Control
		pid     int
		want    bool
	}{
		"its own":            {&one, inOne, true},
		"the other's":        {&other, inOther, true},
		"of the other":       {&one, inOther, false},
		"of the one":         {&other, inOne, false},
		"outside":            {&one, os.Getpid(), false},
		"its parent outside": {&one, unix.Getppid(), false},
		"none":               {&one, 0, false},
	} {
		if got := c.control.Has(c.pid); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	endOne()
	if one.Has(inOne) || one.Has(inOther) {
		t.Error("after its end, a process is in it")
	}
}
