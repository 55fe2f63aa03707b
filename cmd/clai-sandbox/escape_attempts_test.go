package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What stops the attempts, in the words of docs/security.md.
const (
	byMounts    = "mount namespace"
	byHidden    = "hidden paths"
	byProtected = "protected paths"
	byAside     = "protected paths: set aside"
	byAnchor    = "protected paths: an anchor"
	byOwn       = "masks over our own files"
	byFilter    = "seccomp filter"
	byUser      = "user namespace, no capabilities"
	byReadOnly  = "read-only mounts"
	byProcess   = "process id namespace"
	byIPC       = "ipc namespace"
	byNetwork   = "network namespace"
	byScope     = "Landlock scopes"
	byBus       = "filter before the session bus"
	byLaunch    = "the launcher"
)

// python wraps a script for sh -c.
func python(script string) string { return "python3 - <<'EOF'\n" + script + "\nEOF" }

// call is a script that makes one system call, and exits with 0 if the kernel does it, or would if
// its arguments were right: what a filter refuses, it refuses before it looks at them.
func call(number, arguments string) string {
	return python(`import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
buffer = ctypes.create_string_buffer(4096)
r = libc.syscall(ctypes.c_long(` + number + `), ` + arguments + `)
e = ctypes.get_errno()
print(r, errno.errorcode.get(e))
sys.exit(r < 0 and e in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EACCES))`)
}

// perArch is a system call's number on the two architectures that there is a filter for.
func perArch(amd64, arm64 int) string {
	return fmt.Sprintf("{'x86_64': %d, 'aarch64': %d}[os.uname().machine]", amd64, arm64)
}

func contains(path, text string) func(p *place) bool {
	return func(p *place) bool {
		content, _ := os.ReadFile(os.Expand(path, p.lookup))
		return strings.Contains(string(content), text)
	}
}

func (p *place) lookup(name string) string {
	for _, v := range append(p.vars, p.environment()...) {
		if value, found := strings.CutPrefix(v, name+"="); found {
			return value
		}
	}
	return ""
}

func says(text string) func(p *place) bool {
	return func(p *place) bool { return strings.Contains(p.out, text) }
}

func made(path string) func(p *place) bool {
	return func(p *place) bool { return exists(os.Expand(path, p.lookup)) }
}

// dirty reports what git sees on the host that was not there.
func dirty(path string) func(p *place) bool {
	return func(p *place) bool {
		status := p.sh("git status --porcelain --ignored")
		return made(path)(p) && len(status) > 0
	}
}

const kernelRefuses = "this kernel may refuse it by itself"

var attempts = slicesOf(
	outside, secrets, ownFiles, executedLater, madeForOthers, environment, ipc, bus, network, kernel, namespaces, machine, launcher)

func slicesOf(lists ...[]attempt) (all []attempt) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

var outside = []attempt{
	{class: "files outside", title: "read what was not granted", command: `cat "$OUT/secret"`, by: byMounts},
	{class: "files outside", title: "write where nothing was granted", command: `echo x > "$OUT/new"`, through: made("$OUT/new"), by: byMounts},
	{class: "files outside", title: "write in the readable home", command: `echo x > ~/new`, through: made("$HOME/new"), by: byReadOnly},
	{class: "files outside", title: "make a file writable first", command: `chmod u+w ~/notes; echo changed > ~/notes`, through: contains("$HOME/notes", "changed"), by: byReadOnly},
	{class: "files outside", title: "through the root of another process", command: `for p in /proc/[0-9]*; do cat "$p/root$OUT/secret" 2>/dev/null && exit 0; done; exit 1`, by: byProcess},
	{class: "files outside", title: "through a symbolic link in the workspace", command: `ln -s "$OUT/secret" link && cat link`, by: byMounts},
	{class: "files outside", title: "through .. out of the workspace", command: `cat ../../outside/secret`, by: byMounts},
	{class: "files outside", title: "a directory that a command replaced by a link, in the next run", options: []string{"--grant", "$WORK/data/x/secret:ro"},
		prepare: func(p *place) { p.write(p.work+"/data/x/secret", "harmless") },
		command: `mv data/x data/y && ln -s "$OUT" data/x`, again: `cat data/x/secret`, through: says("secret-outside"), refused: true, by: "links in writable places are not followed"},
	{class: "files outside", title: "a read-only grant in the writable workspace, moved away and written there in the next run", options: []string{"--grant", "$WORK/a/fixed:ro"},
		prepare: func(p *place) { p.write(p.work+"/a/fixed/file", "fixed") }, command: `mv a z && echo changed > z/fixed/file; true`,
		again: `for f in a/fixed/file z/fixed/file; do echo changed > $f; done; mv z a; true`, through: contains("$WORK/a/fixed/file", "changed"), by: byMounts},
	{class: "files outside", title: "a granted file that a command replaced by a link, in the next run", options: []string{"--grant", "$WORK/config:rw"},
		prepare: func(p *place) { p.write(p.work+"/config", "harmless") },
		command: `rm config; ln -s "$OUT/secret" config`, again: `cat config`, through: says("secret-outside"), refused: true, by: "links in writable places are not followed"},
	{class: "files outside", title: "a grant named as an option of bwrap", options: []string{"--grant", "$WORK/--bind", "--grant", "$WORK/a\n--bind\n$OUT\n$OUT"},
		prepare: func(p *place) { p.mkdir(p.work + "/--bind"); p.mkdir(p.work + "/a\n--bind\n") }, command: `cat "$OUT/secret"`, by: byLaunch},
	{class: "files outside", title: "a workspace whose name is options", command: `cat "$OUT/secret"`, options: []string{"--workspace", "$WORK/--ro-bind / "},
		prepare: func(p *place) { p.mkdir(p.work + "/--ro-bind / ") }, by: byLaunch},
}

