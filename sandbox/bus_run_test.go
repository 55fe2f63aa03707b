package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/bus"
	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
)

// newBusHost is a host with a bus, and a profile that filters it.
func newBusHost(t testing.TB) (*host, *bustest.Bus) {
	t.Helper()
	bustest.NeedProxy(t)
	h, bus := newHost(t), bustest.Start(t, "")
	h.profile.SessionBus = profile.SessionBusFiltered
	h.profile.SessionBusNames = profile.DefaultSessionBusNames
	h.profile.SessionBusAddress = bus.Address
	h.profile.RuntimeDirectory = newDirectory(t)
	h.profile.OwnDirectories = append(h.profile.OwnDirectories, h.mkdir(h.profile.RuntimeDirectory+"/clai-sandbox"))
	return h, bus
}

// proxiesOf are the xdg-dbus-proxies that a process has started.
func proxiesOf(parent int) []string {
	var found []string
	for _, line := range processesNaming("--filter") {
		pid, _, _ := strings.Cut(line, ":")
		status, _ := os.ReadFile("/proc/" + pid + "/status")
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			found = append(found, pid)
		}
	}
	return found
}

func TestSystemdAndTheShellAreNotReached(t *testing.T) {
	h, bus := newBusHost(t)
	systemd := bus.Serve("org.freedesktop.systemd1", "org.gnome.Shell")
	attempts := map[string]string{
		"systemd-run": "XDG_RUNTIME_DIR=/run/clai-sandbox systemd-run --user --no-block /bin/true",
		"busctl":      "busctl --user call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager StartTransientUnit 'ssa(sv)a(sa(sv))' x.service fail 0 0",
		"gdbus":       "gdbus call --session --dest org.gnome.Shell --object-path /org/gnome/Shell --method org.gnome.Shell.Eval 1",
		"dbus-send":   "dbus-send --session --print-reply --dest=org.gnome.Shell /org/gnome/Shell org.gnome.Shell.Eval string:1",
	}
	for program, attempt := range attempts {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("no %s: its attempt is left out", program)
			continue
		}
		h.refused(attempt)
	}
	if calls := systemd.Called(); calls != nil {
		t.Errorf("calls that arrived: %v", calls)
	}
	h.profile.SessionBus = profile.SessionBusAllow
	h.run("/bin/sh", "-c", attempts["busctl"]+"; "+attempts["dbus-send"])
	if calls := systemd.Called(); !slices.Contains(calls, "StartTransientUnit") && !slices.Contains(calls, "Eval") {
		t.Errorf("an open bus does not let them through either, so the test shows nothing: %v", calls)
	}
}

func TestANameOfTheConfigurationIsLetThroughWhole(t *testing.T) {
	h, bus := newBusHost(t)
	bus.ServeAll("org.example.Mine", "org.example.below.Mine", "org.example.Other", "org.freedesktop.portal.Desktop")
	h.profile.SessionBusNames = []string{"org.example.Mine", "org.example.below.*", "org.freedesktop.portal.Desktop"}
	plan := h.build()
	if len(plan.Notices) != 1 || !strings.Contains(plan.Notices[0].Text, "because org.freedesktop.portal.Desktop") {
		t.Errorf("notices %v", plan.Notices)
	}
	for _, name := range []string{"org.example.Mine", "org.example.below.Mine"} {
		if out := h.sh(call(name)); !strings.Contains(out, "hello") {
			t.Errorf("%s: %q", name, out)
		}
	}
	background := bustest.Object{Path: "/org/freedesktop/portal/desktop", Face: "org.freedesktop.portal.Background"}
	if out := h.sh(callAt("org.freedesktop.portal.Desktop", background)); !strings.Contains(out, "hello") {
		t.Errorf("the portal's whole: %q", out)
	}
	h.profile.SessionBusNames = []string{"org.example.below.*"}
	h.refused(call("org.example.Mine"))
}

