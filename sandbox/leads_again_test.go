package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// What the person names in the workspace while a session goes on is protected before its next
// command begins. In the scripts, $W is the workspace, $HOME the home, plant writes a program,
// settings a file of git's settings that executes one.
func TestWhatThePersonNamesDuringASessionIsProtected(t *testing.T) {
	needMounts(t)
	const commits = "git add -A; git commit -q --allow-empty -m x"
	for name, c := range map[string]struct {
		before string // the person, before the session
		first  string // a command of the session
		names  string // the person
		inside string // another command
		after  string // the person
		stays  string // what the command may write even so
		set    func(p *profile.Profile)
	}{
		"a filter's program": {before: "mkdir tools; echo cat > tools/clean; echo '*.txt filter=f' > .gitattributes; echo t > t.txt; git add .; git commit -qm t",
			names: "git config filter.f.clean 'sh tools/clean'", inside: "echo 'touch $HOME/executed; cat' > tools/clean; plant tools/clean; plant tools/other; echo u > t.txt", after: "git add .", stays: "tools/other"},
		"a program that is not there yet":               {names: "git config core.fsmonitor tools/fm", inside: "plant tools/fm", after: "git status"},
		"in another directory that has taken its place": {before: "mkdir tools; echo true > tools/fm; chmod +x tools/fm", names: "git config core.fsmonitor tools/fm", inside: "mv tools t; mkdir tools; plant x; mv x tools/fm", after: "git status"},
		"by a link":                          {before: "mkdir tools; echo true > tools/fm; chmod +x tools/fm", names: "git config core.fsmonitor tools/fm", inside: "mv tools t; mkdir e; plant e/fm; ln -s e tools", after: "git status"},
		"after the person has replaced it":   {before: "mkdir tools; echo true > tools/fm; chmod +x tools/fm", names: "git config core.fsmonitor tools/fm; cp tools/fm n; mv n tools/fm", inside: "plant tools/fm", after: "git status"},
		"settings that are included":         {before: "touch gc", names: "git config include.path ../gc", inside: "settings gc", after: "git status"},
		"what these include":                 {before: "touch more; git config --global include.path $W/gc", names: "git config -f $W/gc include.path more", inside: "settings more", after: "git status"},
		"settings of the person's own":       {before: "touch gc", names: "git config --global include.path $W/gc", inside: "settings gc", after: "git status"},
		"settings where there were none":     {names: "mkdir -p $HOME/.config/git; git config -f $HOME/.config/git/config include.path $W/gc", inside: "settings gc", after: "git status"},
		"hooks":                              {before: "mkdir hk; echo true > hk/pre-commit; chmod +x hk/pre-commit", names: "git config core.hooksPath hk", inside: "plant hk/pre-commit; plant hk/post-commit"},
		"hooks, in a directory held open":    {before: "mkdir hk; echo true > hk/pre-commit; chmod +x hk/pre-commit", first: "cd hk; exec >/dev/null 2>&1; { until test -e ../go; do sleep 0.01; done; plant ./pre-commit; plant ./post-commit; touch $W/went; } & :", names: "git config core.hooksPath hk", inside: "touch go; i=0; until test -e went || test $i = 200; do sleep 0.01; i=$((i+1)); done"},
		"a program that is open":             {before: "echo true > fm; chmod +x fm", first: "exec >/dev/null 2>&1 3>>fm; { until test -e go; do sleep 0.01; done; echo 'touch $W/executed' >&3; touch went; } & :", names: "git config core.fsmonitor ./fm", inside: "touch go; i=0; until test -e went || test $i = 200; do sleep 0.01; i=$((i+1)); done", after: "git status"},
		"a program that is open for reading": {before: "echo true > fm; chmod +x fm", first: "exec >/dev/null 2>&1 3<fm; { until test -e go; do sleep 0.01; done; echo 'touch $W/executed' > /proc/self/fd/3; touch went; } & :", names: "git config core.fsmonitor ./fm", inside: "touch go; i=0; until test -e went || test $i = 200; do sleep 0.01; i=$((i+1)); done", after: "git status"},
		"hooks that have other names":        {before: "mkdir hk; echo true > hk/pre-commit; chmod +x hk/pre-commit", first: "ln hk/pre-commit x; mkdir y; ln x y/z", names: "git config core.hooksPath hk", inside: "plant x; plant y/z"},
		"a program that has another name":    {before: "echo true > fm; chmod +x fm", first: "ln fm x", names: "git config core.fsmonitor ./fm", inside: "plant x", after: "git status"},
		"a hook is a link":                   {before: "touch pc; chmod +x pc", names: "ln -s ../../pc .git/hooks/pre-commit", inside: "plant pc"},
		"a shell's file":                     {before: "touch rc", names: "ln -s work/rc $HOME/.bashrc", inside: "plant rc", after: "sh $HOME/.bashrc"},
		"a shell's file that is not there":   {names: "ln -s work/rc $HOME/.bashrc", inside: "plant rc", after: "sh $HOME/.bashrc"},
		"settings of a program":              {before: "mkdir -p $HOME/.config/some; touch some.toml", names: "ln -s $W/some.toml $HOME/.config/some/config", inside: "plant some.toml", after: "sh $HOME/.config/some/config"},
		"settings of a program new to home":  {before: "touch some.toml", names: "mkdir -p $HOME/.config/some; ln -s $W/some.toml $HOME/.config/some/config", inside: "plant some.toml", after: "sh $HOME/.config/some/config"},
		"a directory of PATH": {before: "mkdir b", names: "ln -s work/b $HOME/b", inside: "plant b/ls; plant b/mine", after: "PATH=$HOME/b:$PATH; ls", stays: "b/mine",
			set: func(p *profile.Profile) { p.PersonsPath = []string{p.Home + "/b", "/usr/bin", "/bin"} }},
		"a protected name is a link": {before: "touch env", names: "ln -s env .envrc", inside: "plant env", after: "sh ./.envrc"},
	} {
		t.Run(name, func(t *testing.T) {
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
			person("git init -q; " + c.before)
			if c.set != nil {
				c.set(&h.profile)
			}
			s := h.openSession()
			s.sh(t, functions+c.first)
			person(c.names)
			if p, err := s.Start(Command{Argv: []string{"sh", "-c", functions + c.inside}}); err == nil { // it may be ended
				p.Wait()
			}
			s.Close()
			result, err := s.Result()
			if c.after == "" {
				c.after = commits
			}
			person(c.after)
			for _, file := range []string{work, home} {
				if _, err := os.Lstat(file + "/executed"); err == nil {
					t.Errorf("the host executed it; told: %v", result.Notices)
				}
			}
			if _, err := os.Lstat(work + "/" + c.stays); err != nil {
				t.Error("an ordinary file was not made")
			}
			if err != nil || len(result.Notices) == 0 {
				t.Errorf("nothing was told: %v", err)
			}
		})
	}
}

