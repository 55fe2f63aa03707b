package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// stay starts a session's sandbox with one command in it, and returns its id once that has made the
// file "ready".
func (p project) stay(script string, options ...string) (id string) {
	p.t.Helper()
	cmd := p.command(append(append([]string{staysName, "run"}, options...), "--", "sh", "-c", script)...)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := os.Remove(filepath.Join(p.dir, "ready")); err == nil {
			break
		}
		if time.Now().After(end) {
			p.t.Fatal("it does not begin")
		}
	}
	found := regexp.MustCompile(`"id": *"(b[0-9a-f]{8})"`).FindStringSubmatch(p.sh("clai-sandbox sessions list --json"))
	if found == nil {
		p.t.Fatal("it is not listed")
	}
	return found[1]
}

func TestAPersonReachesASessionsSandbox(t *testing.T) {
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("no sandbox stays here")
	}
	p := newProject(t)
	p.wants(p.sh("clai-sandbox sessions list"), "no session has a sandbox\n")
	id := p.stay(`printf secret > /dev/shm/here; printf 'x\033[2J' > "$(printf 'name\033')"; touch ready; exec sleep 321`)
	p.wants(p.sh("clai-sandbox sessions list"), id+"  main   "+p.dir+"  ")
	p.wants(p.sh("clai-sandbox sessions show "+id), "workspace  "+p.dir+"\n", "by         a test (process ", "sleep 321\n")
	// What it is joined by is in the sandbox, with streams of its own; a file of the person's is
	// not handed over.
	p.wants(p.sh("echo in > in; clai-sandbox run --join "+id+" -- sh -c 'cat /dev/shm/here; cat; readlink /proc/self/fd/0 | tr -d 0-9; exit 3' < in && exit 1 || echo status $?"), "secretin\npipe:[]\nstatus 3\n")
	for words, want := range map[string]string{
		"run --join " + id + " -- no-such":         "no-such: command not found inside the sandbox\n127\n",
		"run --join " + id + " --grant / -- true":  "--grant says nothing with --join; the sandbox is there already; leave it out\n125\n",
		"run --join b0000000 -- true":              "there is no session b0000000; clai-sandbox sessions list shows those that there are\n125\n",
		"sessions show ../rooms/" + id:             "there is no session ../rooms/" + id,
		"sessions stop":                            "which session?",
		"sessions attach b12345678":                "there is no session b12345678",
		"run --join " + id + " -- /etc/passwd":     "126\n",
		"run --join " + id + " -- sh -c 'kill $$'": "143\n",
	} {
		p.wants(p.sh("clai-sandbox "+words+" 2>&1 || echo $?"), want)
	}
	// No command inside reaches the socket: neither by its name, nor, where it is shown by mistake,
	// as what it is.
	socket := strings.TrimSpace(p.sh(`find "$HOME" "${XDG_RUNTIME_DIR:-$HOME}" -type s -name ` + id + ` 2>/dev/null | head -1`))
	if out := p.sh("clai-sandbox run --join " + id + " -- ls -d " + socket + " 2>&1 || echo $?"); !strings.Contains(out, "No such file") {
		t.Error(out)
	}
	outside := `python3 -c 'import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(10)
os.chdir(os.path.dirname("` + socket + `")); s.connect("` + id + `"); s.send(b"{\"do\":\"show\"}"); print(len(s.recv(9999)) > 0)' 2>&1`
	if out := p.sh(outside); out != "True\n" {
		t.Error(out)
	}
	if out := p.sh("unshare -Urm sh -c " + quoted([]string{outside}) + " || unshare -m sh -c " + quoted([]string{outside}) + " || true"); strings.Contains(out, "True") {
		t.Errorf("a process of another namespace is served: %s", out)
	}
	for words, want := range map[string]string{
		"publish " + id:        "publish wants a session and a port; for example: ",
		"publish " + id + " x": `port "x" is not a number from 1 to 65535`,
		"publish " + id + " 1": "the sandbox has the host's own network, where its ports are reached as they are; ",
	} {
		p.wants(p.sh("clai-sandbox sessions "+words+" 2>&1 || echo $?"), want, "\n125\n")
	}
	// A shell at a terminal of its own, that ends with this command.
	p.write("project/keys", "tty; stty size; echo $TERM; sleep 654 & echo shell-$((40 + 2)); exit 5\n")
	out := p.sh("TERM=xterm script -qec 'stty rows 33 cols 99; clai-sandbox sessions attach " + id + "; echo status $?' /dev/null < keys")
	p.wants(strings.ReplaceAll(out, "\r", ""), "not a tty\n33 99\nxterm\n", "shell-42\n", "status 5\n")
	p.sh("clai-sandbox sessions stop " + id)
	p.wants(p.sh("clai-sandbox sessions list; clai-sandbox sessions stop "+id+" 2>&1 || echo $?"), "no session has a sandbox\n", "there is no session", "125\n")
}

// Who goes takes their command along, and what was killed is swept.
func TestACommandThatJoinedEndsWithWhoStartedIt(t *testing.T) {
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("no sandbox stays here")
	}
	p := newProject(t)
	id := p.stay("touch ready; exec sleep 321")
	join := p.command("clai-sandbox", "run", "--join", id, "--", "sh", "-c", "trap '' HUP; touch joined; while :; do sleep 1; done")
	if err := join.Start(); err != nil {
		t.Fatal(err)
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("not in time: " + what)
			}
		}
	}
	until("it has joined", func() bool { return exists(p.dir + "/joined") })
	join.Process.Kill()
	join.Wait()
	until("its command has ended", func() bool { return !strings.Contains(p.sh("clai-sandbox sessions show "+id), "joined") })
	p.wants(p.sh("clai-sandbox sessions show "+id), "sleep 321")
}

func TestAPersonPublishesAPortOfASession(t *testing.T) {
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("no sandbox stays here")
	}
	p := newProject(t)
	id := p.stay("echo served >index.html; python3 -m http.server --bind 127.0.0.1 3000 >/dev/null 2>&1 & touch ready; wait", "--network", "disabled")
	p.wants(p.sh("clai-sandbox sessions publish "+id+" 18232:3000; curl -sS --retry 50 --retry-delay 0 --retry-all-errors http://127.0.0.1:18232/"),
		"http://127.0.0.1:18232 leads to port 3000 of the session\n", "served\n")
	p.wants(p.sh("clai-sandbox sessions publish "+id+" 18232:3000 2>&1 || echo $?"),
		"127.0.0.1:18232 is in use on the host, so port 3000 cannot be published there; choose another port of the host's, as 18233:3000\n125\n")
	p.sh("clai-sandbox sessions stop " + id)
	p.wants(p.sh("curl -sS http://127.0.0.1:18232/ 2>&1 || true"), "onnect")
}
