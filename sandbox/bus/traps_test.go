package bus

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

	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

func TestTheProxyConnectsToTheSocketThatWasChecked(t *testing.T) {
	bus, other := bustest.Start(t, ""), bustest.Start(t, "")
	bus.Serve("org.freedesktop.secrets")
	service := other.Serve("org.freedesktop.secrets")
	real, _ := exec.LookPath(ProxyName)
	script := filepath.Join(processtest.Directory(t), "swaps")
	text := fmt.Sprintf("#!/bin/sh\n/bin/rm %s && /bin/ln -s %s %s && exec %s \"$@\"\n", bus.Path, other.Path, bus.Path, real)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	var echo string
	err := newListenerWith(t, bus, script).connect(t).Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Echo", 0, "hello").Store(&echo)
	if err != nil || echo != "hello" || service.Called() != nil {
		t.Errorf("%q %v, the other bus: %v", echo, err, service.Called())
	}
}

// listen is a launcher's listener in a process of its own, with a first client: it gets the bus's
// socket, a proxy, and a directory.
func listen() {
	l, err := Listen(Bus{Servers: []Server{{Path: os.Args[1]}}, Proxy: os.Args[2], Directories: os.Args[3:]})
	if err == nil {
		_, err = net.Dial("unix", l.name())
	}
	fmt.Println(err)
	select {}
}

// A proxy that does not mind its pipe's end, and no hangup either, is ended by the kernel alone.
func TestAStubbornProxyEndsWithAKilledLauncher(t *testing.T) {
	bus, proxy := bustest.Start(t, ""), filepath.Join(processtest.Directory(t), "stubborn")
	text := "#!/usr/bin/python3\nimport signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nopen(__file__ + '.ready', 'w')\nwhile True: signal.pause()\n"
	if err := os.WriteFile(proxy, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", bus.Path, proxy, processtest.Directory(t))
	cmd.Env = append(os.Environ(), "CLAI_SANDBOX_TEST_HELPER=listen")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := func() []string {
		return slices.DeleteFunc(processtest.Naming(proxy), func(line string) bool { return strings.HasPrefix(line, fmt.Sprint(cmd.Process.Pid, ":")) })
	}
	processtest.Until(t, "it was started", func() bool { _, err := os.Stat(proxy + ".ready"); return err == nil })
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
	processtest.Until(t, "it has ended", func() bool { return running() == nil })
}

func TestAnotherUsersAbstractSocketIsNoBus(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
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
	server := Server{Abstract: name}
	if d, err := server.connect(); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("%d, %v", d, err)
	}
}

func TestAConnectionThatSomebodyHoldsEndsWithTheRun(t *testing.T) {
	bus := bustest.Start(t, "")
	bus.Serve("org.freedesktop.secrets")
	l := newListener(t, bus)
	client := l.connect(t)
	if err := client.Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Echo", 0, "hello").Err; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l.Close()
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
	receiver, err := newConn(descriptor.File(pair[1]))
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
