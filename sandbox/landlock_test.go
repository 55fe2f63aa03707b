package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/landlock"
)

func needFileRules(t *testing.T) {
	t.Helper()
	if landlock.ABI() < landlock.FilesABI {
		t.Skipf("this kernel's Landlock is version %d; %d is needed for the layer on files", landlock.ABI(), landlock.FilesABI)
	}
}

func TestAMountByMistakeIsNotYetABreach(t *testing.T) {
	needMounts(t)
	needFileRules(t)
	h := hiddenHost(t)
	dir := filepath.Join(filepath.Dir(h.profile.Home), "secret")
	secret := h.write(dir+"/file", "secret")
	h.write(h.profile.Home+"/file", "before")
	h.launcher.mistakes = []string{"--bind", dir, dir, "--bind", h.profile.Home, "/mistake"}
	attempts := "cat " + secret + "; cat /mistake/.aws/credentials; echo x > " + secret + "; touch " + secret + "2; mkdir " + secret + "3; echo x > /mistake/file; touch /mistake/new"
	shown := "test -e " + secret + " && test -e /mistake/file && echo shown && "
	if r := h.run("/bin/sh", "-c", shown+attempts); r.Failure != nil || r.Out != "shown\n" {
		t.Errorf("%v %q %q", r.Failure, r.Out, r.Err)
	}
	if r := h.runInSession(t.Context(), h.build(), "/bin/sh", "-c", shown+attempts); r.Failure != nil || r.Out != "shown\n" {
		t.Errorf("in a session: %v %q %q", r.Failure, r.Out, r.Err)
	}
	if text, _ := os.ReadFile(secret); string(text) != "secret" || len(lines(listing(t, dir))) != 2 {
		t.Errorf("%q\n%s", text, listing(t, dir))
	}
	if text, _ := os.ReadFile(h.profile.Home + "/file"); string(text) != "before" {
		t.Errorf("%q", text)
	}
	h.profile.NestedNamespaces = true // without the Landlock layer
	if r := h.run("/bin/sh", "-c", attempts); !strings.HasPrefix(r.Out, "secret") {
		t.Errorf("the mounts alone do not show it, and this test shows nothing: %v %q", r.Failure, r.Err)
	}
}

func TestAHiddenPathThatComesIntoBeingIsNotReadable(t *testing.T) {
	needMounts(t)
	needFileRules(t)
	h := hiddenHost(t)
	home := h.profile.Home
	h.mkdir(home + "/.config/other")
	h.write(home+"/.config/other/file", "shown")
	script := "touch ready; while ! test -e done; do sleep 0.01; done; cat ~/.npmrc ~/.azure/none ~/.config/gh/hosts.yml ~/.config/new; cat ~/.config/other/file"
	result := make(chan ran, 1)
	go func() { result <- h.run("/bin/sh", "-c", script) }()
	waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
	h.write(home+"/.npmrc", "secret")
	h.write(home+"/.azure/none", "secret")
	os.RemoveAll(home + "/.config/gh") // and with it the mount over it
	h.write(home+"/.config/gh/hosts.yml", "secret")
	h.write(h.profile.Workspace+"/done", "")
	if r := <-result; r.Out != "shown" {
		t.Errorf("%q %q", r.Out, r.Err)
	}
}

// What a Landlock layer could break is as it was.
func TestWhatCommandsDoWithFilesStillWorks(t *testing.T) {
	h := newHost(t)
	h.mkdir(h.profile.Home + "/.config/x")
	h.profile.Hidden = []profile.HiddenPath{{Path: h.profile.Home + "/.none"}}
	h.symlink("work", h.profile.Home+"/link")
	for _, script := range []string{
		"ls / ~ /tmp /proc /dev /sys /usr ~/.config ~/link/ >/dev/null",
		"echo x > /dev/null && echo x > /tmp/f && mv /tmp/f /tmp/g && mkdir -p a/b && echo x > f && mv f a/b/ && ln a/b/f a/g && truncate -s 0 a/g",
		"mkfifo p && rm p && ln -s x l && rm l",
		"cat /proc/self/status /proc/cpuinfo /etc/passwd /sys/kernel/mm/transparent_hugepage/enabled >/dev/null",
		"echo '#!/bin/sh' > /tmp/s && chmod +x /tmp/s && /tmp/s && cp /bin/true t && ./t",
		"echo $$ > /dev/shm/x && head -c 1 /dev/urandom >/dev/null",
		"echo 500 > /proc/self/oom_score_adj; echo x > /proc/self/comm",
	} {
		if r := h.run("/bin/sh", "-ec", script); r.Failure != nil || r.ExitCode != 0 {
			t.Errorf("%s: %v %d %s%s", script, r.Failure, r.ExitCode, r.Out, r.Err)
		}
	}
}

// A shell's "> /dev/stderr" opens again what the stream is, wherever that lies.
func TestStreamsCanBeOpenedAgain(t *testing.T) {
	h := newHost(t)
	log, err := os.Create(filepath.Join(filepath.Dir(h.profile.Home), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := h.launch("/bin/sh", "-c", "echo one > /dev/stderr; echo two > /dev/stdout; head -c 0 /dev/stdin")
	cmd.Stdout, cmd.Stderr, cmd.Stdin = log, log, log
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(log.Name()); !strings.Contains(string(text), "two") {
		t.Errorf("%q", text)
	}
}