var secrets = func() []attempt {
	list := []attempt{
		{class: "secrets", title: "by a hard link into the workspace", command: `ln ~/.netrc copy && cat copy`, through: says("secret-in-home"), by: byHidden},
		{class: "secrets", title: "by a symbolic link in the workspace", command: `ln -s ~/.netrc l; cat l`, through: says("secret-in-home"), by: byHidden},
		{class: "secrets", title: "with everything below the home read", command: `grep -rl secret-in-home ~ 2>/dev/null`, through: says("/"), by: byHidden},
		{class: "secrets", title: "one that comes into being meanwhile", command: `touch ready; while ! test -e done; do sleep 0.01; done; cat ~/.npmrc`,
			during: func(p *place) { p.write(p.home+"/.npmrc", "secret-in-home") }, through: says("secret-in-home"), by: "entry by entry", mounter: true},
		{class: "secrets", title: "unmounting what hides them", command: `umount ~/.aws; umount -l ~/.aws; cat ~/.aws/credentials`, through: says("secret-in-home"), by: byUser},
	}
	for title, path := range map[string]string{"a private key of ssh": ".ssh/id_ed25519", "passwords in .netrc": ".netrc", "keys to a cloud": ".aws/credentials",
		"the token of gh": ".config/gh/hosts.yml", "what was typed in a shell": ".bash_history", "a browser's passwords": ".mozilla/firefox/x/logins.json",
		"the keyring": ".local/share/keyrings/login.keyring"} {
		list = append(list, attempt{class: "secrets", title: title, command: "cat ~/" + path, through: says("secret-in-home"), by: byHidden})
	}
	sortByTitle(list[5:])
	return list
}()

var ownFiles = []attempt{
	{class: "our own files", title: "read the configuration", command: `cat ~/.config/clai-sandbox/secret`, by: byOwn},
	{class: "our own files", title: "grant itself more, for the next run", command: `chmod 700 ~/.config/clai-sandbox; echo '{}' > ~/.config/clai-sandbox/config.json`, through: made("$HOME/.config/clai-sandbox/config.json"), by: byOwn},
	{class: "our own files", title: "change the state", command: `mkdir -p ~/.local/state/clai-sandbox; echo x > ~/.local/state/clai-sandbox/new`, through: made("$HOME/.local/state/clai-sandbox/new"), by: byOwn},
	{class: "our own files", title: "talk to our sockets", prepare: func(p *place) {
		p.mkdir(p.home + "/run/clai-sandbox")
		p.listen("unix", p.home+"/run/clai-sandbox/broker")
	}, command: `python3 -c 'import os,socket; s=socket.socket(socket.AF_UNIX); s.connect(os.environ["HOME"]+"/run/clai-sandbox/broker"); print(s.recv(10))'`,
		through: says("reached"), by: byOwn},
}

func gitRepository(p *place) { p.repository() }