// In a run that goes on, it is protected as soon as the kernel tells of the change.
func TestWhatThePersonNamesDuringARunIsProtected(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	work := h.profile.Workspace
	h.write(work+"/tools/fm", "#!/bin/sh\n")
	h.launcher.Control = &Control{}
	h.git(work, "init", "-q")
	result := make(chan ran, 1)
	go func() {
		result <- h.run("/bin/sh", "-c", "touch ready; until test -e done; do sleep 0.01; done; rm ready done; echo x > tools/fm; mv tools t; mkdir tools; echo y > tools/fm; echo z > tools/ls")
	}()
	waitUntil(t, "the command runs", func() bool { _, err := os.Stat(work + "/ready"); return err == nil })
	leads := h.launcher.Control.attempt.Load().leads
	waitUntil(t, "it is looked after", func() bool { leads.mu.Lock(); defer leads.mu.Unlock(); return leads.begun })
	h.git(work, "config", "core.fsmonitor", "tools/fm")
	waitUntil(t, "it is protected", func() bool { leads.mu.Lock(); defer leads.mu.Unlock(); return leads.guards[work+"/tools/fm"] })
	h.write(work+"/done", "")
	r := <-result
	if text, _ := os.ReadFile(work + "/t/fm"); string(text) != "#!/bin/sh\n" {
		t.Errorf("%q", text)
	}
	if _, err := os.Lstat(work + "/tools/fm"); err == nil {
		t.Error("another one is in its place")
	}
	if _, err := os.Lstat(work + "/tools/ls"); err != nil {
		t.Error(err)
	}
	if told := fmt.Sprint(r.Notices); !strings.Contains(told, "set aside: "+work+"/tools/fm") {
		t.Error(told)
	}
}