func TestTheProxyStartsWithTheFirstConnectionAndEndsWithTheRun(t *testing.T) {
	h, bus := newBusHost(t)
	bus.Serve("org.freedesktop.secrets")
	steps := "read go; " + call("org.freedesktop.secrets") + "; echo connected; read go; " + call("org.freedesktop.secrets") + "; echo again; read go"
	cmd := h.launch("/bin/sh", "-c", "echo ready; "+steps)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(out)
	for _, step := range []struct {
		word    string
		proxies int
	}{{"ready\n", 0}, {"connected\n", 1}, {"again\n", 1}} {
		for line := ""; !strings.HasSuffix(line, step.word); {
			var err error
			if line, err = reader.ReadString('\n'); err != nil {
				t.Fatal(step, err)
			}
		}
		if running := proxiesOf(cmd.Process.Pid); len(running) != step.proxies {
			t.Errorf("%q: proxies %v, want %d", step.word, running, step.proxies)
		}
		if len(h.busDirectories()) != 1 {
			t.Error("the socket is not where the test looks for it")
		}
		for _, pid := range proxiesOf(cmd.Process.Pid) {
			checkProxy(t, pid)
		}
		io.WriteString(in, "\n")
	}
	running := proxiesOf(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for _, pid := range running {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("proxy %s outlived the run", pid)
		}
	}
	h.nothingIsLeft()
}

// checkProxy looks at what a proxy may do. The terminal's signals are for the command's group.
func checkProxy(t *testing.T, pid string) {
	t.Helper()
	number, _ := strconv.Atoi(pid)
	if group, err := syscall.Getpgid(number); err != nil || group != number {
		t.Errorf("its process group is %d, %v", group, err)
	}
	if status, _ := os.ReadFile("/proc/" + pid + "/status"); !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Error("it may gain privileges")
	}
	if environ, err := os.ReadFile("/proc/" + pid + "/environ"); err != nil || len(environ) > 0 {
		t.Errorf("its environment is %q, %v", environ, err)
	}
	if limits, err := os.ReadFile("/proc/" + pid + "/limits"); err != nil || !regexp.MustCompile(`Max address space +1073741824 +1073741824 `).Match(limits) {
		t.Errorf("its limits are\n%s%v", limits, err)
	}
}

// busDirectories are those of runs that are under way, or were killed.
func (h *host) busDirectories() []string {
	left, _ := filepath.Glob(filepath.Join(h.profile.RuntimeDirectory, "clai-sandbox", "clai-sandbox-bus-*"))
	return left
}

func (h *host) nothingIsLeft() {
	h.t.Helper()
	if left := h.busDirectories(); left != nil {
		h.t.Errorf("left behind: %v", left)
	}
}

func TestATimeoutLeavesNoProxyAndNoSocket(t *testing.T) {
	h, bus := newBusHost(t)
	bus.Serve("org.freedesktop.secrets")
	h.profile.Limits.Timeout = time.Second
	h.launcher.Grace = 50 * time.Millisecond
	began := time.Now()
	r := h.run("/bin/sh", "-c", "trap '' TERM; "+call("org.freedesktop.secrets")+"; dbus-monitor --session & sleep 1000")
	if r.Outcome != TimedOut || !strings.Contains(r.Out, "hello") || time.Since(began) > 8*time.Second {
		t.Errorf("%+v %q %q after %v", r.Result, r.Out, r.Err, time.Since(began))
	}
	if running := proxiesOf(os.Getpid()); running != nil {
		t.Errorf("proxies %v", running)
	}
	h.nothingIsLeft()
}