var executedLater = []attempt{
	{class: "executed later", title: "a hook", prepare: gitRepository, command: `echo 'touch "$OUT/run"' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit`, through: made("$WORK/.git/hooks/pre-commit"), by: byProtected},
	{class: "executed later", title: "git's settings", prepare: gitRepository, command: `git config core.fsmonitor 'touch x'`, through: contains("$WORK/.git/config", "fsmonitor"), by: byProtected},
	{class: "executed later", title: ".git renamed aside", prepare: gitRepository, command: `mv .git aside && mkdir -p .git/hooks && echo x > .git/hooks/pre-commit`, through: made("$WORK/.git/hooks/pre-commit"), by: byAnchor},
	{class: "executed later", title: "the hooks renamed aside", prepare: gitRepository, command: `mv .git/hooks .git/h && mkdir .git/hooks && echo x > .git/hooks/pre-commit`, through: made("$WORK/.git/hooks/pre-commit"), by: byProtected},
	{class: "executed later", title: "a hook of a repository four levels deep", prepare: func(p *place) { p.repository(); p.sh("mkdir -p a/b/c/d && git init -q a/b/c/d") },
		command: `echo x > a/b/c/d/.git/hooks/pre-commit`, through: made("$WORK/a/b/c/d/.git/hooks/pre-commit"), by: byProtected},
	{class: "executed later", title: "a directory above it renamed aside", prepare: func(p *place) { p.repository(); p.sh("mkdir -p a/b/c/d && git init -q a/b/c/d") },
		command: `mv a x && mkdir -p a/b/c/d/.git/hooks && echo x > a/b/c/d/.git/hooks/pre-commit`, through: made("$WORK/a/b/c/d/.git/hooks/pre-commit"), by: byAnchor},
	{class: "executed later", title: "another git directory by commondir", prepare: func(p *place) { p.repository(); p.mkdir(p.work + "/evil") }, command: `rm -f .git/commondir; echo ../evil > .git/commondir`, through: contains("$WORK/.git/commondir", "evil"), by: byAside},
	{class: "executed later", title: "the directory of core.hooksPath", prepare: func(p *place) {
		p.repository()
		p.sh("mkdir .githooks && git config core.hooksPath .githooks")
	},
		command: `echo x > .githooks/pre-commit`, through: made("$WORK/.githooks/pre-commit"), by: byProtected},
	{class: "executed later", title: "a file that git's settings include", prepare: func(p *place) {
		p.repository()
		p.sh("echo > team.gitconfig; git config include.path ../team.gitconfig")
	},
		command: `printf '[core]\n\tfsmonitor = x\n' > team.gitconfig`, through: contains("$WORK/team.gitconfig", "fsmonitor"), by: byProtected},
	{class: "executed later", title: "a submodule's hook", prepare: func(p *place) {
		p.sh(`mkdir lib && cd lib && git init -q . && echo 1 > f && git add f && git commit -q -m l`)
		p.repository()
		p.sh("git -c protocol.file.allow=always submodule --quiet add ./lib sub && git commit -q -m sub")
	}, command: `echo x > .git/modules/sub/hooks/post-checkout`, through: made("$WORK/.git/modules/sub/hooks/post-checkout"), by: byProtected},
	{class: "executed later", title: "a worktree's shared settings", options: []string{"--workspace", "$HOME/tree", "--cwd", "$HOME/tree"},
		prepare: func(p *place) { p.repository(); p.sh("git worktree add -q ../tree") },
		command: `cd ../tree && git commit -q --allow-empty -m works || echo "no commit"; git config core.fsmonitor x`, through: contains("$WORK/.git/config", "fsmonitor"), by: byProtected},
	{class: "executed later", title: "a .git that leads out (CVE-2026-87766)", prepare: func(p *place) {
		p.mkdir(p.outside + "/hooks")
		p.sh(`ln -s /oldroot$OUT .git`)
	}, command: `true`, through: func(p *place) bool {
		entries, _ := os.ReadDir(p.outside)
		return len(entries) != 2 || exists(p.outside+"/hooks/pre-commit")
	}, by: "links are not followed out", uncontrolled: "it is about what bwrap itself does"},
	{class: "executed later", title: "an editor's tasks", prepare: func(p *place) { p.write(p.work+"/.vscode/tasks.json", "{}") }, command: `echo evil > .vscode/tasks.json`, through: contains("$WORK/.vscode/tasks.json", "evil"), by: byProtected},
	{class: "executed later", title: "an editor's tasks, by a rename", prepare: func(p *place) { p.write(p.work+"/.vscode/tasks.json", "{}") }, command: `mkdir v && echo evil > v/tasks.json && mv .vscode old && mv v .vscode`, through: contains("$WORK/.vscode/tasks.json", "evil"), by: byProtected},
	{class: "executed later", title: "what a shell starts with, in a writable home", options: []string{"--workspace", "$HOME", "--cwd", "$HOME"},
		prepare: func(p *place) { os.RemoveAll(p.home + "/.config"); os.RemoveAll(p.home + "/.local") },
		command: `echo evil > ~/.bashrc; echo evil > ~/.profile`, through: contains("$HOME/.bashrc", "evil"), refused: true, by: "a directory with our own files is never writable"},
	{class: "executed later", title: "a link in the place of a protected file's directory", prepare: func(p *place) { p.write(p.work+"/sub/.envrc", "") },
		command: `mv sub old && ln -s "$WORK/evil" sub && mkdir evil && echo evil > evil/.envrc`, through: contains("$WORK/sub/.envrc", "evil"), by: byAnchor},
}