// A directory that the person names while a command runs becomes read-only, and stays where it is,
// whatever is in it.
func TestADirectoryThatThePersonNamesDuringARunStays(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	work, home := h.profile.Workspace, h.profile.Home
	h.write(work+"/tools/pre-commit", "mine\n")
	h.write(work+"/tools/deep/er", "mine\n")
	os.MkdirAll(work+"/tools/empty/er", 0o755)
	h.write(work+"/conf/settings", "mine\n")
	h.launcher.Control = &Control{}
	h.git(work, "init", "-q")
	result := make(chan ran, 1)
	go func() {
		result <- h.run("/bin/sh", "-c", "exec 3<>tools/pre-commit; ln tools/deep/er x; touch ready; until test -e done; do sleep 0.01; done; rm ready done; echo x >&3; echo x > x; echo x > tools/pre-commit; echo y > tools/post-commit; mkdir tools/more; echo z > ok")
	}()
	waitUntil(t, "the command runs", func() bool { _, err := os.Stat(work + "/ready"); return err == nil })
	leads := h.launcher.Control.attempt.Load().leads
	waitUntil(t, "it is looked after", func() bool { leads.mu.Lock(); defer leads.mu.Unlock(); return leads.begun })
	h.git(work, "config", "core.hooksPath", "tools")
	waitUntil(t, "it is protected", func() bool { leads.mu.Lock(); defer leads.mu.Unlock(); return leads.guards[work+"/tools"] })
	os.MkdirAll(home+"/.config", 0o755)
	if err := os.Symlink(work+"/conf", home+"/.config/nvim"); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it is protected, too", func() bool { leads.mu.Lock(); defer leads.mu.Unlock(); return leads.guards[work+"/conf"] })
	h.write(work+"/done", "")
	r := <-result
	for _, path := range []string{"/tools/pre-commit", "/tools/deep/er", "/conf/settings"} {
		if text, err := os.ReadFile(work + path); string(text) != "mine\n" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if _, err := os.Stat(work + "/tools/empty/er"); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/tools/post-commit", "/tools/more"} {
		if _, err := os.Stat(work + path); err == nil {
			t.Error(path, "was made")
		}
	}
	if _, err := os.Stat(work + "/ok"); err != nil {
		t.Error(err, r.Notices)
	}
}

// With --protect-mode strict, what is looked through at the end is looked through by what the
// person names then.
func TestStrictGoesByWhatThePersonNamesAtTheEnd(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.strict()
	work := h.profile.Workspace
	h.git(work, "init", "-q")
	h.write(work+"/tools/fm", "#!/bin/sh\n")
	plan := h.lookOut()
	h.git(work, "config", "core.fsmonitor", "tools/fm")
	h.git(work, "config", "include.path", "../gc")
	var errs strings.Builder
	if _, err := h.launcher.Run(context.Background(), plan, []string{"/bin/sh", "-c", "echo evil > tools/fm; echo evil > gc; echo good > file"}, Stdio{Err: &errs}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(work + "/tools/fm"); string(text) != "#!/bin/sh\n" {
		t.Errorf("%q %s", text, errs.String())
	}
	if _, err := os.Lstat(work + "/gc"); err == nil {
		t.Error("included settings were brought")
	}
	if _, err := os.Lstat(work + "/file"); err != nil {
		t.Error(err)
	}
}

// What git makes in its own directory while a command runs, and writes again later, is looked after
// as what comes into being is: nobody named it.
func TestWhatGitMakesIsNothingThatThePersonNames(t *testing.T) {
	const looked = "sleep 0.4" // the watch begins after leadsAfter, and looks again when something has changed
	for name, line := range map[string]string{
		"settings of a worktree": "git sparse-checkout set a && " + looked + " && git sparse-checkout disable && " + looked + " && git sparse-checkout set a",
		"a worktree":             "git worktree add -q tree && " + looked + " && cd tree && git commit -q --allow-empty -m there && git config user.name 'A B'",
		"a submodule":            "git -c protocol.file.allow=always submodule --quiet add REMOTE lib && " + looked + " && cd lib && git config user.name 'A B' && git checkout -q -b x",
	} {
		t.Run(name, func(t *testing.T) {
			needMounts(t)
			t.Parallel()
			h, remote := settingsHost(t)
			r := h.run("/bin/sh", "-c", looked+"; { "+strings.ReplaceAll(line, "REMOTE", "file://"+remote)+"; } 2>&1")
			if r.Failure != nil || r.ExitCode != 0 || len(r.Notices) != 0 {
				t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Out, r.Notices)
			}
		})
	}
}

