package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/outside/container"
	"github.com/clairun/clai-sandbox/outside/door"
	"github.com/clairun/clai-sandbox/profile"
)

// inContainerName is the program that containers have.
const inContainerName = "clai-sandbox-hostexec"

// A container asks with the token that a person made, until that is revoked. The container itself
// is none here: a process with nothing but the program, the socket and the token.
func TestAContainerAsksWithItsToken(t *testing.T) {
	d := newDesk(t)
	caller, err := profile.CurrentCaller()
	if err != nil {
		t.Fatal(err)
	}
	person := func(args ...string) (out, told string) {
		t.Helper()
		var o, e bytes.Buffer
		command := exec.Command(d.bin+"/clai-sandboxd", append([]string{"token"}, args...)...)
		command.Stdout, command.Stderr, command.Dir = &o, &e, d.home+"/work"
		if err := command.Run(); err != nil {
			t.Fatal(err, e.String())
		}
		return o.String(), e.String()
	}
	out, told := person("create", "--project", "app", "--branch", "next")
	secret := strings.TrimSuffix(out, "\n")
	if len(secret) != 64 || strings.Contains(told, secret) {
		t.Fatalf("%q, %q", out, told)
	}
	socket := filepath.Join(grants.SocketDirectory(caller.Directories()), door.SocketName)
	hostexec := func(environment []string, args ...string) (out, told string, status int) {
		t.Helper()
		var o, e bytes.Buffer
		command := exec.Command(d.bin+"/"+inContainerName, args...)
		command.Stdout, command.Stderr, command.Dir, command.Env = &o, &e, d.home+"/work", environment
		var exited *exec.ExitError
		if err := command.Run(); err != nil && !errors.As(err, &exited) {
			t.Fatal(err)
		}
		return o.String(), e.String(), command.ProcessState.ExitCode()
	}
	d.write("token", secret+"\n")
	for name, environment := range map[string][]string{
		"by the variable": {container.HostVariable + "=" + socket, container.TokenVariable + "=" + secret},
		"by a file":       {container.HostVariable + "=" + socket, container.TokenFileVariable + "=" + d.home + "/token"},
	} {
		if out, told, status := hostexec(environment, "sh", "-c", `printf '\000\377'; echo err >&2; pwd; exit 9`); out != "\x00\xff"+d.home+"/work\n" || told != "err\n" || status != 9 {
			t.Errorf("%s: %q, %q, %d", name, out, told, status)
		}
	}
	environment := []string{container.HostVariable + "=" + socket, container.TokenVariable + "=" + secret}
	if out, told, status := hostexec(environment, "touch", "x"); status != 1 || out != "" || !strings.Contains(told, "denied: no-pattern") {
		t.Errorf("%q, %q, %d", out, told, status)
	}
	answered := make(chan string, 1)
	go func() { out, _, _ := hostexec(environment, "id", "-u"); answered <- out }()
	if r := d.waiting(); !strings.Contains(r.Reason, "project app branch next") || r.Workspace != d.home+"/work" {
		t.Errorf("%+v", r)
	}
	d.allow()
	if out := <-answered; out == "" {
		t.Error("nothing was run")
	}
	if list, _ := d.audit("list"); !regexp.MustCompile(`HOSTEXEC REQUEST .* branch=next `).MatchString(list) {
		t.Error(list)
	}
	for name, environment := range map[string][]string{
		"no gateway":    {container.TokenVariable + "=" + secret},
		"no token":      {container.HostVariable + "=" + socket},
		"another token": {container.HostVariable + "=" + socket, container.TokenVariable + "=" + strings.Repeat("0", 64)},
		"nobody there":  {container.HostVariable + "=" + socket + ".x", container.TokenVariable + "=" + secret},
	} {
		if _, told, status := hostexec(environment, "printf", "x"); status != 3 || !strings.HasPrefix(told, "hostexec: ") || strings.Contains(told, secret) {
			t.Errorf("%s: %q, %d", name, told, status)
		}
	}
	list, _ := person("list")
	id, _, _ := strings.Cut(list, " ")
	if person("revoke", id); strings.Contains(list, secret) {
		t.Error(list)
	}
	if _, told, status := hostexec(environment, "printf", "x"); status != 3 || !strings.Contains(told, "no token that holds") {
		t.Errorf("%q, %d", told, status)
	}
	if _, err := os.Stat(d.home + "/work/x"); err == nil {
		t.Error("what was denied was run")
	}
}