var madeForOthers = func() (list []attempt) {
	for _, name := range []string{".envrc", ".mcp.json", ".vscode/tasks.json", ".claude/settings.json", ".codex/config.toml", ".cursor/mcp.json", ".husky/pre-commit", ".idea/workspace.xml",
		".npmrc", ".pre-commit-config.yaml", ".gitconfig"} {
		list = append(list, attempt{class: "made for others", title: name + ", which was not there", prepare: gitRepository,
			command: fmt.Sprintf("mkdir -p $(dirname %s); rm -rf %s; echo evil > %s", name, name, name), through: dirty("$WORK/" + name), by: byAside})
	}
	return append(list, attempt{class: "made for others", title: "hooks, where there were none", prepare: func(p *place) { p.repository(); os.RemoveAll(p.work + "/.git/hooks") },
		command: `mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit`, through: made("$WORK/.git/hooks/pre-commit"), by: byAside})
}()

var environment = []attempt{
	{class: "environment", title: "a token of the caller's", command: `cat /proc/*/environ 2>/dev/null | tr '\0' '\n' | grep CALLERS_SECRET`, by: "only chosen variables"},
	{class: "environment", title: "the environment of process 1", command: `tr '\0' '\n' < /proc/1/environ | grep .`, by: byLaunch, uncontrolled: "process 1 of the host is not the caller's"},
	{class: "environment", title: "the options of process 1", command: `tr '\0' ' ' < /proc/1/cmdline | grep -e --setenv -e "$HOME"`, by: byLaunch, uncontrolled: "process 1 of the host has no such options"},
	{class: "environment", title: "a file that the caller left open", prepare: func(p *place) {
		file, err := os.Open(p.outside + "/secret")
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { file.Close() })
		p.files = []*os.File{file}
	}, command: `cat <&3 || cat /proc/self/fd/3`, through: says("secret-outside"), by: byLaunch},
	{class: "environment", title: "a file open for reading, opened again for writing", byStreams: true, prepare: func(p *place) { p.stdin = p.outside + "/secret" },
		command: `echo changed > /proc/self/fd/0; echo changed > /dev/stdin`, through: contains("$OUT/secret", "changed"), by: "Landlock layer on files"},
	{class: "environment", title: "out by a directory as standard input", prepare: func(p *place) { p.stdin = p.outside },
		command: `cat /proc/self/fd/0/secret`, through: says("secret-outside"), refused: true, by: byLaunch},
	{class: "environment", title: "a library for every program", options: []string{"--env", "LD_PRELOAD=$WORK/evil.so"}, command: `test -n "$LD_PRELOAD"`, refused: true, by: "refused variables", uncontrolled: "the option is ours"},
}

