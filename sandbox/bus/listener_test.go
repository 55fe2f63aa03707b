package bus

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

func TestTheSocketIsTheCallersAlone(t *testing.T) {
	l := newListener(t, bustest.Start(t, ""))
	for path, want := range map[string]string{l.directory.path: "drwx------", filepath.Join(l.directory.path, socketName): "Srw-------"} {
		if info, err := os.Lstat(path); err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v %v, want %s", path, info.Mode(), err, want)
		}
	}
	shared := processtest.Directory(t)
	os.Chmod(shared, 0o777)
	d, err := newDirectory([]string{shared, filepath.Join(shared, "gone"), "/proc"})
	if err != nil || filepath.Dir(d.path) != filepath.Clean(os.TempDir()) {
		t.Errorf("%s, %v", d.path, err)
	}
	d.remove()
}

func TestFilesGoThroughBothWays(t *testing.T) {
	bus := bustest.Start(t, "")
	bus.Serve("org.freedesktop.secrets")
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
	bus := bustest.Start(t, "")
	bus.Serve("org.freedesktop.secrets")
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

func TestConnectionsAreBounded(t *testing.T) {
	l := newListener(t, bustest.Start(t, ""))
	hello := fmt.Appendf(nil, "\x00AUTH EXTERNAL %x\r\n", fmt.Append(nil, os.Getuid()))
	answered := make(chan net.Conn, 100)
	ask := func(c net.Conn) {
		c.Write(hello)
		if _, err := c.Read(make([]byte, 100)); err == nil {
			answered <- c
		}
	}
	for range maxConnections {
		go ask(l.knock(t))
	}
	var first []net.Conn
	for range maxConnections {
		first = append(first, <-answered)
	}
	for range 6 {
		go ask(l.knock(t))
	}
	select {
	case <-answered:
		t.Errorf("a connection more than %d was served", maxConnections)
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
	bus := bustest.Start(t, "")
	bus.Serve("org.freedesktop.secrets")
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
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "ended 8 times") {
		t.Error(err)
	}
}

func TestAProxyThatDoesNotWorkIsTold(t *testing.T) {
	bus := bustest.Start(t, "")
	scripts := processtest.Directory(t)
	for name, text := range map[string]string{
		"fails":  "#!/bin/sh\necho broken >&2; exit 1\n",
		"others": "#!/bin/sh\nsleep 1000\n",
		"gone":   "",
	} {
		t.Run(name, func(t *testing.T) {
			proxy := filepath.Join(scripts, name)
			if text != "" {
				os.WriteFile(proxy, []byte(text), 0o644)
				os.Chmod(proxy, map[string]os.FileMode{"fails": 0o755, "others": 0o777}[name])
			}
			l := newListenerWith(t, bus, proxy)
			if _, err := dbus.Connect("unix:path=" + l.name()); err == nil {
				t.Error("connected")
			}
			err := l.Close()
			want := map[string]string{"fails": "broken", "others": "mode 0777", "gone": "no such file"}[name]
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

func TestAProxyThatHangsDoesNotHoldTheRunUp(t *testing.T) {
	proxy := filepath.Join(processtest.Directory(t), "hangs")
	if err := os.WriteFile(proxy, []byte("#!/bin/sh\nexec tail -f /dev/null "+proxy+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := newListenerWith(t, bustest.Start(t, ""), proxy)
	l.knock(t)
	processtest.Until(t, "it was started", func() bool { return processtest.Naming(proxy) != nil })
	began := time.Now()
	l.Close()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if left := processtest.Naming(proxy); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

func TestAClientThatSaysNothingSensibleHarmsNobodyElse(t *testing.T) {
	bus := bustest.Start(t, "")
	bus.Serve("org.freedesktop.secrets")
	l := newListener(t, bus)
	for _, said := range []string{"", "\x00", "\n\n\n\n", "\x00BEGIN\r\n" + strings.Repeat("l\x01", 5000), strings.Repeat("A", 3*bufferSize), "\x00AUTH\r\nBEGIN\r\nBEGIN\r\n"} {
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

// BenchmarkSessionBus is what a filtered bus costs a run in which nobody connects to it.
func BenchmarkSessionBus(b *testing.B) {
	l := newListener(b, bustest.Start(b, ""))
	for b.Loop() {
		again, err := Listen(l.bus)
		if err != nil {
			b.Fatal(err)
		}
		again.Close()
	}
}
