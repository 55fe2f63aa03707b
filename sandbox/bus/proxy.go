package bus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

const (
	// endTimeout bounds the wait for a proxy that was killed.
	endTimeout = 10 * time.Second
	// proxyTimeout is how long a new proxy may take until it listens, and a running one until it
	// takes a connection.
	proxyTimeout = 5 * time.Second
	// maxProxyMemory bounds, in bytes of address space, what a command can make the proxy hold: it
	// keeps all that a client has asked for and does not read.
	maxProxyMemory = 1 << 30
)

// A proxy is a running xdg-dbus-proxy. The kernel ends it with this process, and so does the end of
// the pipe that it watches.
type proxy struct {
	process *process.Process
	alive   *os.File        // closed, the proxy ends
	ended   chan struct{}   // closed when it has
	socket  descriptor.File // where it listens
	said    *process.Bounded
}

// startProxy starts xdg-dbus-proxy before the servers, with a socket in the directory, and waits
// until it listens.
func (bus Bus) startProxy(ctx context.Context, directory directory) (*proxy, error) {
	if err := process.TrustProgram(bus.Proxy); err != nil {
		return nil, err
	}
	address, files, err := bus.pinServers()
	defer func() {
		for i := range files {
			files[i].Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	alive, ready, err := descriptor.Pipe()
	if err != nil {
		return nil, err
	}
	unix.SetNonblock(int(alive), true)
	p := &proxy{alive: os.NewFile(uintptr(alive), "proxy"), ended: make(chan struct{}), said: process.KeepAtMost(1 << 10)}
	inherited := append(files[:len(files):len(files)], directory.fd, ready)
	place := 2 + len(inherited) // of the last one there
	argv := []string{ProxyName, address, fmt.Sprintf("/proc/self/fd/%d/%s", place-1, proxySocketName), "--filter", "--fd=" + strconv.Itoa(place)}
	for _, name := range bus.Names {
		argv = append(argv, rules(name)...)
	}
	started := make(chan error)
	go p.attend(bus.Proxy, argv, inherited, started)
	err = <-started
	ready.Close()
	if err == nil {
		err = p.waitReady(ctx)
	}
	if err == nil {
		p.socket, err = directory.open(proxySocketName)
	}
	if err != nil {
		p.end()
		return nil, fmt.Errorf("%s: %w %s", bus.Proxy, err, text.Name(p.said.String()))
	}
	return p, nil
}

// attend starts the proxy and stays until it has ended: the kernel kills it when the thread that
// started it is gone. That thread is not confined as a sandbox's is: an abstract socket may be
// where the bus listens.
func (p *proxy) attend(path string, argv []string, files []descriptor.File, started chan<- error) {
	runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
	defer close(p.ended)
	err := process.DropCapabilities()
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		// In a process group of its own: what a terminal sends to the command's is not for the
		// proxy.
		attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		p.process, err = process.Start(path, argv, process.Stdio{Err: p.said}, files, attr)
	}
	if err != nil {
		started <- err
		return
	}
	memory := unix.Rlimit{Cur: maxProxyMemory, Max: maxProxyMemory}
	started <- unix.Prlimit(p.process.PID(), unix.RLIMIT_AS, &memory, nil)
	p.process.Wait()
}

// waitReady waits for the byte that the proxy writes when it listens.
func (p *proxy) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { p.alive.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := p.alive.Read(make([]byte, 1)); err != nil {
		if ctx.Err() != nil {
			return errors.New("it did not begin to listen in time")
		}
		return errors.New("it ended at once")
	}
	return nil
}

// running reports whether the proxy has not ended.
func (p *proxy) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end ends the proxy.
func (p *proxy) end() {
	p.alive.Close()
	if p.process != nil && p.process.PID() > 0 {
		p.process.Kill()
	}
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
	}
	p.socket.Close()
}

// pinServers opens the servers' sockets as they are now. The proxy gets descriptors, so that it
// connects to what was checked here, and to nothing that is put in its place.
func (bus Bus) pinServers() (address string, files []descriptor.File, err error) {
	var failure error
	for _, server := range bus.Servers {
		own := Address{Transport: "unix", Keys: map[string]string{}}
		if server.Path == "" {
			probe, err := server.connect()
			if err != nil {
				failure = err
				continue
			}
			probe.Close()
			own.Keys["abstract"] = server.Abstract
		} else {
			file, err := server.pin()
			if err != nil {
				failure = err
				continue
			}
			files = append(files, file)
			own.Keys["path"] = fmt.Sprintf("/proc/self/fd/%d", 2+len(files))
		}
		if address != "" {
			address += ";"
		}
		address += own.String()
	}
	if address == "" {
		return "", files, fmt.Errorf("the session bus is gone: %w", failure)
	}
	return address, files, nil
}

// pin opens the socket at the server's path, if it is the caller's.
func (s Server) pin() (descriptor.File, error) {
	file, err := descriptor.Pin(s.Path)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", text.Name(s.Path), err)
	}
	var stat unix.Stat_t
	err = unix.Fstat(int(file), &stat)
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = errors.New("not a socket")
	}
	if err == nil && int(stat.Uid) != os.Getuid() {
		err = errors.New("it belongs to another user")
	}
	if err != nil {
		file.Close()
		return 0, fmt.Errorf("%s: %w", text.Name(s.Path), err)
	}
	return file, nil
}

// connect connects to the server. Nobody owns a name among the abstract sockets, but who listens
// there is known.
func (s Server) connect() (descriptor.File, error) {
	if s.Path != "" {
		file, err := s.pin()
		if err != nil {
			return 0, err
		}
		defer file.Close()
		return connect(fmt.Sprintf("/proc/self/fd/%d", file))
	}
	d, err := connect("@" + s.Abstract)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", text.Name(s.String()), err)
	}
	peer, err := unix.GetsockoptUcred(int(d), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && int(peer.Uid) != os.Getuid() {
		err = errors.New("it belongs to another user")
	}
	if err != nil {
		d.Close()
		return 0, fmt.Errorf("%s: %w", text.Name(s.String()), err)
	}
	return d, nil
}

// connect connects to a unix socket, and waits a while where that has no room for one more.
func connect(name string) (descriptor.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	d := descriptor.File(fd)
	timeout := unix.NsecToTimeval(int64(proxyTimeout))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		d.Close()
		return 0, err
	}
	return d, nil
}
