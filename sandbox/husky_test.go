package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// asHusky does what "husky" (9.1) does at each "npm install": each step has the install fail that
// fails.
const asHusky = `set -e; git config core.hooksPath .husky/_; rm -f .husky/_/husky.sh; mkdir -p .husky/_; echo '*' >.husky/_/.gitignore
	printf '#!/bin/sh\necho from the sandbox; sh .husky/pre-commit\n' >.husky/_/pre-commit; chmod 755 .husky/_/pre-commit; echo deprecated >.husky/_/husky.sh
	`

// A project's install makes husky's hooks anew, and they run inside. The host has what it had, and
// what a person keeps in .husky nobody changes.
func TestHuskyMakesItsHooksInASandbox(t *testing.T) {
	for name, try := range map[string]struct {
		before string // what the host has in .husky/_
		strict bool
	}{"for the first time": {}, "again": {before: "#!/bin/sh\necho from the host\n"}, "strictly": {strict: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needMounts(t)
			h := gitHost(t)
			if try.strict {
				h.strict()
			}
			w := h.profile.Workspace
			h.write(w+"/.husky/pre-commit", "echo hook of the project\n")
			if try.before != "" {
				h.write(w+"/.husky/_/pre-commit", try.before)
				h.write(w+"/.husky/_/husky.sh", "old\n")
				if err := os.Chmod(w+"/.husky/_/pre-commit", 0o755); err != nil {
					t.Fatal(err)
				}
				h.git(w, "config", "core.hooksPath", ".husky/_")
				if r := h.run("/bin/sh", "-c", commit); !strings.Contains(r.Out+r.Err, "from the host") {
					t.Errorf("the host's hook did not run: %+v", r)
				}
			}
			r := h.run("/bin/sh", "-c", asHusky+commit+"; ! echo evil >.husky/pre-commit; ! touch .husky/more; ! mv .husky/_ .husky/x; ! mv .husky x; ! ln -s / .husky/_")
			if r.ExitCode != 0 || !strings.Contains(r.Out+r.Err, "from the sandbox\nhook of the project\n") {
				t.Errorf("%+v", r)
			}
			if entries, err := os.ReadDir(w + "/.husky"); err != nil || len(entries) != 1+min(len(try.before), 1) {
				t.Errorf("%v: %v", entries, err)
			}
			if try.before == "" {
				if len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, "what the command has in .husky/_ stays in the sandbox; who wants it: clai-sandbox quarantine restore ") {
					t.Errorf("%v", r.Notices)
				}
				return
			}
			if text, err := os.ReadFile(w + "/.husky/_/pre-commit"); string(text) != try.before || len(r.Notices) != 0 {
				t.Errorf("%q: %v, %v", text, err, r.Notices)
			}
		})
	}
}

// What is no directory of a few files stays as it is: read-only, with all that it leads to.
func TestWhatIsNotHuskysStaysReadOnly(t *testing.T) {
	for name, prepare := range map[string]func(h *host, made string){
		"a directory in it": func(h *host, made string) { h.write(made+"/deep/file", "x") },
		"a link in it": func(h *host, made string) {
			h.mkdir(made)
			h.symlink("/etc/hostname", made+"/link")
		},
		"a large file": func(h *host, made string) { h.write(made+"/file", strings.Repeat("x", maxHuskyFile+1)) },
		"a file":       func(h *host, made string) { h.write(made, "x") },
		"many files": func(h *host, made string) {
			for i := range maxHuskyFiles + 1 {
				h.write(fmt.Sprint(made, "/", i), "x")
			}
		},
		"a pipe with a name": func(h *host, made string) {
			h.mkdir(made)
			if err := unix.Mkfifo(made+"/pipe", 0o600); err != nil {
				h.t.Fatal(err)
			}
		},
		"a link to another directory": func(h *host, made string) {
			h.symlink(h.mkdir(h.profile.Workspace+"/.husky/other"), made)
		},
		"a file that nobody may read": func(h *host, made string) {
			if os.Getuid() == 0 {
				h.t.Skip("root may")
			}
			if err := os.Chmod(h.write(made+"/file", "x"), 0); err != nil {
				h.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.write(h.profile.Workspace+"/.husky/pre-commit", "x")
			prepare(h, h.profile.Workspace+"/.husky/_")
			h.sh("! touch .husky/_/new && ! rm -rf .husky/_")
			if _, err := os.Lstat(h.profile.Workspace + "/.husky/_/new"); err == nil {
				t.Error("it was written")
			}
		})
	}
}

// As many files as husky makes, and as long ones, are in the command's own directory.
func TestAllThatHuskyHasMadeIsThere(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	made := h.profile.Workspace + "/.husky/_"
	h.write(made+"/large", strings.Repeat("x", maxHuskyFile))
	for i := range maxHuskyFiles - 1 {
		h.write(fmt.Sprint(made, "/", i), "x")
	}
	h.sh(fmt.Sprintf("cd .husky/_; touch new; rm new; test $(ls | wc -l) = %d; test $(wc -c < large) = %d; echo changed > 0", maxHuskyFiles, maxHuskyFile))
	if text, err := os.ReadFile(made + "/0"); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}

// What a person has said of the directory itself holds.
func TestWhatIsSaidOfHuskysHooksHolds(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	made := h.profile.Workspace + "/.husky/_"
	h.write(made+"/hook", "secret")
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: made, Enforced: true})
	h.sh("! grep -r secret .husky")
	h = newHost(t)
	made = h.profile.Workspace + "/.husky/_"
	h.write(made+"/hook", "x")
	h.grant(made, profile.ReadOnly)
	h.sh("! touch .husky/_/new; grep x .husky/_/hook")
}
