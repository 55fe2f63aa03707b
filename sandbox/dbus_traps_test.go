package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

func TestAnOpenBusThatIsSwappedForALinkIsNotBound(t *testing.T) {
	h, bus := newBusHost(t)
	other := startBus(t, "")
	service := other.serve("org.example.Other")
	h.profile.SessionBus = profile.SessionBusAllow
	plan := h.build()
	os.Remove(bus.path)
	h.symlink(other.path, bus.path)
	r := h.runPlan(plan, "/bin/sh", "-c", call("org.example.Other"))
	if r.ExitCode == 0 || service.called() != nil || len(r.Notices) != 2 || r.Notices[1].Kind != NoticePathLeftOut {
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
	bus := startBus(t, "unix:path="+deep+"/bus")
	service := bus.serve("org.gnome.Shell")
	h.profile.SessionBusAddress = bus.address
	for _, dir := range []string{"a", "a/b", "a/b/c"} {
		h.refused("mv " + dir + " aside")
		h.run("/bin/sh", "-c", "mkdir -p elsewhere; mv --exchange "+dir+" elsewhere")
	}
	h.sh("touch a/b/c/beside && mv a/b/c/beside a/b/beside") // all else can be done there
	for _, path := range []string{"aside/bus", "aside/c/bus", "aside/b/c/bus", "elsewhere/bus", "elsewhere/c/bus", "elsewhere/b/c/bus", "a/b/c/bus"} {
		h.refused("DBUS_SESSION_BUS_ADDRESS=unix:path=$PWD/" + path + " " + call("org.gnome.Shell"))
	}
	if calls := service.called(); calls != nil {
		t.Error(calls)
	}
}

func TestTheProxyConnectsToTheSocketThatWasChecked(t *testing.T) {
	bus, other := startBus(t, ""), startBus(t, "")
	bus.serve("org.freedesktop.secrets")
	service := other.serve("org.freedesktop.secrets")
	real, _ := exec.LookPath(proxyName)
	script := filepath.Join(newDirectory(t), "swaps")
	text := fmt.Sprintf("#!/bin/sh\n/bin/rm %s && /bin/ln -s %s %s && exec %s \"$@\"\n", bus.path, other.path, bus.path, real)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	var echo string
	err := newListenerWith(t, bus, script).connect(t).Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Echo", 0, "hello").Store(&echo)
	if err != nil || echo != "hello" || service.called() != nil {
		t.Errorf("%q %v, the other bus: %v", echo, err, service.called())
	}
}

// listen is a launcher's listener in a process of its own, with a first client: it gets the bus's socket, a proxy, and a directory.
func init() { helpers["listen"] = listen }

func listen() {
	l, err := listenBus(Bus{Servers: []BusServer{{Path: os.Args[1]}}, Proxy: os.Args[2], Directories: os.Args[3:]})
	if err == nil {
		_, err = net.Dial("unix", l.name())
	}
	fmt.Println(err)
	select {}
}

// A proxy that does not mind its pipe's end, and no hangup either, is ended by the kernel alone.
func TestAStubbornProxyEndsWithAKilledLauncher(t *testing.T) {
	bus, proxy := startBus(t, ""), filepath.Join(newDirectory(t), "stubborn")
	text := "#!/usr/bin/python3\nimport signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nopen(__file__ + '.ready', 'w')\nwhile True: signal.pause()\n"
	if err := os.WriteFile(proxy, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := helperCommand(t, "listen", bus.path, proxy, newDirectory(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := func() []string {
		return slices.DeleteFunc(processesNaming(proxy), func(line string) bool { return strings.HasPrefix(line, fmt.Sprint(cmd.Process.Pid, ":")) })
	}
	waitUntil(t, "it was started", func() bool { _, err := os.Stat(proxy + ".ready"); return err == nil })
	if len(running()) != 1 {
		t.Error("the test does not see it")
	}
	cmd.Process.Kill()
	cmd.Wait()
	defer func() {
		for _, line := range running() {
			var pid int
			fmt.Sscan(line, &pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	waitUntil(t, "it has ended", func() bool { return running() == nil })
}

func TestAnotherUsersAbstractSocketIsNoBus(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("clai-sandbox-test-other-%d", os.Getpid())
	squatter := exec.Command("setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/perl", "-MSocket", "-e",
		`socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, pack("Sa*", AF_UNIX, "\0$ARGV[0]")) or die $!; listen(S, 5); $| = 1; print "ready\n"; sleep 1000`, name)
	out, err := squatter.StdoutPipe()
	if err == nil {
		err = squatter.Start()
	}
	if err != nil {
		t.Skip(err)
	}
	defer squatter.Wait()
	defer squatter.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Skipf("no listener: %q %v", line, err)
	}
	server := BusServer{Abstract: name}
	if d, err := server.connect(); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("%d, %v", d, err)
	}
}

func TestAConnectionThatSomebodyHoldsEndsWithTheRun(t *testing.T) {
	bus := startBus(t, "")
	bus.serve("org.freedesktop.secrets")
	l := newListener(t, bus)
	client := l.connect(t)
	if err := client.Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Echo", 0, "hello").Err; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.close()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	<-client.Context().Done()
}

func TestFilesThatCannotBeOpenedEndTheConnection(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	receiver, err := newBusConn(descriptor.File(pair[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.close()
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(0, 1, 2), nil, 0); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	small := limit
	small.Cur = 3 // those that are open stay so
	unix.Setrlimit(unix.RLIMIT_NOFILE, &small)
	_, rights, err := receiver.receive(make([]byte, 10), make([]byte, rightsSpace))
	unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	closeAll(rights)
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, %v", rights, err)
	}
}