var ipc = []attempt{
	{class: "other processes", title: "end one", prepare: func(p *place) {
		victim := p.start("sleep", "100")
		p.setenv("PID", strconv.Itoa(victim.Process.Pid))
	}, command: `kill -9 "$PID"`, through: func(p *place) bool {
		pid, _ := strconv.Atoi(p.lookup("PID"))
		time.Sleep(20 * time.Millisecond)
		state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return !strings.Contains(string(state), ") S")
	}, by: byProcess},
	{class: "other processes", title: "look into one", prepare: func(p *place) {
		p.setenv("SECRET", "in-the-environment")
		p.setenv("PID", strconv.Itoa(p.start("sleep", "100").Process.Pid))
		p.vars = p.vars[len(p.vars)-1:]
	}, command: `tr '\0' '\n' < "/proc/$PID/environ" | grep in-the-environment`, by: byProcess},
	{class: "other processes", title: "attach a debugger to one", prepare: func(p *place) { p.setenv("PID", strconv.Itoa(p.start("sleep", "100").Process.Pid)) },
		command: python(`import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(libc.ptrace(16, int(os.environ["PID"]), 0, 0) != 0)`), by: byProcess, uncontrolled: "a host may allow it for children only"},
	{class: "other processes", title: "signal all there are", prepare: func(p *place) {
		p.setenv("PID", strconv.Itoa(p.start("sleep", "100").Process.Pid))
	}, command: `kill -TERM -1; true`, through: func(p *place) bool {
		pid, _ := strconv.Atoi(p.lookup("PID"))
		return unix.Kill(pid, 0) != nil
	}, by: byProcess, uncontrolled: "it would end the tests"},
	{class: "sockets", title: "one by its path", prepare: func(p *place) { p.listen("unix", p.outside+"/socket") },
		command: python(`import os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["OUT"] + "/socket"); print(s.recv(10))`), through: says("reached"), by: byMounts},
	{class: "sockets", title: "an abstract one", prepare: func(p *place) {
		p.setenv("NAME", "escape-"+filepath.Base(p.dir))
		p.listen("unix", "@escape-"+filepath.Base(p.dir))
	}, command: python(`import os, socket
s = socket.socket(socket.AF_UNIX); s.connect("\0" + os.environ["NAME"]); print(s.recv(10))`), through: says("reached"), by: byScope},
	{class: "sockets", title: "an abstract one, without a network", options: []string{"--network", "disabled"}, prepare: func(p *place) {
		p.setenv("NAME", "escape-"+filepath.Base(p.dir))
		p.listen("unix", "@escape-"+filepath.Base(p.dir))
	}, command: python(`import os, socket
s = socket.socket(socket.AF_UNIX); s.connect("\0" + os.environ["NAME"]); print(s.recv(10))`), through: says("reached"), by: byNetwork},
	{class: "shared memory", title: "System V", prepare: func(p *place) {
		id := strings.Fields(p.sh("ipcmk -M 64 -p 0600"))
		p.setenv("ID", id[len(id)-1])
		p.t.Cleanup(func() { exec.Command("ipcrm", "-m", id[len(id)-1]).Run() })
	}, command: python(`import ctypes, os, sys
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(int(os.environ["ID"]), None, 0)
sys.exit(at in (None, ctypes.c_void_p(-1).value))`), by: byIPC},
	{class: "shared memory", title: "a file in /dev/shm", prepare: func(p *place) {
		name := "/dev/shm/escape-" + filepath.Base(p.dir)
		p.write(name, "secret-shm")
		p.t.Cleanup(func() { os.Remove(name) })
		p.setenv("SHM", name)
	}, command: `cat "$SHM"`, by: byMounts},
	{class: "other sandboxes", title: "another one's /tmp", prepare: func(p *place) {
		p.setenv("MARK", "/tmp/escape-"+filepath.Base(p.dir))
		p.t.Cleanup(func() { os.Remove(p.lookup("MARK")) })
	}, command: `echo secret > "$MARK"`, again: `cat "$MARK"`, through: says("secret"), by: byMounts},
	{class: "other sandboxes", title: "another one's processes", prepare: func(p *place) {
		p.start(append([]string{"env", "-C", p.work}, ours.argv(p, attempt{}, "touch other; sleep 100; : other-sandbox")...)...)
		for deadline := time.Now().Add(10 * time.Second); !exists(p.work+"/other") && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
	}, command: `grep -qas 'other[-]sandbox' /proc/[0-9]*/cmdline`, by: byProcess},
}

// A session bus with something behind it that starts a program when it is called, as systemd's
// does.
func sessionBus(p *place) {
	p.write(p.dir+"/services/org.freedesktop.systemd1.service", "[D-BUS Service]\nName=org.freedesktop.systemd1\nExec=/usr/bin/touch "+p.outside+"/started\n")
	p.write(p.dir+"/bus.conf", `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=`+p.dir+`/bus</listen><servicedir>`+p.dir+`/services</servicedir>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`)
	p.start("dbus-daemon", "--config-file="+p.dir+"/bus.conf", "--nofork")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("unix", p.dir+"/bus"); err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatal("no session bus")
		}
	}
	p.bus = "unix:path=" + p.dir + "/bus"
}