func TestAKilledLauncherLeavesNoProxyAndTheNextOneSweeps(t *testing.T) {
	h, daemon := newBusHost(t)
	daemon.Serve("org.freedesktop.secrets")
	cmd := h.launch("/bin/sh", "-c", call("org.freedesktop.secrets")+"; echo; sleep 1000")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); !strings.Contains(line, "hello") {
		t.Fatal(line)
	}
	running := proxiesOf(cmd.Process.Pid)
	stopped, _ := strconv.Atoi(running[0])
	syscall.Kill(stopped, syscall.SIGSTOP) // it could not end by itself
	cmd.Process.Kill()
	cmd.Wait()
	waitUntil(t, "the proxy has ended", func() bool { _, err := os.Stat("/proc/" + running[0]); return err != nil })
	left := h.busDirectories()
	if len(left) != 1 {
		t.Fatal(left)
	}
	own := filepath.Dir(left[0])
	// Neither a young directory nor one that is used is swept, nor what merely has such a name.
	other, err := bus.Listen(bus.Bus{Directories: []string{own}})
	if err != nil {
		t.Fatal(err)
	}
	used := slices.DeleteFunc(h.busDirectories(), func(dir string) bool { return dir == left[0] })[0]
	elsewhere := h.write(filepath.Join(newDirectory(t), "file"), "")
	h.symlink(filepath.Dir(elsewhere), filepath.Join(own, "clai-sandbox-bus-link"))
	h.run("/bin/true")
	old := time.Now().Add(-time.Hour)
	if _, err := os.Stat(left[0]); err != nil {
		t.Error("a young directory was swept")
	}
	os.Chtimes(left[0], old, old)
	os.Chtimes(used, old, old)
	past := unix.NsecToTimespec(old.UnixNano())
	unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(own, "clai-sandbox-bus-link"), []unix.Timespec{past, past}, unix.AT_SYMLINK_NOFOLLOW)
	h.run("/bin/true")
	if _, err := os.Stat(left[0]); err == nil {
		t.Error("the killed run's directory is still there")
	}
	if _, err := os.Stat(used); err != nil {
		t.Error("a directory that is used was swept")
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error("a link was followed")
	}
	other.Close()
	os.Remove(filepath.Join(own, "clai-sandbox-bus-link"))
	h.nothingIsLeft()
}

func TestTheLastWordsOfACommandArrive(t *testing.T) {
	h, bus := newBusHost(t)
	service := bus.Serve("org.freedesktop.Notifications")
	rounds := 20
	for range rounds {
		h.sh("exec dbus-send --session --type=method_call --dest=org.freedesktop.Notifications /org/freedesktop/Notifications org.freedesktop.Notifications.GetServerInformation string:bye")
	}
	waitUntil(t, "all have arrived", func() bool { return len(service.Called()) >= rounds })
}

func TestABwrapWithoutBindFDHasABusAsWell(t *testing.T) {
	h, bus := newBusHost(t)
	bus.Serve("org.freedesktop.secrets")
	h.launcher.Bwrap.Options = slices.DeleteFunc(slices.Clone(h.launcher.Bwrap.Options), func(o string) bool { return strings.HasSuffix(o, "bind-fd") })
	for _, mode := range []profile.SessionBus{profile.SessionBusFiltered, profile.SessionBusAllow} {
		h.profile.SessionBus = mode
		if out := h.sh(call("org.freedesktop.secrets")); !strings.Contains(out, "hello") {
			t.Error(mode, out)
		}
	}
}

func TestAGrantDoesNotShowTheBusPastItsFilter(t *testing.T) {
	h, bus := newBusHost(t)
	service := bus.Serve("org.gnome.Shell")
	h.grant(filepath.Dir(bus.Path), profile.ReadWrite)
	for _, mode := range []profile.SessionBus{profile.SessionBusFiltered, profile.SessionBusDeny} {
		h.profile.SessionBus = mode
		for _, script := range []string{"", "mv " + bus.Path + " /tmp/moved; ", "rm " + bus.Path + "; ", "ln " + bus.Path + " " + bus.Path + "2 && export DBUS_SESSION_BUS_ADDRESS=$DBUS_SESSION_BUS_ADDRESS\"2\"; "} {
			h.refused("export DBUS_SESSION_BUS_ADDRESS='" + bus.Address + "'; " + script + call("org.gnome.Shell"))
		}
	}
	if calls := service.Called(); calls != nil {
		t.Error(calls)
	}
}

func TestABusThatIsGoneIsTold(t *testing.T) {
	h, bus := newBusHost(t)
	plan := h.build()
	os.Remove(bus.Path)
	r := h.runPlan(plan, "/bin/sh", "-c", call("org.freedesktop.secrets"))
	if r.ExitCode == 0 || len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, "gone") {
		t.Errorf("%+v", r)
	}
}

