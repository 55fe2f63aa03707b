package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	review "github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// What a person's settings, links and environment name in a workspace is what their programs
// execute: a command neither writes nor makes it. In the scripts, $W is the workspace, $HOME the
// home, plant writes a program, settings a file of git's settings that executes one.
func TestWhatIsNamedElsewhereIsProtected(t *testing.T) {
	const commits = "git add -A; git commit -q --allow-empty -m x"
	for name, c := range map[string]struct {
		before  string // the person
		below   string // where the workspace is then, below $W
		earlier string // a command
		inside  string // the next
		after   string // the person again
		set     func(p *profile.Profile)
	}{
		"a worktree's hooks by a relative path": {
			before: "git init -q $HOME/main; cd $HOME/main; mkdir .githooks; echo true > .githooks/pre-commit; chmod +x .githooks/pre-commit; git add .; git commit -qm i; git config core.hooksPath .githooks; rm -r $W; git worktree add -q $W",
			inside: "plant .githooks/pre-commit; plant .githooks/post-commit"},
		"hooks of a worktree in the workspace": {
			before: "git init -q; mkdir .githooks; echo true > .githooks/pre-commit; chmod +x .githooks/pre-commit; git add .; git commit -qm i; git config core.hooksPath .githooks; git worktree add -q wt 2>/dev/null",
			inside: "plant wt/.githooks/pre-commit; plant wt/.githooks/post-commit; echo x > wt/y", after: "cd wt; " + commits},
		"hooks of a worktree that the command adds": {
			before: "git init -q; mkdir tools; mkdir tools/h; echo true > tools/h/pre-commit; chmod +x tools/h/pre-commit; git add .; git commit -qm i; git config core.hooksPath tools/h",
			inside: "git worktree add -q wt; plant wt/tools/h/pre-commit; plant wt/tools/h/post-commit; echo x > wt/y", after: "cd wt; " + commits},
		"hooks in a worktree's own settings": {
			before: "git init -q; mkdir .hk; git config extensions.worktreeConfig true; git config --worktree core.hooksPath .hk",
			inside: "plant .hk/pre-commit"},
		"a program that has another name": {
			before: "git init -q; mkdir tools vendor; echo true > tools/fm; chmod +x tools/fm; ln tools/fm vendor/alias; git config core.fsmonitor tools/fm",
			inside: "plant vendor/alias; mv vendor v; plant v/alias; ln tools/fm x; plant x; rm -f v/alias", after: "git status"},
		"what programs start with has other names": {
			before: "mkdir -p $HOME/.config/fish $HOME/dots d; for f in bashrc config.fish tmux aliases fm pre-commit editorrc d/more; do echo '#' > $f; done; ln bashrc $HOME/.bashrc; ln config.fish $HOME/.config/fish; ln tmux $HOME/.tmux.conf; ln editorrc $HOME/.editorrc; ln aliases $HOME/dots/a; ln d/more $HOME/dots/m" +
				"; echo '. ~/dots/a; . ~/dots/n' >> bashrc; ln -s m $HOME/dots/n; ln fm $HOME/dots/fm; mkdir $HOME/hk; ln pre-commit $HOME/hk; git config --global core.hooksPath $HOME/hk; git config --global core.fsmonitor $HOME/dots/fm; ln $HOME/.gitconfig gitconfig2",
			inside: "for f in bashrc config.fish tmux aliases fm pre-commit editorrc d/more gitconfig2; do plant $f; done; mkdir e; mv fm e; plant e/fm; echo mine > ok",
			after:  "for f in bashrc config.fish tmux aliases fm pre-commit editorrc d/more; do sh ./$f; done; sh $HOME/.bashrc; sh $HOME/dots/fm; test -e ok && ! grep -q exec gitconfig2 || touch $W/executed"},
		"a repository around the workspace has settings and hooks with other names": {
			before: "git init -q $HOME; ln $HOME/.git/config c; echo true > h; chmod +x h; ln h $HOME/.git/hooks/pre-commit", inside: "settings c; plant h", after: "git status; sh ./h; " + commits},
		"hooks that have other names": {
			before: "git init -q; mkdir -p hk a/b; echo true > hk/pre-commit; chmod +x hk/pre-commit; ln hk/pre-commit a/b/c; ln hk/pre-commit d; cp hk/pre-commit .git/hooks/post-commit; ln .git/hooks/post-commit e; git config core.hooksPath hk",
			inside: "plant a/b/c; plant d; plant e", after: commits + "; git -c core.hooksPath=.git/hooks commit -q --allow-empty -m x"},
		"settings that have another name": {
			before: "git init -q; ln .git/config x", inside: "settings x", after: "git status"},
		"hooks of the repository above": {
			before: "git init -q; mkdir -p tools/hooks; git config core.hooksPath tools/hooks", below: "tools",
			inside: "plant hooks/pre-commit"},
		"the workspace is where the hooks of the repository above are": {
			before: "git init -q; mkdir tools; git config core.hooksPath tools", below: "tools",
			inside: "plant pre-commit"},
		"settings that the repository above includes": {
			before: "git init -q; mkdir tools; git config include.path ../tools/gc", below: "tools",
			inside: "settings gc"},
		"a hook of the repository above is a link": {
			before: "git init -q; mkdir tools; ln -s ../../tools/pc .git/hooks/pre-commit", below: "tools",
			inside: "plant pc"},
		"hooks and settings in what package managers fill": {
			before: "mkdir -p vendor/lib; cd vendor/lib; git init -q; git config core.hooksPath .githooks; git config include.path ../.gc",
			inside: "cd vendor/lib; mkdir .githooks; plant .githooks/pre-commit; settings .gc", after: "cd vendor/lib; " + commits},
		"the person's hooks, in a repository that managers fill": {
			before: "git config --global core.hooksPath .githooks",
			inside: "git init -q vendor/lib; mkdir vendor/lib/.githooks; plant vendor/lib/.githooks/pre-commit", after: "cd vendor/lib; " + commits},
		"a hook is a link into what managers fill": {
			before: "git init -q; mkdir vendor; ln -s ../../vendor/pc .git/hooks/pre-commit", inside: "plant vendor/pc"},
		"settings that the person's include, and that are not there": {
			before: "git config --global include.path $W/gc", inside: "settings gc", after: "git init -q $HOME/o; cd $HOME/o; git status"},
		"those that these include": {
			before: "git config --global include.path $W/gc; git config -f gc include.path more", inside: "settings more", after: "git init -q $HOME/o; cd $HOME/o; git status"},
		"after many other includes": {
			before: "for i in $(seq 30); do git config --global includeIf.gitdir:~/c$i/.path ~/c$i; done; git config --global include.path $W/gc", inside: "settings gc",
			after: "git init -q $HOME/o; cd $HOME/o; git status"},
		"hooks of the person's that are not there": {
			before: "git config --global core.hooksPath $W/a/hooks", inside: "mkdir -p a/hooks; plant a/hooks/pre-commit", after: "git init -q $HOME/o; cd $HOME/o; " + commits},
		"the same, by a link in the place of what leads there": {
			before: "git config --global core.hooksPath $W/a/hooks", inside: "mkdir -p b/hooks; plant b/hooks/pre-commit; ln -s b a", after: "git init -q $HOME/o; cd $HOME/o; " + commits},
		"a template for repositories": {
			before: "mkdir -p template/hooks; git config --global init.templateDir $W/template", inside: "plant template/hooks/pre-commit", after: "git init -q $HOME/o; cd $HOME/o; " + commits},
		"a program of the person's settings": {
			before: "mkdir bin; echo true > bin/fm; chmod +x bin/fm; git config --global core.fsmonitor \"'$W/bin/fm' -x\"", inside: "rm -f bin/fm; plant bin/fm; plant bin/fm", after: "git init -q $HOME/o; cd $HOME/o; git status"},
		"a program that is not there": {
			before: "git config --global alias.st '!~/work/tools/st'", inside: "mkdir tools; plant tools/st", after: "git st"},
		"a shell's file is a link to what is not there": {
			before: "ln -s work/bashrc $HOME/.bash_aliases", inside: "plant bashrc", after: "sh $HOME/.bash_aliases"},
		"a link below .config": {
			before: "mkdir -p $HOME/.config/some; ln -s $W/some.toml $HOME/.config/some/config", inside: "plant some.toml", after: "sh $HOME/.config/some/config"},
		"a link deep below .config": {
			before: "mkdir -p $HOME/.config/fish/conf.d; ln -s $W/a.fish $HOME/.config/fish/conf.d/a.fish", inside: "plant a.fish", after: "sh $HOME/.config/fish/conf.d/a.fish"},
		"one in a program's directory of plugins": {
			before: "mkdir -p $HOME/.vim/pack/a/start/b/plugin; echo x > p.vim; ln -s $W/p.vim $HOME/.vim/pack/a/start/b/plugin/p.vim", inside: "plant p.vim", after: "sh $HOME/.vim/pack/a/start/b/plugin/p.vim"},
		"a directory deep below .local/share is a link": {
			before: "mkdir -p plug $HOME/.local/share/nvim/site/pack; ln -s $W/plug $HOME/.local/share/nvim/site/pack/p", inside: "plant plug/p.vim", after: "sh $HOME/.local/share/nvim/site/pack/p/p.vim"},
		"a directory of settings is a link": {
			before: "mkdir some; ln -s work/some $HOME/.some", inside: "plant some/rc", after: "sh $HOME/.some/rc"},
		"ssh's settings are a link": {
			before: "mkdir -p $HOME/.ssh ssh; ln -s ../work/ssh/config $HOME/.ssh/config", inside: "plant ssh/config", after: "sh $HOME/.ssh/config"},
		"a protected name is a link to what is not there": {
			before: "ln -s env/local .envrc; mkdir env", inside: "plant env/local", after: "sh ./.envrc"},
		"a protected directory is a link to what is not there": {
			before: "ln -s conf/vs .vscode", inside: "mkdir -p conf/vs; plant conf/vs/tasks.json", after: "sh ./.vscode/tasks.json"},
		"a hook is a link, and many names are protected": {
			before: "git init -q; mkdir .direnv scripts; cd .direnv; seq 5000 | xargs touch; cd ..; touch scripts/pc; chmod +x scripts/pc; ln -s ../../scripts/pc .git/hooks/pre-commit",
			inside: "plant scripts/pc"},
		"git's settings are where the environment says": {
			before: "git config -f $HOME/gc include.path $W/more", inside: "settings more", after: "GIT_CONFIG_GLOBAL=$HOME/gc git init -q $HOME/o; cd $HOME/o; GIT_CONFIG_GLOBAL=$HOME/gc git status",
			set: func(p *profile.Profile) { p.PersonsGit = []string{p.Home + "/gc"} }},
		"a file that a variable names, and one in a directory that does not count": {
			before: "touch pre.js; mkdir lib", inside: "plant pre.js; plant lib/sitecustomize.py; plant new.cfg; plant lib/mine", after: "sh pre.js; sh lib/sitecustomize.py; sh new.cfg; test -f lib/mine || touch $W/executed",
			set: func(p *profile.Profile) {
				p.PersonsNamed = []string{p.Home + "/work/pre.js", p.Home + "/work/lib", p.Home + "/work/lib/sitecustomize.py", p.Home + "/work/new.cfg"}
			}},
		"a script by a plain name, behind an interpreter": {
			before: "git init -q; echo true > fm; git config core.fsmonitor 'sh -e fm'; git config core.pager 'python3 strip.py -x'; touch strip.py", inside: "plant fm; plant strip.py; echo mine > ok", after: "git status; sh strip.py; test -e ok || touch $W/executed"},
		"a script that code names, and none that is code": {
			before: "git init -q; git config core.fsmonitor \"sh -c 'sort < list'\"", inside: "echo mine > sort", after: "git status; test -e sort || touch $W/executed"},
		"a module of Python's": {
			before: "git init -q; git config filter.a.clean '\"/usr/bin/python3\" -m nbstripout'; git config filter.b.clean 'python3.11 -mtools.x'; git config filter.c.clean 'python3 -W ignore -m y.z'",
			inside: "plant nbstripout.py; plant tools/x.py; plant y/__init__.py", after: "sh nbstripout.py; sh tools/x.py; sh y/__init__.py"},
		"a script of node's by the name that it has without an ending": {
			before: "git init -q; git config filter.a.clean 'node -r ./hook tools/x'; git config filter.b.clean 'node strip'", inside: "plant hook.js; plant tools/x.js; plant strip.node; plant strip.js", after: "sh hook.js; sh tools/x.js; sh strip.node; sh strip.js"},
		"what Python imports at its start": {
			before: "mkdir src", inside: "plant src/apport_python_hook.py; for m in apport_python_hook usercustomize sitecustomize; do plant src/$m/__init__.py; plant src/$m/x.py; done; echo mine > ok",
			after: "for f in src/*.py src/*/*.py; do test ! -e $f || sh $f; done; test -e ok || touch $W/executed"},
		"what Python has compiled of a module": {
			before: "git init -q; git config filter.a.clean 'python3 -m strip'; touch strip.py usercustomize.py", inside: "plant __pycache__/strip.cpython-311.pyc; plant __pycache__/usercustomize.cpython-311.pyc; plant strip.so; for i in 1 2 3 4 5; do plant strip.pyc; rm -f strip.pyc; done; echo mine > ok",
			after: "sh __pycache__/strip.cpython-311.pyc; sh __pycache__/usercustomize.cpython-311.pyc; sh strip.so; sh strip.pyc; test -e ok || touch $W/executed"},
		"what zsh and Emacs have compiled of what they read": {
			before: "mkdir z; touch aliases.zsh x.el z/.zshrc; echo \". $W/aliases.zsh; fpath=($W/functions)\" > $HOME/.zshrc; echo \"(load \\\"$W/x.el\\\") (load \\\"$W/y\\\")\" > $HOME/.emacs",
			inside: "plant aliases.zsh.zwc; plant functions.zwc; plant z/.zshrc.zwc; plant z/.zcompdump-host-5.9; plant x.elc; plant y.el", after: "for f in aliases.zsh.zwc functions.zwc z/.zshrc.zwc z/.zcompdump-host-5.9 x.elc y.el; do sh $f; done"},
		"a file in one word with an option": {
			before: "git init -q; git config core.sshCommand \"ssh -F$W/ssh_config -o ProxyCommand=$W/proxy\"; git config core.pager 'perl -Itools/lib x'; git config filter.a.clean 'node -r./tools/hook.js'",
			inside: "plant ssh_config; plant proxy; plant tools/hook.js", after: "sh ssh_config; sh proxy; sh tools/hook.js"},
		"behind what a command in a command says": {
			before: "git init -q; mkdir tools; echo true > tools/fm; chmod +x tools/fm; git config core.fsmonitor '\"$(git config --get a.b 2>/dev/null || printf \"%s/tools\" \"$(git rev-parse --show-toplevel)\")\"/fm clean'",
			inside: "plant fm; plant tools/fm", after: "git status; sh fm"},
		"behind a variable in quotes": {
			before: "git init -q; mkdir tools; echo true > tools/fm; chmod +x tools/fm; git config core.fsmonitor '\"$PWD\"/tools/fm'; git config core.pager '${PWD}\"/tools/p\"'", inside: "plant tools/fm; plant tools/p", after: "git status; sh tools/p"},
		"behind the default of a variable": {
			before: "git init -q; git config core.fsmonitor '${X:-tools/fm}'", inside: "plant tools/fm", after: "git status"},
		"in the home of a user that is named": {
			before: "git config --global core.pager '~home/work/pager'; git config --global include.path '~home/work/gc'", inside: "settings gc; plant pager", after: "GIT_CONFIG_GLOBAL=gc git st; sh pager"},
		"git's settings in the environment": {
			before: "git init -q; mkdir hk", inside: "plant hk/pre-commit; plant fm; settings gc", after: "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=hk git commit -q --allow-empty -m x; sh fm; GIT_CONFIG_GLOBAL=gc git st",
			set: func(p *profile.Profile) {
				p.PersonsSettings = []string{"[core]\n\thooksPath = \"" + p.Home + "/work/hk\"\n", "[core]\n\tfsmonitor = ./fm\n", "[include]\n\tpath = ~/work/gc\n"}
			}},
		"what git and its extensions obey": {
			before: "git init -q; touch ca; git config http.sslCAInfo $W/ca; git config core.attributesFile ~/work/attributes; git config lfs.customtransfer.x.path tools/lfs; mkdir gf; git config gitflow.path.hooks gf; git config remote.x.url $W/other",
			inside: "plant ca; plant attributes; plant tools/lfs; plant gf/pre-flow; echo mine > other", after: "sh ca; sh attributes; sh tools/lfs; sh gf/pre-flow; test -e other || touch $W/executed"},
		"what git obeys by a relative path": {
			before: "git init -q; mkdir keys; touch keys/ca template; git config http.sslCAInfo keys/ca; git config core.attributesFile attributes; git config core.quotePath false; git config commit.template template",
			inside: "plant keys/ca; plant attributes; echo x > false; echo x > template", after: "sh keys/ca; sh attributes; test -e false && grep -q x template || touch $W/executed"},
		"what a shell's file reads by a variable, and all of a directory": {
			before: "mkdir rc few; touch rc/a; echo true > one.zsh; printf 'export DOTS=$HOME/work\n. \"$DOTS/aliases\"; . ${DOTS}/more\nfor f in $DOTS/rc/*.sh ~/work/*.zsh ~/w*/env; do . $f; done\n' > $HOME/.bashrc",
			inside: "plant aliases; plant more; plant rc/new.sh; plant one.zsh; plant env; echo x > few/x", after: "for f in aliases more env rc/new.sh one.zsh; do sh ./$f; done; test -e few/x || touch $W/executed"},
		"what a shell's file reads": {
			before: "touch a b; echo 'test -f ~/work/a && . \"$HOME/work/a\"; source ${HOME}/work/b' > $HOME/.bashrc; echo source $W/v > $HOME/.vimrc; mkdir $HOME/.ssh; echo Include ~/work/sshc > $HOME/.ssh/config; echo \"alias e='~/work/e'\" >> $HOME/.bashrc",
			inside: "plant a; plant b; plant v; plant sshc; echo mine > e", after: "for f in a b v sshc; do sh $f; done; grep mine e || touch $W/executed"},
		"what a shell's file reads by another one": {
			before: "mkdir $HOME/dots $HOME/z; echo '. ~/dots/main; . $LATE/c' > $HOME/.bashrc; echo '. ~/dots/more' > $HOME/dots/main; echo '. ~/work/a' > $HOME/dots/more; echo 'LATE=~/work' > $HOME/.profile\n" +
				"echo 'cd ~/work && . ~/work/b; cd' >> $HOME/.bashrc; echo \"alias f='x; ~/work/f'; . ~/work/e\" >> $HOME/.bashrc; echo 'export ZDOTDIR=~/z' > $HOME/.zshenv; echo 'source ~/work/d' > $HOME/z/.zshrc",
			inside: "for f in a b c d e; do plant $f; done; echo mine > f", after: "for f in a b c d e; do sh $f; done; grep mine f || touch $W/executed"},
		"what a shell's file reads by eight others": {
			before: "mkdir $HOME/dots; echo '. ~/dots/1' > $HOME/.bashrc; for n in 1 2 3 4 5 6 7; do echo \". ~/dots/$((n+1))\" > $HOME/dots/$n; done; echo '. ~/work/a; . ~/dots/1' > $HOME/dots/8",
			inside: "plant a; echo mine > b", after: "sh a; grep mine b || touch $W/executed"},
		"what a shell's file reads in a loop, from a list, by a variable of the environment, and where it goes": {
			before: `mkdir $HOME/dots rc; printf '%s\n' 'for f in a b; do . ~/work/$f; done' '. ~/work/{c,d}.sh' 'names=(e f)' 'for n in "${names[@]}"; do source "$HOME/work/$n"; done' \
'pushd ~/work >/dev/null; . ./g; popd' '(cd ~/work && . ./h)' 'cd -q $DOTS; source i; cd' '. $BASE/j' '. $FROM/k' 'X=l; . ~/work/$X' 'alias y="cd ~/work; ./mine"' '. $LATE/more' > $HOME/.bashrc
echo 'FROM=$LATE2' > $HOME/.bash_aliases; echo 'LATE2=~/work; LATE=~/dots' > $HOME/.zshrc; echo '. ~/work/m' > $HOME/dots/more; echo 'for f (n o) . ~/work/$f' >> $HOME/.zshrc; echo 'set parts p q
for x in $parts
  source ~/work/$x.fish' > $HOME/.kshrc`,
			inside: "for f in a b c.sh d.sh e f g h i j k l m n o p.fish q.fish; do plant $f; done; echo x > rc/other; echo x > other",
			after:  "for f in a b c.sh d.sh e f g h i j k l m n o p.fish q.fish; do sh ./$f; done; test -e other && test -e rc/other || touch $W/executed",
			set: func(p *profile.Profile) {
				p.PersonsVariables = []string{"DOTS=" + p.Home + "/work", "BASE=" + p.Home + "/work"}
			}},
		"what a hook executes": {
			before: `git init -q; mkdir scripts lib src dist node_modules bin; touch scripts/a scripts/b.sh lib/c.sh d.py e src/f.js dist/g.js node_modules/h bin/i j.sh l.sh scripts/m src/n; chmod +x scripts/* bin/*
hook() { cat > .git/hooks/$1; chmod +x .git/hooks/$1; }
printf '#!/bin/sh\nexec ./scripts/a --all < src/n\n' | hook pre-commit
hook pre-push <<'X'
#!/usr/bin/env bash
# sh e
set -e; X=1 sh -e scripts/b.sh "$@" || exit 1
. lib/c.sh && python3 -W ignore ./d.py src/f.js; eslint src/f.js; node dist/g.js; node_modules/h
if "$(git rev-parse --show-toplevel)/bin/i"; then cd lib; ./k.sh; bash "$PWD/../j.sh"; fi; test -f l.sh
X
git config core.hooksPath .git/hooks; echo 'scripts/m' | hook post-commit; printf '#!/usr/bin/python3\nsh l.sh\n' | hook post-merge`,
			inside: "for f in scripts/a scripts/b.sh lib/c.sh d.py bin/i lib/k.sh j.sh scripts/m; do plant $f; done; for f in e src/f.js dist/g.js node_modules/h l.sh src/n; do echo mine > $f; done; rm -r dist node_modules",
			after:  "for f in scripts/a scripts/b.sh lib/c.sh d.py bin/i lib/k.sh j.sh scripts/m; do sh ./$f; done; grep -q mine e && grep -q mine src/f.js && grep -q mine l.sh && grep -q mine src/n && ! test -e dist && ! test -e node_modules || touch $W/executed"},
		"a directory of PATH that is not there": {
			before: "true", inside: "plant bin/ls", after: "PATH=$W/bin:$PATH; ls",
			set: func(p *profile.Profile) { p.PersonsPath = []string{p.Home + "/work/bin", "/usr/bin", "/bin"} }},
		"a relative directory of PATH, and the one where one is": {
			before: "mkdir d", inside: "plant ls; plant d/id; plant d/rel/cat; mkdir wc; plant bin/mine", after: "test -d wc || touch $W/executed; PATH=.:rel:$PATH; ls; cd d; id; cat /dev/null",
			set: func(p *profile.Profile) { p.PersonsPath = []string{".", "rel", "/usr/bin", "/bin"} }},
		"plain names behind a program of settings": {
			before: "git init -q; mkdir dir; echo x > rules; git config core.fsmonitor 'awk -f rules dir'; git config filter.a.clean 'tool -crules2 --with=rules3 x:rules4'", inside: "plant rules; plant rules2; plant rules3; plant rules4; echo > dir/rules2; mkdir tool",
			after: "for f in rules rules2 rules3 rules4; do sh ./$f; done; test -e dir/rules2 || touch $W/executed"},
		"a link in the place of a directory of PATH": {
			before: "mkdir bin", inside: "plant b2/ls; rmdir bin; ln -s b2 bin", after: "PATH=$W/bin:$PATH; ls",
			set: func(p *profile.Profile) { p.PersonsPath = []string{p.Home + "/work/bin", "/usr/bin", "/bin"} }},
		"a file where a .git of an earlier command leads": {
			before: "git init -q $HOME/o; git -C $HOME/o config core.fsmonitor tools/fm", earlier: "mkdir x; touch f; echo gitdir: ../f > x/.git",
			inside: "rm f; ln -s $HOME/o/.git f; plant x/tools/fm", after: "cd x; git status"},
		"the repository is a link out of the workspace": {
			before: "git init -q $HOME/o; mv $HOME/o/.git $HOME/git; ln -s $HOME/git .git; mkdir .hk; git config core.hooksPath .hk; git config core.fsmonitor tools/fm",
			inside: "plant .hk/pre-commit; plant tools/fm", after: "git status; " + commits},
		"programs and hooks of another directory, that were there, by a file .git that leads to them": {
			before: "git init -q; mkdir -p tools x/tools x/.hk; echo true > x/tools/fm; echo true > x/.hk/pre-commit; chmod +x x/tools/fm x/.hk/pre-commit; git config core.fsmonitor tools/fm; git config core.hooksPath .hk",
			inside: "echo gitdir: ../.git > x/.git; plant x/tools/fm; plant x/.hk/pre-commit", after: "cd x; git status; " + commits},
		"a link deep in a protected directory": {
			before: "mkdir -p .husky/_/a/b/c; ln -s ../../../../../s/h .husky/_/a/b/c/h; mkdir s; touch s/h", inside: "plant s/h", after: "sh .husky/_/a/b/c/h"},
		"a program before others in PATH": {
			before: "mkdir bin", inside: "plant bin/ls; plant bin/mine", after: "PATH=$W/bin:$PATH; ls",
			set: func(p *profile.Profile) {
				p.PersonsPath = []string{p.Home + "/work/bin", "/usr/bin", "/bin", "/nowhere"}
			}},
		"a worktree below the workspace, of a repository elsewhere": {
			before: "git init -q $HOME/main; cd $HOME/main; mkdir .hk; echo true > .hk/pre-commit; chmod +x .hk/pre-commit; git config core.hooksPath .hk; git add .; git commit -qm i; git worktree add -q $W/wt",
			inside: "plant wt/.hk/pre-commit; plant wt/.hk/post-commit", after: "cd wt; " + commits},
		"a file where a directory would be, and a hook is a link into that": {
			before: "git init -q; ln -s ../../scripts/pc .git/hooks/pre-commit", earlier: "echo x > scripts", inside: "rm scripts; plant scripts/pc"},
		"a file where a directory would be, and settings include one in it": {
			before: "git config --global include.path $W/cfg/gc", earlier: "echo x > cfg", inside: "rm cfg; mkdir cfg; settings cfg/gc", after: "git init -q $HOME/o; cd $HOME/o; git status"},
		"a file where a directory would be, and the shell's file is a link into that": {
			before: "ln -s work/dot/rc $HOME/.bashrc", earlier: "echo x > dot", inside: "rm dot; plant dot/rc", after: "sh $HOME/.bashrc"},
		"a directory without rights where a hook that is a link leads": {
			before: "git init -q; ln -s ../../scripts/pc .git/hooks/pre-commit", earlier: "mkdir -m 0 scripts", inside: "chmod 755 scripts; plant scripts/pc"},
		"a directory where a hook that is a link leads": {
			before: "git init -q; ln -s ../../scripts/pc .git/hooks/pre-commit", earlier: "mkdir -p scripts/pc; touch scripts/pc/.clai-sandbox-aside-aaaaaaaaaaaa scripts/pc/x", inside: "rm -r scripts; plant scripts/pc"},
		"a directory of the person's where a hook that is a link leads": {
			before: "git init -q; ln -s ../../scripts/pc .git/hooks/pre-commit; mkdir -p scripts/pc; echo x > scripts/pc/x", inside: "rm -r scripts/pc; plant scripts/pc"},
		"a directory where a program would be": {
			before: "git init -q; git config core.fsmonitor tools/fm", earlier: "mkdir -p tools/fm; touch tools/fm/.clai-sandbox-aside-aaaaaaaaaaaa", inside: "rm -r tools; plant tools/fm", after: "git status"},
		"a hook's link leaves a directory that is not there": {
			before: "git init -q; ln -s ../../build/../scripts/pc .git/hooks/pre-commit", inside: "mkdir build; plant scripts/pc"},
		"it leaves one in whose place a link comes": {
			before: "git init -q; mkdir build; ln -s ../../build/../scripts/pc .git/hooks/pre-commit", inside: "rmdir build; mkdir -p other/build; ln -s other/build build; plant other/scripts/pc"},
		"another directory in the place of the one where a hook's target would be": {
			before: "git init -q; mkdir scripts; ln -s ../../scripts/pc .git/hooks/pre-commit", inside: "mv scripts s; rmdir scripts; plant other/pc; ln -s other scripts"},
		"a program of settings, in a worktree that the command adds": {
			before: "git init -q; mkdir scripts; printf '#!/bin/sh\\ncat\\n' > scripts/clean; chmod +x scripts/clean; echo '*.txt filter=f' > .gitattributes; echo t > t.txt; git config filter.f.clean scripts/clean; git config diff.external 'sh ./scripts/clean'; git add .; git commit -qm t",
			inside: "git worktree add -q x; cd x; plant scripts/clean; echo u > t.txt", after: "cd x; git status; git diff"},
		"a program of settings, by a file .git that leads to them": {
			before: "git init -q; git config core.fsmonitor tools/fm", inside: "mkdir x; echo gitdir: ../.git > x/.git; plant x/tools/fm", after: "cd x; git status"},
		"a program of the person's settings, in a repository that the command makes": {
			before: "git config --global core.fsmonitor ./tools/fm", inside: "git init -q n; plant n/tools/fm", after: "cd n; git status"},
		"a script of the person's settings, in a repository that the command makes": {
			before: "git config --global filter.f.clean 'sh tools/clean'", inside: "git init -q n; cd n; plant tools/clean; echo '*.txt filter=f' > .gitattributes; echo t > t.txt", after: "cd n; git add ."},
		"a script that only another branch has": {
			before: "git init -q; git commit -q --allow-empty -m i; git config filter.f.clean 'sh tools/clean'; git switch -qc other; mkdir tools; echo cat > tools/clean; echo '*.txt filter=f' > .gitattributes; git add .; git commit -qm o; git switch -q main",
			inside: "git worktree add -q x other; plant x/tools/clean; echo t > x/t.txt", after: "cd x; git add ."},
		"a program with a space": {
			before: "git init -q; mkdir 'my tools'; echo true > 'my tools/fm'; chmod +x 'my tools/fm'; git config core.fsmonitor '\"my tools/fm\"'; git config core.sshCommand 'my\\ tools/ssh'",
			inside: "plant 'my tools/fm'; plant 'my tools/ssh'", after: "git status; git fetch a:b"},
		"a program behind another command's output": {
			before: "git init -q; mkdir tools; echo cat > tools/clean; chmod +x tools/clean; git config filter.f.clean '$(git rev-parse --show-toplevel)/tools/clean'",
			inside: "plant tools/clean; echo '*.txt filter=f' > .gitattributes; echo t > t.txt", after: "git add ."},
		"a program behind a variable": {
			before: "git init -q; mkdir tools; echo cat > tools/clean; chmod +x tools/clean; git config filter.f.clean '${HOME}/work/tools/clean'; git config core.fsmonitor '${PWD}/tools/st'",
			inside: "plant tools/clean; plant tools/st; echo '*.txt filter=f' > .gitattributes; echo t > t.txt", after: "git add ."},
		"a program in a directory to which a command of settings goes": {
			before: "git init -q; mkdir tools; echo cat > tools/clean; chmod +x tools/clean; git config filter.f.clean '(cd tools && ./clean)'; git config core.fsmonitor 'cd tools; sh st'",
			inside: "plant tools/clean; plant tools/st; echo '*.txt filter=f' > .gitattributes; echo t > t.txt", after: "git add ."},
		"hooks beside the working tree, of a worktree that the command adds": {
			before: "git init -q; git commit -q --allow-empty -m i; git config core.hooksPath ../h", inside: "mkdir -p x/y; git worktree add -q x/y/w; plant x/y/h/pre-commit", after: "cd x/y/w; " + commits},
		"a git directory whose working tree is elsewhere in the workspace": {
			before: "git init -q --bare meta; mkdir -p src/tools; git -C meta config core.bare false; git -C meta config core.worktree $W/src; git -C meta config core.fsmonitor ./tools/fm; echo true > src/tools/fm; chmod +x src/tools/fm",
			inside: "plant src/tools/fm", after: "git --git-dir=meta status"},
		"a git directory in the home whose working tree is the workspace": {
			before: "git init -q --bare $HOME/.cfg; mkdir -p tools; git -C $HOME/.cfg config core.bare false; git -C $HOME/.cfg config core.worktree $W; git -C $HOME/.cfg config core.fsmonitor tools/fm; git -C $HOME/.cfg config core.hooksPath .hk; echo true > tools/fm; chmod +x tools/fm",
			inside: "plant tools/fm; plant .hk/pre-commit", after: "git --git-dir=$HOME/.cfg status; git --git-dir=$HOME/.cfg commit -q --allow-empty -m x"},
		"one in the home, by another path, whose working tree is above": {
			before: "git init -q --bare $HOME/.local/share/yadm/repo.git; cd $HOME/.local/share/yadm/repo.git; git config core.bare false; git config core.worktree ../../../..; git config core.fsmonitor work/tools/fm; mkdir -p $W/tools; echo true > $W/tools/fm; chmod +x $W/tools/fm",
			inside: "plant tools/fm", after: "cd ..; git --git-dir=$HOME/.local/share/yadm/repo.git status"},
		"a push by an old way to name a remote": {
			before: "git init -q; git commit -q --allow-empty -m x; git init -q --bare $HOME/other.git",
			inside: "mkdir -p .git/remotes; printf 'URL: %s/other.git\\n' $HOME > .git/remotes/up", after: "git push -q up main && touch $W/executed"},
	} {
		for _, way := range []string{"watched", "by rules"} {
			if way == "by rules" && (c.earlier != "" || c.below != "" || strings.Contains(c.after, "lib/mine")) { // no rule applies a new program
				continue // those are about what a command could write before
			}
			t.Run(name+" "+way, func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := newHost(t)
				home, work := h.profile.Home, h.profile.Workspace
				functions := `export W='` + work + `' HOME='` + home + `'
plant() { mkdir -p "$(dirname "$1")"; printf '#!/bin/sh\ntouch %s/executed %s/executed\n' "$W" "$HOME" > "$1"; chmod +x "$1"; }
settings() { printf '[core]\n\tfsmonitor = touch %s/executed; false\n[alias]\n\tst = !touch %s/executed\n' "$HOME" "$HOME" > "$1"; }
`
				person := func(script string) {
					cmd := exec.Command("sh", "-c", functions+script+"\ntrue")
					cmd.Dir, cmd.Env = work, h.gitEnvironment()
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Fatalf("%s: %v %s", script, err, out)
					}
				}
				h.write(home+"/.gitconfig", "[init]\n\tdefaultBranch = main\n")
				person(c.before)
				os.Remove(work + "/executed")
				os.Remove(home + "/executed")
				if c.set != nil {
					c.set(&h.profile)
				}
				if c.below != "" {
					h.profile.Workspace, h.profile.WorkingDirectory = work+"/"+c.below, work+"/"+c.below
					h.profile.Grants[1].Path = h.profile.Workspace
				}
				if way == "by rules" {
					h.copying()
				}
				if c.earlier != "" {
					h.run("/bin/sh", "-c", functions+c.earlier)
				}
				r := h.run("/bin/sh", "-c", functions+"{ "+c.inside+"; } 2>&1; ls -la; true")
				if way == "by rules" {
					h.applyAll(t)
				}
				after := c.after
				if after == "" {
					after = commits
				}
				person(after)
				for _, file := range []string{work, home} {
					if _, err := os.Lstat(file + "/executed"); err == nil {
						t.Errorf("the host executed it; inside: %s\ntold: %v", r.Out, r.Notices)
					}
				}
				if strings.Contains(c.inside, "bin/mine") && way == "watched" { // what can be executed is a person's to apply
					if _, err := os.Lstat(work + "/bin/mine"); err != nil {
						t.Error("a program of its own was not made")
					}
				}
			})
		}
	}
}

// applyAll applies what a rule applies that has everything.
func (h *host) applyAll(t *testing.T) {
	t.Helper()
	all, err := profile.ParseChangePattern("**")
	if err != nil {
		t.Fatal(err)
	}
	list, err := review.List(filepath.Dir(filepath.Dir(h.profile.Layers)))
	for _, l := range list {
		l.Rules = &profile.ChangeRules{Apply: []profile.ChangePattern{all}, Deletions: profile.DeletionsApply}
		l.Leads = ExecutedIn(h.profile, l.Path, Host{})
		var result *review.Result
		waitUntil(t, "no process that another test starts has the layer's lock", func() bool {
			result, err = l.Apply(t.Context(), review.Selection{ByRules: true})
			held := (*review.InUseError)(nil)
			return !errors.As(err, &held)
		})
		if err != nil {
			t.Errorf("%+v %v", result, err)
		} else if testing.Verbose() {
			t.Logf("%q", result.Applied)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
