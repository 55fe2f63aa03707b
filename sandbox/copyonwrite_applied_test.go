package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	review "github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// contents lists all that a shell sees below its directory: type, permissions, links, and what is
// in files.
const contents = `find . -name .git -prune -o -printf '%P %y %m %l\n' | sort; find . -type f -not -path './.git/*' | sort | xargs -d '\n' cat`

// What commands made of a workspace is what the host has after it was applied, whatever they did to
// it. The kernel's overlay writes the layer here, not a test.
func TestWhatWasSeenCopyOnWriteIsWhatIsApplied(t *testing.T) {
	for name, script := range map[string]string{
		"files":        "echo new > new; echo more >> a; rm b; chmod 600 c; touch d",
		"directories":  "rm -r dir; mkdir dir; echo x > dir/x; mkdir -p one/two/three; echo y > one/two/three/y; mkdir empty",
		"names":        "mv a z; mv b c; mv dir other; echo again > a; ln z hard; ln c also",
		"types":        "rm a; mkdir a; echo x > a/x; rm -r dir; echo file > dir; rm link; mkdir link; ln -sf nowhere b",
		"and back":     "rm -r dir; mkdir dir; rm -r dir; mkdir -p dir/sub; echo new > dir/sub/inner; rm a; echo a > a; mv b t; mv t b",
		"in a row":     "sed -i s/a/A/ a; cp -r dir copy; rm dir/sub/inner; rmdir dir/sub; ln -s copy link2; truncate -s 1M sparse",
		"deletes all":  "rm -r *",
		"everything":   "rm -rf * .[!.]*; mkdir dir; echo 1 > dir/sub; echo 2 > a; ln -s a link",
		"does nothing": "true",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).copying()
			work := h.profile.Workspace
			for _, name := range []string{"a", "b", "c", "d", "dir/x", "dir/sub/inner", "kept/x"} {
				h.write(work+"/"+name, name+"\n")
			}
			h.symlink("a", work+"/link")
			time.Sleep(20 * time.Millisecond) // the kernel's clock goes in steps of up to 10 ms; what is later is a conflict
			h.sh("set -e; " + script)
			inside := h.sh(contents)
			list, err := review.List(filepath.Dir(filepath.Dir(h.profile.Layers)))
			if err != nil || len(list) != 1 {
				t.Fatalf("%+v %v", list, err)
			}
			result, err := list[0].Apply(t.Context(), review.Selection{})
			if err != nil || len(result.Skipped) > 0 || len(result.Left) > 0 {
				t.Errorf("%+v %v", result, err)
			}
			if outside := hostSees(t, work); outside != inside {
				t.Errorf("the host has\n%s\nand not\n%s", outside, inside)
			}
			if r, err := list[0].Review(t.Context()); err != nil || len(r.Changes) > 0 {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// What a person changes beside a command's changes is merged with them: after a run, and between
// the commands of a session.
func TestWhatAPersonChangesAfterACommandIsMergedWithIt(t *testing.T) {
	for _, way := range []string{"run", "session"} {
		t.Run(way, func(t *testing.T) {
			h := newHost(t).copying()
			file := h.profile.Workspace + "/file"
			h.write(file, "1\n2\n3\n4\n5\n")
			time.Sleep(20 * time.Millisecond)
			if way == "run" {
				h.sh("sed -i s/4/command/ file")
				h.write(file, "1\nperson\n3\n4\n5\n")
			} else {
				s := h.openSession()
				s.sh(t, "sed -i s/4/command/ file")
				h.write(file, "1\nperson\n3\n4\n5\n")
				s.sh(t, "echo 6 >> file")
				s.Close()
			}
			list, err := review.List(filepath.Dir(filepath.Dir(h.profile.Layers)))
			if err != nil || len(list) != 1 {
				t.Fatalf("%+v %v", list, err)
			}
			result, err := list[0].Apply(t.Context(), review.Selection{})
			text, _ := os.ReadFile(file)
			if want := "1\nperson\n3\ncommand\n5\n"; !strings.HasPrefix(string(text), want) || strings.HasSuffix(string(text), "6\n") != (way == "session") {
				t.Errorf("%q %+v %v", text, result, err)
			}
		})
	}
}

// A workspace may hold anything. It is seen, changed and applied all the same.
func TestAHostileWorkspaceIsSeenCopyOnWriteAndApplied(t *testing.T) {
	h := newHost(t).copying()
	work := h.profile.Workspace
	command := exec.Command("sh", "-ec", `ln -s loop loop; ln -s two one; ln -s one two; ln -s / root; ln -s ../.. up; mkfifo fifo; truncate -s 4G sparse; echo old > ./-rf
		printf old > "$(printf 'bad\377\033[2J')"; i=0; while [ $i -lt 300 ]; do ln -s l$((i+1)) l$i; i=$((i+1)); done; echo end > l300; mkdir -p a/a/a/a/a/a/a/a; ln -s .. a/a/a/a/up`)
	command.Dir = work
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	time.Sleep(20 * time.Millisecond)
	out := h.sh(`set -e; ls -R | wc -l >/dev/null; rm loop one; ln -s new one; rm fifo; mkfifo fifo; echo new > ./-rf; printf new > "$(printf 'bad\377\033[2J')"
		printf x | dd of=sparse bs=1 seek=4000000000 conv=notrunc status=none; rm l300; ln -s l0 l300; ! cat l0 2>/dev/null; mv root root2; echo x > up2; rm -r a; echo told`)
	if !strings.HasSuffix(out, "told\n") {
		t.Fatalf("%q", out)
	}
	list, err := review.List(filepath.Dir(filepath.Dir(h.profile.Layers)))
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	result, err := list[0].Apply(t.Context(), review.Selection{})
	if err != nil || len(result.Left) > 0 || len(result.Skipped) != 1 || result.Skipped[0].Path != "fifo" {
		t.Errorf("%+v %v", result, err)
	}
	command = exec.Command("sh", "-exc", `! test -L loop; test "$(readlink one)" = new; test "$(cat ./-rf bad*)" = "new
new"; test "$(dd if=sparse bs=1 skip=4000000000 count=1 status=none)" = x; test "$(du -k sparse | cut -f1)" -lt 1000; test "$(stat -c %s sparse)" = 4294967296
		test "$(readlink l300)" = l0; test "$(readlink root2)" = /; ! test -L root; ! test -e a; test -p fifo; test "$(cat up2)" = x`)
	command.Dir = work
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func hostSees(t *testing.T, dir string) string {
	t.Helper()
	command := exec.Command("sh", "-c", contents)
	command.Dir = dir
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestALayerThatASandboxHasIsNotApplied(t *testing.T) {
	h := newHost(t).copying()
	shell := h.liveShell()
	shell.expect("echo x > x; echo first", "first")
	list, err := review.List(filepath.Dir(filepath.Dir(h.profile.Layers)))
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	if r, err := list[0].Review(t.Context()); err != nil || len(r.Changes) != 1 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := list[0].Apply(t.Context(), review.Selection{}); err == nil || !strings.Contains(err.Error(), "in use by process ") {
		t.Errorf("%v", err)
	}
}
