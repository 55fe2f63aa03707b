package diagnosis

import (
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

func TestWhatAnOverlayCannotDoIsToldWithTheWayRoundIt(t *testing.T) {
	plan := &sandbox.Plan{WorkingDirectory: "/w/sub", Steps: []sandbox.Step{
		{Kind: sandbox.Bind, Path: "/w", Access: profile.CopyOnWrite, Layer: "/l/w"},
		{Kind: sandbox.Bind, Path: "/c", Access: profile.CopyOnWrite, Layer: "/l/c", Purpose: sandbox.Caches},
		{Kind: sandbox.Bind, Path: "/r", Access: profile.ReadWrite}}}
	for said, want := range map[string]string{
		"fatal: renaming 'd' failed: Invalid cross-device link":                                "mkdir NEW",
		"fatal: hardlink different from source at 'c1/.git/objects/a1/dffc7a64c0b2d395484bf45": "--no-hardlinks",
		"OSError: [Errno 18] Invalid cross-device link: 'a' -> 'b'":                            "copy it",
	} {
		for dir, told := range map[string]bool{"": true, "/w": true, "/c": false, "/r": false, "/wx": false} {
			list := Of(Failure{Plan: plan, Directory: dir, Command: []string{"sh", "-c", "x"}, ExitCode: 128, Stderr: []byte(said + "\n")})
			if is := len(list) == 1 && list[0].Why == Copied && list[0].Path == "/w" && strings.Contains(list[0].Hint, want) && !strings.Contains(list[0].Hint, "\n"); is != told {
				t.Errorf("%s in %q: %+v", said, dir, list)
			}
		}
	}
}
