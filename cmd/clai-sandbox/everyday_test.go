package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// npmProgram is a program that set-up installs from npm, as the words that run it.
func npmProgram(t *testing.T, name, file string) string {
	t.Helper()
	modules, err := filepath.Abs("../../bin/npm/node_modules")
	if err == nil {
		modules, err = filepath.EvalSymlinks(modules)
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, name, file))
	}
	if err != nil {
		t.Skip("packaging/inspector.sh installs it, which needs npm: ", err)
	}
	return " --grant " + modules + " -- node " + filepath.Join(modules, name, file) + " "
}

// What people and agents do with a project in their first minutes, without any option. Nothing of
// ours comes into being in it.
func TestEverydayWorkInAWorkspace(t *testing.T) {
	origin := func(p project) {
		p.write(".gitconfig", "[user]\nname = A Person\nemail = person@example.org\n[init]\ndefaultBranch = main\n")
		p.sh(`git init -q --bare ~/origin && git clone -q ~/origin ~/first 2>&1 && cd ~/first && echo 'all: ; true' > Makefile && git add . &&
			git commit -qm first && git push -q origin HEAD:main && git push -q origin HEAD:topic && git -C ~/origin symbolic-ref HEAD refs/heads/main`)
	}
	for name, try := range map[string]func(t *testing.T, p project){
		"git clone into it": func(t *testing.T, p project) {
			origin(p)
			p.sh("clai-sandbox run -- git clone -q ~/origin .")
			p.wants(p.sh("git status --porcelain; git remote -v; git log --format=%s; ls -A"), "origin", "first", "Makefile")
		},
		"git init, and a first commit": func(t *testing.T, p project) {
			origin(p)
			p.sh("clai-sandbox run -- sh -ec 'git init -q; echo x > f; git add f; git commit -qm one'")
			p.wants(p.sh("git log --format='%an %s'; git status --porcelain"), "A Person one")
		},
		"git's own settings": func(t *testing.T, p project) {
			origin(p)
			p.sh("git clone -q ~/origin . && git remote add more ~/origin && git branch old && git branch gone")
			p.sh(`clai-sandbox run --grant ~/origin:rw -- sh -ec '
				git config user.email agent@example.org; git config --get user.email
				git remote add fork ~/origin; git fetch -q fork; git remote rename more other; git remote remove other
				git switch -q -c work; echo y > g; git add g; git commit -qm two; git push -q -u origin work
				git switch -q --track origin/topic; git branch -q -D gone; git branch -m old kept; git stash list; git pull -q --rebase; git gc -q'`)
			p.wants(p.sh("git config --get user.email; git remote; git branch --format='%(refname:short) %(upstream:short)'; git -C ~/origin log -1 --format=%ae%s work"),
				"agent@example.org\nfork\nmore\norigin\n", "kept ", "topic origin/topic", "work origin/work", "agent@example.orgtwo")
		},
		"create vite in it": func(t *testing.T, p project) {
			p.sh("clai-sandbox run" + npmProgram(t, "create-vite", "index.js") + ". --template vanilla-ts </dev/null")
			p.wants(p.sh("ls -A; grep '\"dev\"' package.json"), "index.html", "vite")
		},
		"yarn 1": func(t *testing.T, p project) {
			p.write("project/dep/package.json", `{"name": "dep", "version": "1.0.0", "main": "index.js"}`)
			p.write("project/dep/index.js", "module.exports = 42")
			yarn := "clai-sandbox run" + npmProgram(t, "yarn", "bin/yarn.js")
			p.sh(yarn + "init -y && " + yarn + "--offline add file:./dep && rm -rf node_modules && " + yarn + "--offline install --frozen-lockfile")
			p.wants(p.sh(yarn+"-s node -p 'require(\"dep\")'"), "42")
		},
		"pnpm": func(t *testing.T, p project) {
			p.write("project/dep/package.json", `{"name": "dep", "version": "1.0.0", "main": "index.js"}`)
			p.write("project/dep/index.js", "module.exports = 42")
			p.write("project/package.json", `{"name": "own", "version": "1.0.0"}`)
			pnpm := "clai-sandbox run" + npmProgram(t, "pnpm", "bin/pnpm.cjs")
			p.sh(pnpm + "add --offline ./dep && " + pnpm + "install --offline --frozen-lockfile")
			p.wants(p.sh("clai-sandbox run -- node -p 'require(\"dep\")'"), "42")
		},
		"npm": func(t *testing.T, p project) {
			if _, err := exec.LookPath("npm"); err != nil {
				t.Skip("this machine has no npm: ", err)
			}
			p.write("project/dep/package.json", `{"name": "dep", "version": "1.0.0", "main": "index.js"}`)
			p.write("project/dep/index.js", "module.exports = 42")
			p.write("project/dep/.npmrc", "fund=false\n")
			p.write("project/dep/.vscode/settings.json", "{}")
			p.sh("clai-sandbox run -- sh -ec 'npm init -y >/dev/null; npm install --offline --no-audit --install-links ./dep >/dev/null; rm -rf node_modules; npm install --offline --no-audit --install-links >/dev/null'")
			p.wants(p.sh("clai-sandbox run -- node -p 'require(\"dep\")'; ls -A node_modules/dep"), "42", "index.js")
		},
		"tar, and all removed": func(t *testing.T, p project) {
			p.write("project/a/b", "x")
			p.wants(p.sh("clai-sandbox run -- sh -ec 'tar c . | tar t | sort; find . -mindepth 1 -delete; ls -A'"), "./\n./a/\n./a/b\n")
			p.wants(p.sh("ls -A | wc -l"), "0\n")
		},
		"git clean, inside and outside": func(t *testing.T, p project) {
			origin(p)
			p.sh("git clone -q ~/origin . && echo x > junk && mkdir junk.d && echo x > junk.d/x")
			p.sh("clai-sandbox run -- sh -ec 'git clean -qfdx; echo x > more; mkdir more.d; echo x > more.d/x'")
			p.sh("(clai-sandbox run -- sh -c 'touch begun; sleep 2; echo evil > .envrc; mkdir -p .vscode; echo evil > .vscode/tasks.json; sleep 1' >/dev/null 2>&1; touch ended) & until [ -e begun ]; do sleep 0.05; done; git clean -qfdx; ls -A > ~/during; until [ -e ended ]; do sleep 0.05; done")
			p.wants(p.sh("cat ~/during"), ".git\nMakefile\n")
			p.wants(p.sh("ls -A; git status --porcelain"), ".git\nMakefile\nended\n?? ended\n")
		},
		"a scaffolder that writes settings of editors": func(t *testing.T, p project) {
			p.sh(`clai-sandbox run -- sh -ec 'mkdir -p src .vscode; echo "{}" > .vscode/extensions.json; echo x > src/main.c; cat src/main.c >/dev/null; echo done > done' 2>&1`)
			p.wants(p.sh("cat done src/main.c"), "done\nx\n")
		},
	} {
		for _, mode := range []string{"watch", "strict"} {
			if mode == "strict" && name == "git clean, inside and outside" {
				continue // it looks at what a command writes while that runs
			}
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				p := newProject(t)
				if mode == "strict" {
					p.write(".config/clai-sandbox/config.json", `{"defaults": {"execution": {"filesystem": {"protectMode": "strict"}}}}`)
				}
				try(t, p)
				p.wants(p.sh("find . -name '*clai*' -o -type d -perm 1700 | wc -l"), "0\n")
			})
		}
	}
}