var bus = []attempt{
	{class: "session bus", title: "a program started by systemd, as by systemd-run --user", prepare: sessionBus,
		command: `dbus-send --session --print-reply --reply-timeout=3000 --dest=org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager.StartTransientUnit; sleep 0.2`, through: made("$OUT/started"), by: byBus},
	{class: "session bus", title: "a service started by name", prepare: sessionBus,
		command: `dbus-send --session --print-reply --reply-timeout=3000 --dest=org.freedesktop.DBus / org.freedesktop.DBus.StartServiceByName string:org.freedesktop.systemd1 uint32:0; sleep 0.2`, through: made("$OUT/started"), by: byBus},
	{class: "session bus", title: "its socket, by its path", prepare: func(p *place) { sessionBus(p); p.setenv("SOCKET", p.dir+"/bus") },
		command: `DBUS_SESSION_BUS_ADDRESS=unix:path=$SOCKET dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.StartServiceByName string:org.freedesktop.systemd1 uint32:0; sleep 0.2`, through: made("$OUT/started"), by: byMounts},
	{class: "session bus", title: "any name, where it is denied", options: []string{"--session-bus", "deny"}, prepare: sessionBus,
		command: `dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames`, by: "no bus"},
}

const connectTCP = `import os, socket
s = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 3); print(s.recv(10))`

var network = []attempt{
	{class: "network off", title: "the host's loopback by TCP", options: []string{"--network", "disabled"}, prepare: func(p *place) { p.port("tcp") }, command: python(connectTCP), through: says("reached"), by: byNetwork},
	{class: "network off", title: "the host's loopback by UDP", options: []string{"--network", "disabled"}, prepare: func(p *place) {
		addr, touched := p.listen("udp", "127.0.0.1:0")
		_, port, _ := strings.Cut(addr.String(), ":")
		p.setenv("PORT", port)
		p.touched = touched
	}, command: python(`import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", int(os.environ["PORT"])))`), through: func(p *place) bool {
		select {
		case <-p.touched:
			return true
		case <-time.After(200 * time.Millisecond):
			return false
		}
	}, by: byNetwork},
	{class: "network off", title: "an address in the host's network", options: []string{"--network", "disabled"}, command: `ip -o addr show 2>/dev/null | grep -v ' lo ' || grep -v -e lo: -e Inter -e face /proc/net/dev`, by: byNetwork},
	{class: "network off", title: "the machine's host by vsock", options: []string{"--network", "disabled"}, command: call(perArch(41, 198), "40, 1, 0"), by: byFilter, uncontrolled: kernelRefuses},
	{class: "network off", title: "raw packets", options: []string{"--network", "disabled"}, command: call(perArch(41, 198), "17, 3, 768"), by: byFilter, only: "root"},
	{class: "network off", title: "the host's sockets by netlink", command: call(perArch(41, 198), "16, 3, 4"), by: byFilter},
	{class: "network by name", title: "the host's loopback past the proxy", options: []string{"--network", "filtered"}, prepare: func(p *place) { p.port("tcp") }, command: python(connectTCP), through: says("reached"), by: byNetwork},
	{class: "network by name", title: "the host's loopback through the proxy", options: []string{"--network", "filtered", "--allow-domain", "*"}, prepare: func(p *place) { p.port("tcp") },
		command: `curl -sS --max-time 5 -x "${HTTP_PROXY:-}" "http://127.0.0.1:$PORT/" --http0.9`, through: says("reached"), by: "rules of the proxy"},
	{class: "network by name", title: "a name that is not listed", options: []string{"--network", "filtered", "--allow-domain", "one.example"}, prepare: func(p *place) { p.port("tcp") },
		command: `curl -sS --max-time 5 "http://localhost:$PORT/" --http0.9`, through: says("reached"), by: "rules of the proxy"},
	{class: "network by name", title: "a loopback name behind a listed one's CONNECT", options: []string{"--network", "filtered", "--allow-domain", "one.example"}, prepare: func(p *place) { p.port("tcp") },
		command: `curl -sS --max-time 5 --proxytunnel "http://localhost:$PORT/" --http0.9`, through: says("reached"), by: "rules of the proxy"},
}