// What was awaited is set aside when the command makes it, however it does, and never becomes what
// was there before, because a look that the making itself brings about finds it there.
func TestWhatIsAwaitedIsNotTakenForThePersonsWhenItComesIntoBeing(t *testing.T) {
	for name, c := range map[string]struct {
		before, made string
		set          func(p *profile.Profile)
	}{
		"a file of a variable":       {"true", "kc", func(p *profile.Profile) { p.PersonsNamed = []string{p.Home + "/work/kc"} }},
		"settings that are included": {"git config --global include.path $W/gc", "gc", nil},
		"what a link leads to":       {"ln -s work/rc $HOME/.bashrc", "rc", nil},
		"what a hook leads to":       {"git init -q; ln -s ../../pc .git/hooks/pre-commit", "pc", nil},
		"hooks":                      {"git config --global core.hooksPath $W/hk", "hk/pre-commit", nil},
		"a filter's program":         {"git init -q; git config filter.x.clean tools/x", "tools/x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			needMounts(t)
			t.Parallel()
			h := newHost(t)
			work := h.profile.Workspace
			h.write(h.profile.Home+"/.gitconfig", "[init]\n\tdefaultBranch = main\n")
			cmd := exec.Command("sh", "-c", "W="+work+"; HOME="+h.profile.Home+"; "+c.before)
			cmd.Dir, cmd.Env = work, h.gitEnvironment()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			if c.set != nil {
				c.set(&h.profile)
			}
			// The looks that the making brings about come while it goes on.
			r := h.run("/bin/sh", "-c", `sleep 0.15; mkdir -p n; for i in 1 2 3; do mkdir -p n/d; echo x > n/d/$(basename `+c.made+`)
if test `+c.made+` = hk/pre-commit; then mv n/d hk; else mkdir -p $(dirname `+c.made+`); mv n/d/* `+c.made+`; fi; sleep 0.05; done`)
			if r.Failure != nil || r.Outcome != Exited {
				t.Errorf("%v %s %v", r.Failure, r.Outcome, r.Notices)
			}
			if _, err := os.Lstat(work + "/" + c.made); err == nil {
				t.Errorf("it is there: %v", r.Notices)
			}
		})
	}
}

// What is not there when it comes to be named is set aside when a command makes it, and never taken
// for the person's by a later look.
func TestWhatACommandMakesUnderANameIsNotThePersons(t *testing.T) {
	for name, c := range map[string]struct {
		before string // the person; $W is the workspace
		made   string // the command, where the watch has not seen it yet
		awaits string
		set    func(p *profile.Profile)
	}{
		"a file that a variable names":      {made: "echo x > kc", awaits: "kc", set: func(p *profile.Profile) { p.PersonsNamed = []string{p.Workspace + "/kc"} }},
		"a link in its place":               {made: "echo x > f; ln -s f kc", awaits: "kc f", set: func(p *profile.Profile) { p.PersonsNamed = []string{p.Workspace + "/kc"} }},
		"included settings":                 {before: "git config --global include.path $W/inc", made: "echo x > more; printf '[include]\n\tpath = more\n' > inc", awaits: "inc more"},
		"what a shell's file leads to":      {before: "ln -s work/dot/rc $HOME/.bashrc", made: "mkdir dot; echo x > dot/rc", awaits: "dot/rc"},
		"a directory of hooks":              {before: "git config core.hooksPath tools/hooks", made: "mkdir -p tools/hooks; echo x > f; ln -s ../../f tools/hooks/pre-commit", awaits: "tools/hooks f"},
		"where a hook that is a link leads": {before: "ln -s ../../pc .git/hooks/pre-commit", made: "echo x > pc", awaits: "pc"},
		"a program of settings":             {before: "git config core.fsmonitor tools/fm", made: "mkdir tools; echo x > tools/fm", awaits: "tools/fm"},
		"a file in a directory's place":     {before: "mkdir d; git config core.fsmonitor ./d", made: "rmdir d; echo x > d", awaits: "d"},
		"what a link there leads to":        {before: "git config core.fsmonitor ./d/fm", made: "mkdir e; echo x > e/fm; ln -s e d", awaits: "d e/fm"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			work := h.profile.Workspace
			script := func(script string) {
				cmd := exec.Command("sh", "-c", "export W='"+work+"' HOME='"+h.profile.Home+"'\n"+script)
				cmd.Dir, cmd.Env = work, h.gitEnvironment()
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v %s", script, err, out)
				}
			}
			script("git init -q; " + c.before)
			if c.set != nil {
				c.set(&h.profile)
			}
			l := newLeadsWatch(nil, h.lookOut().Protection)
			l.follow(l.protection)
			script(c.made)
			found, err := l.protection.look(&sources{used: func(dir, name string) {}, awaits: l.awaits})
			if err != nil {
				t.Fatal(err)
			}
			for path := range strings.FieldsSeq(c.awaits) {
				if path = work + "/" + path; found.guards[path] || found.known[path] {
					t.Errorf("%s is taken for the person's: read-only %t, known %t", path, found.guards[path], found.known[path])
				}
			}
		})
	}
}
