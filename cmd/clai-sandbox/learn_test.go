package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What is learned of projects of five kinds is enough, and nothing of it can be left out.
func TestLearnFindsTheLeastThatRealProjectsNeed(t *testing.T) {
	for name, try := range map[string]struct {
		program string
		prepare string
		command string
		wants   []string // below the home
	}{
		"git": {"git", `git config --global user.name P; git config --global user.email p@example.org; git init -q; echo x > f; git add f; mkdir ~/.config ~/.cache; touch ~/.bashrc`,
			"git commit -qm one", []string{".gitconfig"}},
		"go": {"go", `mkdir -p ~/go/pkg/mod/cache/download/example.org/m/@v ~/go/bin ~/.config/other; cd ~/go/pkg/mod/cache/download/example.org/m/@v
			printf '{"Version":"v1.0.0"}' > v1.0.0.info; printf 'module example.org/m\n' > v1.0.0.mod; printf 'v1.0.0\n' > list
			mkdir -p ~/z/example.org/m@v1.0.0; printf 'module example.org/m\n' > ~/z/example.org/m@v1.0.0/go.mod; printf 'package m\n' > ~/z/example.org/m@v1.0.0/m.go
			(cd ~/z; python3 -c 'import zipfile
z = zipfile.ZipFile("z.zip", "w"); [z.write("example.org/m@v1.0.0/" + f) for f in ("go.mod", "m.go")]'); mv ~/z/z.zip v1.0.0.zip; rm -r ~/z; cd - >/dev/null
			printf 'module main\ngo 1.20\nrequire example.org/m v1.0.0\n' > go.mod; printf 'package main\nimport _ "example.org/m"\nfunc main() {}\n' > main.go`,
			"env GOFLAGS=-modcacherw GOPROXY=off GOSUMDB=off GOTOOLCHAIN=local go mod download", []string{"go"}},
		"python": {"python3", `d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d ~/.config/a ~/.config/b; echo 'X = 1' > $d/ours.py; echo y > ~/.config/b/conf
			echo 'import ours, os; assert open(os.path.expanduser("~/.config/b/conf")).read()' > main.py`, "python3 main.py", []string{".local", ".config/b"}},
		"node": {"node", `mkdir -p ~/.node_modules/ours ~/.node_modules/other; echo 'module.exports = 1' > ~/.node_modules/ours/index.js; echo 'require("ours")' > main.js`,
			"node main.js", []string{".node_modules/ours"}},
		"make and a compiler": {"gcc", `mkdir -p ~/lib/include ~/lib/doc; echo '#define X 1' > ~/lib/include/ours.h; printf '#include <ours.h>\nint main(void) { return X - 1; }\n' > main.c
			printf 'main: main.c\n\tgcc -I$(HOME)/lib/include -o main main.c\n' > Makefile`, "make", []string{"lib/include"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needProgram(t, try.program)
			p := newProject(t)
			t.Cleanup(func() { removeState(p.home) })
			p.sh(try.prepare)
			out := p.sh("clai-sandbox learn --network disabled -- " + try.command + " 2>~/log || { cat ~/log; exit 1; }")
			t.Log(p.sh("tail -1 ~/log"), out)
			var learned struct {
				Agents map[string]struct {
					Execution struct {
						Filesystem struct{ ExtraPaths []learnedPath }
					}
				}
			}
			if err := json.Unmarshal([]byte(out), &learned); err != nil {
				t.Fatal(err, out)
			}
			paths := learned.Agents["main"].Execution.Filesystem.ExtraPaths
			for _, want := range try.wants {
				if !slices.ContainsFunc(paths, func(found learnedPath) bool { return strings.HasPrefix(found.Path, p.home+"/"+want) }) {
					t.Errorf("nothing of %s: %v", want, paths)
				}
			}
			if len(paths) != len(try.wants) {
				t.Errorf("%v", paths)
			}
			runs := 0
			passes := func(paths []learnedPath) bool {
				runs++
				line := "clai-sandbox run --home ephemeral --workspace-access cow --network disabled"
				for _, l := range paths {
					line += " --grant '" + l.Path + ":" + l.Access.String() + "'"
				}
				cmd := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprintf("CLAI_SANDBOX_STATE_DIR=$HOME/state-%d %s -- %s", runs, line, try.command))
				cmd.Dir, cmd.Env = p.home+"/project", append(os.Environ(), "HOME="+p.home)
				return cmd.Run() == nil
			}
			if !passes(paths) {
				t.Error("it is not enough")
			}
			for i := range paths {
				if passes(slices.Concat(paths[:i], paths[i+1:])) {
					t.Errorf("it passes without %v", paths[i])
				}
			}
		})
	}
}
