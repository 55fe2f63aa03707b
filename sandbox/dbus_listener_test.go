package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

func TestTheProxyStartsWithTheFirstConnectionAndEndsWithTheRun(t *testing.T) {
	h, bus := newBusHost(t)
	bus.serve("org.freedesktop.secrets")
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
	left, _ := filepath.Glob(filepath.Join(h.profile.RuntimeDirectory, "clai-sandbox", busDirectoryPrefix+"*"))
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
	bus.serve("org.freedesktop.secrets")
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
	h, bus := newBusHost(t)
	bus.serve("org.freedesktop.secrets")
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
	used, err := newBusDirectory([]string{own})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := h.write(filepath.Join(newDirectory(t), "file"), "")
	h.symlink(filepath.Dir(elsewhere), filepath.Join(own, busDirectoryPrefix+"link"))
	h.run("/bin/true")
	old := time.Now().Add(-time.Hour)
	if _, err := os.Stat(left[0]); err != nil {
		t.Error("a young directory was swept")
	}
	os.Chtimes(left[0], old, old)
	os.Chtimes(used.path, old, old)
	past := unix.NsecToTimespec(old.UnixNano())
	unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(own, busDirectoryPrefix+"link"), []unix.Timespec{past, past}, unix.AT_SYMLINK_NOFOLLOW)
	h.run("/bin/true")
	if _, err := os.Stat(left[0]); err == nil {
		t.Error("the killed run's directory is still there")
	}
	if _, err := os.Stat(used.path); err != nil {
		t.Error("a directory that is used was swept")
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error("a link was followed")
	}
	used.remove()
	os.Remove(filepath.Join(own, busDirectoryPrefix+"link"))
	h.nothingIsLeft()
}

func TestTheSocketIsTheCallersAlone(t *testing.T) {
	l := newListener(t, startBus(t, ""))
	for path, want := range map[string]string{l.directory.path: "drwx------", filepath.Join(l.directory.path, busSocket): "Srw-------"} {
		if info, err := os.Lstat(path); err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v %v, want %s", path, info.Mode(), err, want)
		}
	}
	shared := newDirectory(t)
	os.Chmod(shared, 0o777)
	d, err := newBusDirectory([]string{shared, filepath.Join(shared, "gone"), "/proc"})
	if err != nil || filepath.Dir(d.path) != filepath.Clean(os.TempDir()) {
		t.Errorf("%s, %v", d.path, err)
	}
	d.remove()
}

func TestFilesGoThroughBothWays(t *testing.T) {
	bus := startBus(t, "")
	bus.serve("org.freedesktop.secrets")
	client := newListener(t, bus).connect(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var got dbus.UnixFD
	if err := client.Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Exchange", 0, dbus.UnixFD(write.Fd())).Store(&got); err != nil {
		t.Fatal(err)
	}
	write.Close()
	outside, _ := io.ReadAll(read)
	inside, _ := io.ReadAll(os.NewFile(uintptr(got), "got"))
	if string(outside) != "written outside" || string(inside) != "read inside" {
		t.Errorf("%q, %q", outside, inside)
	}
}

