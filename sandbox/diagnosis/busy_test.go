package diagnosis

import (
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/sandbox"
)

// What is protected is a mount, and says that it is busy to whoever removes it, or what it is in.
func TestWhatIsBusyIsProtected(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	plan.Steps = append(plan.Steps, sandbox.Step{Path: h.work + "/wt/.git", Kind: sandbox.Bind, Purpose: sandbox.Protects})
	for said, want := range map[string]string{
		"error: failed to delete '{work}/wt': Device or resource busy":         "{work}/wt",
		"rm: cannot remove 'wt/.git': Device or resource busy":                 "{work}/wt/.git",
		"fatal: could not remove 'wt'":                                         "{work}/wt",
		"Error: EBUSY: resource busy or locked, rmdir '{work}/wt'":             "{work}/wt",
		"mv: cannot move 'wt' to 'other': Device or resource busy":             "{work}/wt",
		"rm: cannot remove 'elsewhere': Device or resource busy":               "",
		"umount: /mnt: target is busy":                                         "",
		"error: open /dev/ttyUSB0: Device or resource busy":                    "",
		"fatal: could not remove '" + strings.Repeat("x", 2*maxLine) + "' yet": "",
	} {
		list := Of(Failure{Plan: &plan, Command: []string{"sh", "-c", "true"}, ExitCode: 1, Stderr: []byte(strings.ReplaceAll(said, "{work}", h.work) + "\n")})
		got := ""
		if len(list) > 0 {
			got = list[0].Path
		}
		if got != strings.ReplaceAll(want, "{work}", h.work) || len(list) > 0 && !strings.Contains(list[0].Remedy(""), "is protected") {
			t.Errorf("%s: %+v", said, list)
		}
	}
}