func TestAnOpenBusThatIsSwappedForALinkIsNotBound(t *testing.T) {
	h, bus := newBusHost(t)
	other := bustest.Start(t, "")
	service := other.Serve("org.example.Other")
	h.profile.SessionBus = profile.SessionBusAllow
	plan := h.build()
	os.Remove(bus.Path)
	h.symlink(other.Path, bus.Path)
	r := h.runPlan(plan, "/bin/sh", "-c", call("org.example.Other"))
	if r.ExitCode == 0 || service.Called() != nil || len(r.Notices) != 2 || r.Notices[1].Kind != NoticePathLeftOut {
		t.Errorf("%+v", r)
	}
}

func TestAGrantDoesNotShowTheOtherDoorToSystemd(t *testing.T) {
	h, _ := newBusHost(t)
	run := h.profile.RuntimeDirectory
	h.profile.OwnDirectories = h.profile.OwnDirectories[:len(h.profile.OwnDirectories)-1]
	os.RemoveAll(filepath.Join(run, "clai-sandbox"))
	door := filepath.Join(h.mkdir(filepath.Join(run, "systemd")), "private")
	listener, err := net.Listen("unix", door)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	knocked := make(chan struct{}, 10)
	go func() {
		for {
			if c, err := listener.Accept(); err == nil {
				c.Close()
				knocked <- struct{}{}
			} else {
				return
			}
		}
	}()
	h.grant(run, profile.ReadWrite)
	knock := "python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' " + door
	h.refused(knock)
	h.refused("rm " + door)
	h.refused("mv " + door + " " + run)
	if len(knocked) > 0 {
		t.Error("the door opened")
	}
	h.profile.SessionBus = profile.SessionBusAllow
	h.sh(knock)
	<-knocked
}

func TestACoveredSocketIsNotRenamedAsideForTheNextRun(t *testing.T) {
	h, _ := newBusHost(t)
	deep := h.mkdir(filepath.Join(h.profile.Workspace, "a", "b", "c"))
	bus := bustest.Start(t, "unix:path="+deep+"/bus")
	service := bus.Serve("org.gnome.Shell")
	h.profile.SessionBusAddress = bus.Address
	for _, dir := range []string{"a", "a/b", "a/b/c"} {
		h.refused("mv " + dir + " aside")
		h.run("/bin/sh", "-c", "mkdir -p elsewhere; mv --exchange "+dir+" elsewhere")
	}
	h.sh("touch a/b/c/beside && mv a/b/c/beside a/b/beside") // all else can be done there
	for _, path := range []string{"aside/bus", "aside/c/bus", "aside/b/c/bus", "elsewhere/bus", "elsewhere/c/bus", "elsewhere/b/c/bus", "a/b/c/bus"} {
		h.refused("DBUS_SESSION_BUS_ADDRESS=unix:path=$PWD/" + path + " " + call("org.gnome.Shell"))
	}
	if calls := service.Called(); calls != nil {
		t.Error(calls)
	}
}

func TestAListedNameLetsThroughNothingElseThatItsOwnerCanDo(t *testing.T) {
	h, bus := newBusHost(t)
	service := bus.ServeAll("org.freedesktop.secrets", "org.freedesktop.Notifications", "org.gnome.Shell", "org.freedesktop.portal.Desktop",
		"org.freedesktop.portal.Flatpak", "org.freedesktop.portal.Documents", "org.freedesktop.portal.Tracker", "org.freedesktop.portal")
	script, control := "", ""
	for i, c := range bustest.Unlisted {
		control += callAt(c.Name, c.At) + " || echo missed;"
		for _, to := range []string{c.Name, service.Names()[0], "org.gnome.Shell"} {
			script += fmt.Sprintf("%s && echo reached %d %s;", callAt(to, c.At), i, to)
		}
	}
	if out := h.sh(script + call("org.freedesktop.secrets") + ">/dev/null && echo end"); out != "end\n" {
		t.Errorf("inside: %s", out)
	}
	if calls := service.Called(); len(calls) != 1 {
		t.Errorf("calls that arrived: %v", calls)
	}
	h.profile.SessionBus = profile.SessionBusAllow
	if out := h.sh(control); strings.Contains(out, "missed") || strings.Count(out, "hello") != len(bustest.Unlisted) {
		t.Errorf("an open bus does not let through either, so the test shows nothing: %s", out)
	}
}