var kernel = []attempt{
	{class: "the kernel", title: "io_uring, which a filter does not see", command: call("425", "1, buffer"), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the kernel", title: "the keyring of the user's session", command: call(perArch(250, 219), "0, -3, 0"), by: byFilter},
	{class: "the kernel", title: "a key for the host's programs", command: call(perArch(248, 217), `b"user", b"escape", b"x", 1, -2`), by: byFilter},
	{class: "the kernel", title: "bpf", command: call(perArch(321, 280), "0, buffer, 72"), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the kernel", title: "userfaultfd", command: call(perArch(323, 282), "1"), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the kernel", title: "perf_event_open", command: call(perArch(298, 241), "buffer, 0, -1, -1, 0"), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the kernel", title: "a file by its handle", command: call(perArch(304, 265), "-100, buffer, 0"), by: byFilter, only: "root"},
	{class: "the kernel", title: "another kernel (kexec)", command: call(perArch(246, 104), "0, 0, 0, 0"), by: byFilter, uncontrolled: "nobody tries that here"},
	{class: "the kernel", title: "a module", command: call(perArch(175, 105), "0, 0, 0"), by: byFilter, uncontrolled: "nobody tries that here"},
	{class: "the kernel", title: "the kernel's cryptography by socket", command: call(perArch(41, 198), "38, 5, 0"), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the kernel", title: "the kernel's log", command: call(perArch(103, 116), "3, buffer, 100"), by: byFilter, only: "root"},
	{class: "the kernel", title: "an old personality", command: call(perArch(135, 92), "0x0400000"), by: byFilter},
	{class: "the kernel", title: "32-bit calls (int 0x80)", command: python(`import ctypes, mmap, os, sys
if os.uname().machine != "x86_64": sys.exit(1)
code = b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3" # getpid by its 32-bit number
m = mmap.mmap(-1, 4096, prot=7); m.write(code)
r = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
print(r)
sys.exit(r != os.getpid())`), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the kernel", title: "x32 calls", command: call("0x40000000 + 39", "0"), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the terminal", title: "type into it (TIOCSTI)", terminal: true, command: python(`import fcntl, sys, termios
for c in "id\n": fcntl.ioctl(0, termios.TIOCSTI, c)`), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the terminal", title: "type into it, with the request's high bits set", terminal: true, command: call(perArch(16, 29), `0, ctypes.c_ulong(0x1_0000_5412), b"x"`), by: byFilter, uncontrolled: kernelRefuses},
	{class: "the terminal", title: "paste into a console (TIOCLINUX)", terminal: true, command: call(perArch(16, 29), `0, ctypes.c_ulong(0x541C), b"\x03"`), by: byFilter},
}

var namespaces = []attempt{
	{class: "namespaces", title: "a user namespace", command: `unshare -U true`, by: byFilter + ", --disable-userns"},
	{class: "namespaces", title: "one by clone", command: call(perArch(56, 220), "0x10000000 | 17, 0, 0, 0, 0") + " && true", by: byFilter + ", --disable-userns", uncontrolled: "its child would go on with the script"},
	{class: "namespaces", title: "one by clone3", command: call("435", "buffer, 64"), by: byFilter + ", --disable-userns"},
	{class: "namespaces", title: "process 1's namespaces", command: `nsenter -t 1 -m true`, by: byFilter, uncontrolled: "in a container, it is nobody's to enter"},
	{class: "namespaces", title: "a mount", command: `mount -t tmpfs none /tmp`, by: byUser, uncontrolled: "it would mount"},
	{class: "namespaces", title: "a mount by the new calls", command: call("430", `b"tmpfs", 0`), by: byFilter, only: "root"},
	{class: "namespaces", title: "a copy of a mount", command: call("428", `-100, b"/", 1`), by: byFilter, only: "root"},
	{class: "namespaces", title: "a mount's flags", command: call("442", `-100, b"/", 0, buffer, 32`), by: byFilter, only: "root"},
	{class: "namespaces", title: "/usr writable again", command: `mount -o remount,rw,bind /usr`, by: byUser, uncontrolled: "it would change the host's"},
	{class: "namespaces", title: "the root writable again", command: `mount -o remount,rw / && touch /new`, by: byUser, uncontrolled: "it would change the host's"},
}

var machine = []attempt{
	{class: "the machine", title: "the program for core dumps (core_pattern)", command: `p=$(cat /proc/sys/kernel/core_pattern) && echo "$p" > /proc/sys/kernel/core_pattern`, by: byReadOnly, only: "root"},
	{class: "the machine", title: "another setting of the kernel", command: `v=$(cat /proc/sys/vm/swappiness) && echo "$v" > /proc/sys/vm/swappiness`, by: byReadOnly, only: "root"},
	{class: "the machine", title: "sysrq-trigger", command: `python3 -c 'import os; os.open("/proc/sysrq-trigger", os.O_WRONLY)'`, by: byReadOnly, uncontrolled: "nobody tries that here"},
	{class: "the machine", title: "a setting in /sys", command: `f=/sys/kernel/mm/transparent_hugepage/defrag; test -e $f && python3 -c 'import os,sys; os.open(sys.argv[1], os.O_WRONLY)' $f`, by: byReadOnly, only: "root"},
	{class: "the machine", title: "a device", command: `mknod d b 254 0 && dd if=d count=1 >/dev/null`, by: byUser, uncontrolled: "a host without that device refuses it too"},
	{class: "the machine", title: "a device's file from /dev", command: `ls /dev/[vs]d[a-z] /dev/mem /dev/kmsg 2>/dev/null | grep .`, by: byMounts, uncontrolled: "a host may have none of them"},
	{class: "the machine", title: "write in /dev", command: `touch /dev/new`, by: byReadOnly, uncontrolled: "it would make one"},
	{class: "the machine", title: "write in the root", command: `touch /new`, by: byReadOnly, uncontrolled: "it would make one"},
	{class: "the machine", title: "a setuid program", command: `cp /bin/sh ./sh && chmod 4755 ./sh && grep -q '^NoNewPrivs:.0' /proc/self/status`, by: "nosuid, no new privileges"},
	{class: "the machine", title: "a setuid program of the caller's, left for others", command: `cp /usr/bin/id ./mine && chmod 4755 ./mine`, through: func(p *place) bool {
		info, err := os.Stat(p.work + "/mine")
		return err == nil && info.Mode()&os.ModeSetuid != 0
	}, by: byFilter},
	{class: "the machine", title: "one by the mode of a new file", command: python(`import os
os.open("mine", os.O_CREAT | os.O_WRONLY, 0o4755)`), through: func(p *place) bool {
		info, err := os.Stat(p.work + "/mine")
		return err == nil && info.Mode()&os.ModeSetuid != 0
	}, by: byFilter},
	{class: "the machine", title: "the passwords' hashes, as root", command: `grep ^root: /etc/shadow`, by: "covered for root", only: "root"},
	{class: "the machine", title: "the mount that hides debugfs and tracefs", command: `ls /sys/kernel/tracing | grep . || ls /sys/kernel/debug | grep .`, by: "covered for root", only: "root", uncontrolled: "a host may have neither"},
}

var launcher = []attempt{
	{class: "the launcher", title: "messages as bwrap's", command: `echo "bwrap: No permissions to create new namespace" >&2; exit 1`, through: func(p *place) bool { return p.status != 1 || strings.Contains(p.out, "cannot sandbox") },
		by: "status records", uncontrolled: "it is about the launcher's words"},
	{class: "the launcher", title: "no sandbox to be had, so none is used", prepare: func(p *place) {
		p.write(p.dir+"/bwrap", "#!/bin/sh\ncase \"$*\" in *--help*) exec bwrap --help;; esac\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
		os.Chmod(p.dir+"/bwrap", 0o755)
		p.bwrap = p.dir + "/bwrap"
	}, command: `touch ran`, through: made("$WORK/ran"), refused: true, by: "nothing runs without one"},
	{class: "the launcher", title: "outlive it in the background", command: `(setsid sh -c 'sleep 0.5; touch late' >/dev/null 2>&1 &); exit 0`, through: comesLate, by: byProcess},
	{class: "the launcher", title: "outlive its death", during: func(p *place) { p.cmd.Process.Kill() }, command: `trap '' HUP TERM; setsid sh -c 'sleep 0.7; touch late' & touch ready; sleep 0.7; touch late`, through: comesLate, by: "die-with-parent, guard namespace"},
	{class: "limits", title: "a core dump for the host's handler", command: `python3 -c 'import resource; import sys; sys.exit(resource.getrlimit(resource.RLIMIT_CORE)[0] <= 1)'`, by: "limits", uncontrolled: "a host may have that limit itself"},
	{class: "limits", title: "more open files than granted", options: []string{"--limit", "openFiles=64"}, command: `ulimit -n 4096`, by: "limits", uncontrolled: "a host may have that limit itself"},
}

// comesLate waits for what a survivor does.
func comesLate(p *place) bool {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if exists(p.work + "/late") {
			return true
		}
	}
	return false
}

func sortByTitle(list []attempt) {
	for i := range list {
		for j := i + 1; j < len(list); j++ {
			if list[j].title < list[i].title {
				list[i], list[j] = list[j], list[i]
			}
		}
	}
}