func TestLargeMessagesComeThroughUnchanged(t *testing.T) {
	bus := startBus(t, "")
	bus.serve("org.freedesktop.secrets")
	l := newListener(t, bus)
	results := make(chan error, 8)
	for i := range 4 {
		client := l.connect(t)
		go func() {
			data, got := make([]byte, 2<<20), []byte{}
			rand.NewChaCha8([32]byte{byte(i)}).Read(data)
			err := client.Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Reverse", 0, data).Store(&got)
			slices.Reverse(got)
			if err == nil && !bytes.Equal(got, data) {
				err = fmt.Errorf("%d of %d bytes, or others", len(got), len(data))
			}
			results <- err
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestTheLastWordsOfACommandArrive(t *testing.T) {
	h, bus := newBusHost(t)
	service := bus.serve("org.freedesktop.Notifications")
	rounds := 20
	for range rounds {
		h.sh("exec dbus-send --session --type=method_call --dest=org.freedesktop.Notifications /org/freedesktop/Notifications org.freedesktop.Notifications.GetServerInformation string:bye")
	}
	waitUntil(t, "all have arrived", func() bool { return len(service.called()) >= rounds })
}

func TestConnectionsAreBounded(t *testing.T) {
	l := newListener(t, startBus(t, ""))
	hello := fmt.Appendf(nil, "\x00AUTH EXTERNAL %x\r\n", fmt.Append(nil, os.Getuid()))
	answered := make(chan net.Conn, 100)
	ask := func(c net.Conn) {
		c.Write(hello)
		if _, err := c.Read(make([]byte, 100)); err == nil {
			answered <- c
		}
	}
	for range maxBusConnections {
		go ask(l.knock(t))
	}
	var first []net.Conn
	for range maxBusConnections {
		first = append(first, <-answered)
	}
	for range 6 {
		go ask(l.knock(t))
	}
	select {
	case <-answered:
		t.Errorf("a connection more than %d was served", maxBusConnections)
	case <-time.After(200 * time.Millisecond):
	}
	for _, c := range first[:6] {
		c.Close()
	}
	for range 6 {
		<-answered // they only had to wait
	}
}

func TestAProxyThatDiesIsReplacedAFewTimes(t *testing.T) {
	bus := startBus(t, "")
	bus.serve("org.freedesktop.secrets")
	l := newListener(t, bus)
	for i := range maxProxyStarts {
		client := l.connect(t)
		var text string
		if err := client.Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Echo", 0, "hello").Store(&text); err != nil || text != "hello" {
			t.Fatalf("round %d: %q %v", i, text, err)
		}
		l.starting.Lock()
		proxy := l.proxy
		l.starting.Unlock()
		proxy.process.Kill()
		<-client.Context().Done() // the client learns of it
		<-proxy.ended
	}
	if _, err := dbus.Connect("unix:path=" + l.name()); err == nil {
		t.Error("it was replaced once more")
	}
	if list := l.notices(nil); len(list) != 1 || !strings.Contains(list[0].Text, "ended 8 times") {
		t.Errorf("notices %v", list)
	}
}

func TestAProxyThatDoesNotWorkIsTold(t *testing.T) {
	bus := startBus(t, "")
	scripts := newDirectory(t)
	h := newHost(t)
	for name, text := range map[string]string{
		"fails":  "#!/bin/sh\necho broken >&2; exit 1\n",
		"others": "#!/bin/sh\nsleep 1000\n",
		"gone":   "",
	} {
		t.Run(name, func(t *testing.T) {
			proxy := filepath.Join(scripts, name)
			if text != "" {
				h.write(proxy, text)
				os.Chmod(proxy, map[string]os.FileMode{"fails": 0o755, "others": 0o777}[name])
			}
			l := newListenerWith(t, bus, proxy)
			if _, err := dbus.Connect("unix:path=" + l.name()); err == nil {
				t.Error("connected")
			}
			list := l.notices([]Notice{{Text: "before"}})
			want := map[string]string{"fails": "broken", "others": "mode 0777", "gone": "no such file"}[name]
			if len(list) != 2 || !strings.Contains(list[1].Text, want) {
				t.Errorf("notices %v", list)
			}
		})
	}
}

func TestAProxyThatHangsDoesNotHoldTheRunUp(t *testing.T) {
	proxy := filepath.Join(newDirectory(t), "hangs")
	if err := os.WriteFile(proxy, []byte("#!/bin/sh\nexec tail -f /dev/null "+proxy+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := newListenerWith(t, startBus(t, ""), proxy)
	l.knock(t)
	waitUntil(t, "it was started", func() bool { return processesNaming(proxy) != nil })
	began := time.Now()
	l.close()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if left := processesNaming(proxy); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

func TestAClientThatSaysNothingSensibleHarmsNobodyElse(t *testing.T) {
	bus := startBus(t, "")
	bus.serve("org.freedesktop.secrets")
	l := newListener(t, bus)
	for _, said := range []string{"", "\x00", "\n\n\n\n", "\x00BEGIN\r\n" + strings.Repeat("l\x01", 5000), strings.Repeat("A", 3*busBuffer), "\x00AUTH\r\nBEGIN\r\nBEGIN\r\n"} {
		c := l.knock(t)
		io.WriteString(c, said)
		c.Close()
	}
	rights := l.knock(t).(*net.UnixConn)
	rights.WriteMsgUnix([]byte("\x00AUTH EXTERNAL\r\n"), syscall.UnixRights(0, 1, 2), nil)
	if n, err := rights.Read(make([]byte, 10)); err == nil {
		t.Errorf("descriptors before any message were answered with %d bytes", n)
	}
	var text string
	if err := l.connect(t).Object("org.freedesktop.secrets", "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Session.Echo", 0, "hello").Store(&text); err != nil || text != "hello" {
		t.Errorf("%q %v", text, err)
	}
}

func TestABwrapWithoutBindFDHasABusAsWell(t *testing.T) {
	h, bus := newBusHost(t)
	bus.serve("org.freedesktop.secrets")
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
	service := bus.serve("org.gnome.Shell")
	h.grant(filepath.Dir(bus.path), profile.ReadWrite)
	for _, mode := range []profile.SessionBus{profile.SessionBusFiltered, profile.SessionBusDeny} {
		h.profile.SessionBus = mode
		for _, script := range []string{"", "mv " + bus.path + " /tmp/moved; ", "rm " + bus.path + "; ", "ln " + bus.path + " " + bus.path + "2 && export DBUS_SESSION_BUS_ADDRESS=$DBUS_SESSION_BUS_ADDRESS\"2\"; "} {
			h.refused("export DBUS_SESSION_BUS_ADDRESS='" + bus.address + "'; " + script + call("org.gnome.Shell"))
		}
	}
	if calls := service.called(); calls != nil {
		t.Error(calls)
	}
}

func TestABusThatIsGoneIsTold(t *testing.T) {
	h, bus := newBusHost(t)
	plan := h.build()
	os.Remove(bus.path)
	r := h.runPlan(plan, "/bin/sh", "-c", call("org.freedesktop.secrets"))
	if r.ExitCode == 0 || len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, "gone") {
		t.Errorf("%+v", r)
	}
}

// BenchmarkSessionBus is what a filtered bus costs a run in which nobody connects to it.
func BenchmarkSessionBus(b *testing.B) {
	l := newListener(b, startBus(b, ""))
	for b.Loop() {
		again, err := listenBus(l.bus)
		if err != nil {
			b.Fatal(err)
		}
		again.close()
	}
}
