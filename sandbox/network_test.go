package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// filtered gives the host's profile a filtered network. allowed and denied are rules with spaces
// between them. All names that end in .example are on this machine's loopback interface, and no
// other name is anywhere.
func (h *host) filtered(allowed, denied string) {
	h.t.Helper()
	h.profile.Network, h.profile.Domains = profile.NetworkFiltered, profile.Domains{}
	for _, list := range []struct {
		text string
		into *[]profile.DomainRule
	}{{allowed, &h.profile.Domains.Allowed}, {denied, &h.profile.Domains.Denied}} {
		for word := range strings.FieldsSeq(list.text) {
			rule, err := profile.ParseDomainRule(word)
			if err != nil {
				h.t.Fatal(err)
			}
			*list.into = append(*list.into, rule)
		}
	}
	h.launcher.resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
		if strings.HasSuffix(name, ".example") {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
}

// needProgram skips a test for a program that the machine does not have where a sandbox shows it.
func needProgram(t *testing.T, name string) {
	t.Helper()
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 {
			return
		}
	}
	t.Skipf("this machine has no %s in its system directories", name)
}

// hello serves "hello from HOST" over HTTP, or HTTPS, on the host's loopback interface, and returns
// the port.
func hello(t *testing.T, start func(http.Handler) *httptest.Server) int {
	t.Helper()
	server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s\n", strings.Split(r.Host, ":")[0])
	}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

func TestCurlReachesWhatIsAllowedAndReadsWhyTheRestIsNot(t *testing.T) {
	needProgram(t, "curl")
	h := newHost(t)
	plain, secure := hello(t, httptest.NewServer), hello(t, httptest.NewTLSServer)
	h.filtered(fmt.Sprintf("*.allowed.example 127.0.0.1:%d 127.0.0.1:%d", plain, secure), "secret.allowed.example")
	for _, url := range []string{fmt.Sprintf("http://www.allowed.example:%d/", plain), fmt.Sprintf("-k https://www.allowed.example:%d/", secure),
		fmt.Sprintf("-x socks5h://%s http://www.allowed.example:%d/", proxyAddress, plain),
		fmt.Sprintf("-p http://www.allowed.example:%d/", plain)} {
		r := h.run("/bin/sh", "-c", "curl -sS "+url)
		if r.Out != "hello from www.allowed.example\n" || r.ExitCode != 0 || len(r.Notices) != 0 {
			t.Errorf("%s: %q %q %v", url, r.Out, r.Err, r.Notices)
		}
	}
	for _, c := range []struct{ options, name, want string }{
		{"http://allowed.example/", "allowed.example:80", "no rule allows it; a person can allow it with --allow-domain allowed.example:80"},
		{"-v https://allowed.example/", "allowed.example:443", "no rule allows it; a person can allow it with --allow-domain allowed.example:443"},
		{fmt.Sprintf("http://secret.allowed.example:%d/", plain), fmt.Sprintf("secret.allowed.example:%d", plain), "the rule secret.allowed.example denies it"},
		{"http://www.allowed.example:1/", "www.allowed.example:1", "it leads to 127.0.0.1, and that is this machine itself"},
		{"http://169.254.169.254/latest/meta-data/", "169.254.169.254:80", "a cloud's metadata service"},
	} {
		r := h.run("/bin/sh", "-c", "curl -sS "+c.options)
		if !strings.Contains(r.Out+r.Err, c.want) {
			t.Errorf("%s does not say %q: %q %q", c.options, c.want, r.Out, r.Err)
		}
		if len(r.Notices) != 1 || r.Notices[0].Kind != NoticeNetwork || !strings.HasPrefix(r.Notices[0].Text, c.name+" is refused: ") || !strings.Contains(r.Notices[0].Text, c.want) {
			t.Errorf("%s: %v", c.options, r.Notices)
		}
	}
	// Another name than that of the connection, on the same address.
	r := h.run("/bin/sh", "-c", fmt.Sprintf("curl -sS -k --connect-to evil.allowed.example:%[1]d:www.allowed.example:%[1]d https://evil.allowed.example:%[1]d/", secure))
	if r.ExitCode == 0 || len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, `the TLS handshake asks for "evil.allowed.example"`) {
		t.Errorf("%q %q %v", r.Out, r.Err, r.Notices)
	}
}

func TestPythonAndOthersFindTheProxyByTheirVariables(t *testing.T) {
	h := newHost(t)
	port := hello(t, httptest.NewServer)
	h.filtered(fmt.Sprintf("a.example 127.0.0.1:%d", port), "")
	out := h.sh(fmt.Sprintf(`python3 -c 'import urllib.request; print(urllib.request.urlopen("http://a.example:%d/").read().decode())'`, port))
	if out != "hello from a.example\n\n" {
		t.Errorf("%q", out)
	}
	out = h.sh("env | grep -i -e _proxy= -e ^GIT_ | sort")
	want := "ALL_PROXY=http://127.0.0.1:17980\nGIT_SSH_COMMAND=ssh -o 'ProxyCommand=/run/clai-sandbox/connect %h %p'\n" +
		"HTTPS_PROXY=http://127.0.0.1:17980\nHTTP_PROXY=http://127.0.0.1:17980\nNODE_USE_ENV_PROXY=1\nNO_PROXY=\n" +
		"all_proxy=http://127.0.0.1:17980\nhttp_proxy=http://127.0.0.1:17980\nhttps_proxy=http://127.0.0.1:17980\nno_proxy=\n"
	if sorted := strings.Join(slices.Sorted(slices.Values(strings.SplitAfter(out, "\n"))), ""); sorted != want {
		t.Errorf("%s\nwant\n%s", sorted, want)
	}
}

func TestAnotherProxyOfTheCallersIsNotPassedOn(t *testing.T) {
	h := newHost(t)
	h.filtered("a.example", "")
	for _, name := range []string{"HTTP_PROXY", "https_proxy", "No_Proxy", "FTP_PROXY", "npm_config_https_proxy", "GIT_SSH_COMMAND"} {
		h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: name, Value: "http://name:password@proxy.example"})
	}
	h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: "PROXY_OF_MINE", Value: "kept"})
	out := h.sh("env")
	if strings.Contains(out, "password") || strings.Contains(strings.ToLower(out), "ftp_proxy") || !strings.Contains(out, "PROXY_OF_MINE=kept") {
		t.Error(out)
	}
	if !strings.Contains(out, "NO_PROXY=localhost,127.0.0.1,::1\n") {
		t.Errorf("the sandbox's own loopback interface is not left out: %s", out)
	}
}

func TestTheSandboxsOwnServersAreReachedDirectly(t *testing.T) {
	needProgram(t, "curl")
	h := newHost(t)
	h.filtered("a.example", "")
	h.sh(`python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 & trap "kill $!" EXIT
		for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do curl -sS http://localhost:8000/ >/dev/null 2>&1 && exit 0; sleep 0.2; done; exit 1`)
}

func TestGitClonesOverHTTPAndHTTPS(t *testing.T) {
	needProgram(t, "git")
	h := newHost(t)
	origin := h.repository(filepath.Join(newDirectory(t), "origin"))
	backend, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	handler := &cgi.Handler{Path: strings.TrimSpace(string(backend)) + "/git-http-backend", Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(origin), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	h.filtered(fmt.Sprintf("git.example 127.0.0.1:%d 127.0.0.1:%d", portOf(plain), portOf(secure)), "")
	h.sh(fmt.Sprintf("git clone -q http://git.example:%d/origin one && grep content one/file", portOf(plain)))
	h.sh(fmt.Sprintf("git -c http.sslVerify=false clone -q https://git.example:%d/origin two && grep content two/file", portOf(secure)))
	r := h.run("/bin/sh", "-c", "git clone -q https://other.example/origin three")
	if r.ExitCode == 0 || len(r.Notices) != 1 || !strings.Contains(r.Err, "403") {
		t.Errorf("%q %v", r.Err, r.Notices)
	}
}

func portOf(server *httptest.Server) int { return server.Listener.Addr().(*net.TCPAddr).Port }

// sshServer starts a real sshd on the loopback interface, which lets in whoever has the key that it
// returns.
func (h *host) sshServer(t *testing.T) (port int, key string) {
	h.t.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		h.t.Skip("this machine has no sshd")
	}
	me, err := user.Current()
	if err != nil {
		h.t.Fatal(err)
	}
	passwd, _ := exec.Command("getent", "passwd", me.Uid).Output()
	if shell := strings.TrimSpace(string(passwd)); strings.HasSuffix(shell, "nologin") || strings.HasSuffix(shell, "false") {
		h.t.Skipf("%s cannot log in: sshd starts the user's shell (%s)", me.Username, shell[strings.LastIndexByte(shell, ':')+1:])
	}
	dir := newDirectory(h.t)
	for _, name := range []string{"host", "key"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/"+name).CombinedOutput(); err != nil {
			h.t.Fatalf("%v %s", err, out)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	port = free.Addr().(*net.TCPAddr).Port
	free.Close()
	config := h.write(dir+"/config", fmt.Sprintf("ListenAddress 127.0.0.1:%d\nHostKey %[2]s/host\nAuthorizedKeysFile %[2]s/key.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n", port, dir))
	line := sshd + " -D -e -f " + config
	if os.Getuid() == 0 { // it wants a directory in /run, which the host need not have
		line = "unshare --mount sh -c 'mount -t tmpfs none /run && mkdir -p /run/sshd && exec " + line + "'"
	}
	log := process.KeepAtMost(4 << 10)
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	waitUntil(t, "sshd listens", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return port, dir + "/key"
}

func TestGitClonesOverSSH(t *testing.T) {
	needProgram(t, "git")
	needProgram(t, "ssh")
	h := newHost(t)
	port, key := h.sshServer(t)
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	inside := h.write(filepath.Join(h.profile.Workspace, "key"), string(text))
	os.Chmod(inside, 0o600)
	origin := h.repository(filepath.Join(newDirectory(t), "origin"))
	me, _ := user.Current()
	h.filtered(fmt.Sprintf("git.example:%d 127.0.0.1:%d", port, port), "")
	options := fmt.Sprintf(" -i %s -p %d -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR", inside, port)
	clone := "GIT_SSH_COMMAND=\"$GIT_SSH_COMMAND" + options + "\" git clone -q " + me.Username + "@%s:" + origin + " %s"
	h.sh(fmt.Sprintf(clone, "git.example", "clone") + " && grep content clone/file")
	h.sh("ssh -o 'ProxyCommand=/run/clai-sandbox/connect %h %p'" + options + " " + me.Username + "@git.example true")
	r := h.run("/bin/sh", "-c", fmt.Sprintf(clone, "other.example", "another"))
	if r.ExitCode == 0 || !strings.Contains(r.Err, fmt.Sprintf("clai-sandbox: other.example:%d is refused: no rule allows it", port)) || len(r.Notices) != 1 {
		t.Errorf("%q %v", r.Err, r.Notices)
	}
}

func TestTheProgramForSSHCarriesBytesAndSaysWhyNot(t *testing.T) {
	h := newHost(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				io.WriteString(conn, "SSH-2.0-server\r\n") // it speaks first
				io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	h.filtered(fmt.Sprintf("ssh.example 127.0.0.1:%d", port), "")
	if out := h.sh(fmt.Sprintf("printf 'SSH-2.0-client\r\n' | %s ssh.example %d", insideProgram, port)); out != "SSH-2.0-server\r\nSSH-2.0-client\r\n" {
		t.Errorf("%q", out)
	}
	for arguments, want := range map[string]string{
		fmt.Sprintf("other.example %d", port): fmt.Sprintf("clai-sandbox: other.example:%d is refused: no rule allows it", port),
		"::1 22":                              "clai-sandbox: [::1]:22 is refused: that is this machine itself",
		"ssh.example 0x16":                    `clai-sandbox: port "0x16" is not a number from 1 to 65535`,
		"'a b' 22":                            `clai-sandbox: not a destination: "a b:22"`,
	} {
		r := h.run("/bin/sh", "-c", insideProgram+" "+arguments+" </dev/null")
		if r.ExitCode != 1 || r.Out != "" || !strings.HasPrefix(r.Err, want) {
			t.Errorf("%s: exit status %d, %q", arguments, r.ExitCode, r.Err)
		}
	}
}

// What a program tries that does not ask the proxy. Each is Python that ends with status 0 if it
// got out, and with notAllowed if the kernel or the proxy said no: anything else is a mistake in
// the attempt, which would tell nothing.
const notAllowed = "3"

func TestAProgramThatIgnoresTheProxyReachesNothing(t *testing.T) {
	h := newHost(t)
	tcp, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	abstract, err := net.Listen("unix", fmt.Sprintf("@clai-sandbox-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	var reached atomic.Int32
	for _, listener := range []net.Listener{tcp, abstract} {
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				conn.Close()
			}
		}()
	}
	go func() {
		for b := make([]byte, 16); ; {
			if _, _, err := udp.ReadFrom(b); err != nil {
				return
			}
			reached.Add(1)
		}
	}()
	addresses := []string{"127.0.0.1", "127.0.0.2", "0.0.0.0"}
	if list, err := net.InterfaceAddrs(); err == nil {
		for _, a := range list {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
				addresses = append(addresses, ip.IP.String())
			}
		}
	}
	tcpPort, udpPort := tcp.Addr().(*net.TCPAddr).Port, udp.LocalAddr().(*net.UDPAddr).Port
	attempts := map[string]string{
		"DNS":                  `socket.getaddrinfo("example.org", 80)`,
		"a name server by UDP": `s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"\0" * 12, ("8.8.8.8", 53))`,
		"a name server by TCP": `socket.create_connection(("8.8.8.8", 53), 2)`,
		"IPv6":                 `socket.create_connection(("2001:4860:4860::8888", 53), 2)`,
		"the host's ::1":       fmt.Sprintf(`socket.create_connection(("::1", %d), 2)`, tcpPort),
		"a raw socket":         `socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)`,
		"a packet socket":      `socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)`,
		"ping":                 `s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); s.sendto(b"\10\0\0\0\0\0\0\0", ("8.8.8.8", 0))`,
		"multicast":            `s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("224.0.0.251", 5353))`,
		"an abstract socket":   fmt.Sprintf(`s = socket.socket(socket.AF_UNIX); s.connect("\0" + %q)`, abstract.Addr().String()[1:]),
		"a new address":        netlinkAttempt(20, `struct.pack("BBBBi", 2, 24, 0, 0, 1) + struct.pack("HH4s", 8, 1, bytes([10, 9, 8, 7])) + struct.pack("HH4s", 8, 2, bytes([10, 9, 8, 7]))`),
		"a default route":      netlinkAttempt(24, `struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("HHi", 8, 4, 1)`),
		"another namespace": `import ctypes; c = ctypes.CDLL(None, use_errno=True)
if c.unshare(0x40000000) < 0: raise OSError(ctypes.get_errno(), "unshare")`,
		"an interface by ioctl":            `import fcntl; s = socket.socket(); fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x1))`,
		"the machine's host":               `socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 22))`,
		"the proxy's own UDP":              `s = socket.create_connection(("127.0.0.1", 17980)); s.send(b"\5\1\0"); s.recv(2); s.send(b"\5\3\0\1\0\0\0\0\0\1"); sys.exit(3 * (s.recv(10)[1] != 0))`,
		"the proxy's own port on the host": `s = socket.create_connection(("127.0.0.1", 17980)); s.send(b"CONNECT 127.0.0.1:17980 HTTP/1.1\r\n\r\n"); sys.exit(3 * (b" 403 " in s.recv(99)))`,
	}
	for _, address := range addresses {
		attempts["TCP to "+address] = fmt.Sprintf(`socket.create_connection((%q, %d), 2)`, address, tcpPort)
		attempts["UDP to "+address] = fmt.Sprintf(`s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((%q, %d)); s.send(b"x"); s.settimeout(0.2); s.send(b"x"); sys.exit(0 if s.recv(1) else 3)`, address, udpPort)
	}
	h.filtered("*", "")
	for name, python := range attempts {
		h.write(filepath.Join(h.profile.Workspace, strings.ReplaceAll(name, " ", "-")+".py"), "import os, socket, struct, sys\ntry:\n "+strings.ReplaceAll(python, "\n", "\n ")+"\nexcept OSError: sys.exit("+notAllowed+")\n")
	}
	out := h.sh(`for f in *.py; do python3 "$f"; s=$?; [ $s = ` + notAllowed + ` ] || echo "$f: $s"; done 2>&1`)
	if out != "" {
		t.Errorf("not stopped: %s", out)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections reached the host", n)
	}
	if out := h.sh("sed 1,2d /proc/net/dev | sed 's/:.*//'; cat /proc/net/route /proc/net/unix | sed 1d"); strings.Contains(out, "eth") || strings.Contains(out, "clai-sandbox-test") {
		t.Errorf("of the host's network is seen: %s", out)
	}
	// The same means work outside, or this test tells nothing.
	outside := exec.Command("python3", "-c", fmt.Sprintf("import socket; socket.create_connection(('127.0.0.1', %d)).recv(1)", tcpPort))
	if out, err := outside.CombinedOutput(); err != nil || reached.Load() == 0 {
		t.Errorf("outside: %v %s", err, out)
	}
}

// netlinkAttempt sends one routing message, and fails if the kernel says no.
func netlinkAttempt(kind int, body string) string {
	return fmt.Sprintf(`b = %s
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
s.send(struct.pack("IHHII", 16 + len(b), %d, 0x605, 1, 0) + b)
sys.exit(3 * (struct.unpack("i", s.recv(99)[16:20])[0] != 0))`, body, kind)
}

func TestTheListenersWayInLeavesNothingOpen(t *testing.T) {
	h := newHost(t)
	h.filtered("*", "")
	for _, terminal := range []bool{false, true} {
		h.launcher.Terminal = terminal
		out := h.sh("for fd in /proc/self/fd/*; do echo ${fd##*/}; done")
		for _, fd := range lines(out) {
			if fd > "3" || len(fd) > 1 { // 3 is the directory that the shell is reading
				t.Errorf("terminal %v: descriptor %s is open inside:\n%s", terminal, fd, out)
			}
		}
		for _, line := range lines(h.sh("ls -l /proc/1/fd | sed -n 's/.* -> //p'")) {
			if strings.HasPrefix(line, "socket:") || strings.HasPrefix(line, "/") && line != "/dev/null" {
				t.Errorf("terminal %v: pid 1 has %s open", terminal, line)
			}
		}
	}
	// The program that ssh uses is the launcher's own: nobody inside changes it.
	h.refused("echo x >> " + insideProgram)
	h.refused("chmod 777 " + insideProgram)
	h.refused("mv " + insideProgram + " /run/clai-sandbox/x || rm " + insideProgram)
}

func TestAFilteredNetworkChangesNothingOfHowCommandsEnd(t *testing.T) {
	for name, change := range map[string]func(*Launcher){
		"as usual":        func(*Launcher) {},
		"without a guard": func(l *Launcher) { l.guard = process.GuardPlain },
		"an old bwrap":    func(l *Launcher) { l.Bwrap.Options = withoutOption(l.Bwrap.Options, optionBindFD) },
		"an old one, on a terminal": func(l *Launcher) {
			l.Bwrap.Options, l.Terminal = withoutOption(l.Bwrap.Options, optionBindFD), true
		},
	} {
		h := newHost(t)
		change(&h.launcher)
		h.launcher.Grace = 100 * time.Millisecond
		h.filtered("*", "")
		if r := h.run("/bin/sh", "-c", "exit 7"); r.ExitCode != 7 || r.Outcome != Exited || r.Failure != nil {
			t.Errorf("%s: %+v", name, r)
		}
		if r := h.run("/bin/sh", "-c", "kill -TERM $$"); r.ExitCode != 143 || r.Outcome != Signalled {
			t.Errorf("%s: %+v", name, r)
		}
		script := h.write(filepath.Join(h.profile.Workspace, "script"), "#!/no/such/interpreter\n")
		os.Chmod(script, 0o755)
		var failed *CommandError
		if r := h.run(script); !errors.As(r.Failure, &failed) {
			t.Errorf("%s: a command that cannot be executed: %v %+v", name, r.Failure, r.Result)
		}
		plan := h.build()
		plan.Limits.Timeout = 200 * time.Millisecond
		if r := h.runPlan(plan, "/bin/sleep", "100"); r.Outcome != TimedOut {
			t.Errorf("%s: %+v", name, r)
		}
		plan = h.build()
		plan.WorkingDirectory = "/no/such/directory"
		var setup *SetupError
		if r := h.runPlan(plan, "/bin/true"); !errors.As(r.Failure, &setup) {
			t.Errorf("%s: %v", name, r.Failure)
		}
	}
}

func TestWhereTheListenerCannotBeOpenedNothingIsRun(t *testing.T) {
	h := newHost(t)
	h.filtered("*", "")
	taken, err := net.Listen("tcp", proxyAddress)
	switch {
	case err == nil:
		defer taken.Close()
	case !errors.Is(err, syscall.EADDRINUSE): // somebody else's will do
		t.Fatal(err)
	}
	if r := h.run("/bin/echo", "its own port"); r.Failure != nil || r.Out == "" {
		t.Errorf("the host's port stands in the way: %v", r.Failure)
	}
	// The trampoline by itself, in the host's namespace, where the port is taken.
	p := &trampoline.List{}
	listenForProxy(p, 2, 20)
	p.Execute([]string{"/bin/echo", "ran all the same"}, "", nil)
	program, err := trampoline.Seal("trampoline", p.Program(1))
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(program), "trampoline")
	defer file.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.Output()
	what, errno, failed := trampoline.ReadReport(out)
	if len(out) != 5 || !failed || what != trampoline.ReportSetup || errno != unix.EADDRINUSE || err == nil {
		t.Errorf("%q %c %v %v", out, what, errno, err)
	}
}

func TestAPersonCanBeAskedForANameWhileTheCommandWaits(t *testing.T) {
	needProgram(t, "curl")
	h := newHost(t)
	port := hello(t, httptest.NewServer)
	h.filtered(fmt.Sprintf("127.0.0.1:%d", port), "")
	var asked []string
	h.launcher.Reach = &Reach{}
	h.launcher.AskNetwork = func(_ context.Context, to profile.Destination) string {
		asked = append(asked, to.Name)
		if to.Name == "yes.example" {
			rule, err := profile.ParseDomainRule(to.String())
			if err != nil {
				t.Error(err)
			}
			h.launcher.Reach.Set(profile.Domains{Allowed: append(slices.Clone(h.profile.Domains.Allowed), rule)})
		}
		return "a person said no"
	}
	r := h.run("/bin/sh", "-c", fmt.Sprintf("for name in yes.example yes.example no.example; do curl -sS http://$name:%d/; done", port))
	if !strings.HasPrefix(r.Out, strings.Repeat("hello from yes.example\n", 2)+"clai-sandbox: no.example") || strings.Join(asked, " ") != "yes.example no.example" || len(r.Notices) != 1 {
		t.Errorf("%q, asked %v, %v", r.Out, asked, r.Notices)
	}
}

func TestSandboxesDoNotShareTheirProxies(t *testing.T) {
	needProgram(t, "curl")
	one, other := newHost(t), newHost(t)
	port := hello(t, httptest.NewServer)
	one.filtered(fmt.Sprintf("one.example 127.0.0.1:%d", port), "")
	other.filtered(fmt.Sprintf("other.example 127.0.0.1:%d", port), "")
	script := fmt.Sprintf("sleep 0.3; for name in one other; do curl -sS http://$name.example:%d/; done", port)
	results := make(chan ran, 2)
	for _, h := range []*host{one, other} {
		go func() { results <- h.run("/bin/sh", "-c", script) }()
	}
	for range 2 {
		if r := <-results; strings.Count(r.Out, "hello from") != 1 || len(r.Notices) != 1 {
			t.Errorf("%q %v", r.Out, r.Notices)
		}
	}
}

func TestNamesFromInsideReachNoticesQuotedAndBounded(t *testing.T) {
	h := newHost(t)
	h.filtered("a.example", "")
	r := h.run("/usr/bin/python3", "-c", `
import socket
def ask(kind, host):
    s = socket.create_connection(("127.0.0.1", 17980))
    s.sendall(b"\5\1\0\5\1\0\3" + bytes([len(host)]) + host + b"\1\273"); s.recv(99); s.close()
ask(3, b"\33[2J\n\342\200\256evil")
ask(3, b"x" * 255)
for i in range(60): ask(3, b"n%d.example" % i)
`)
	if len(r.Notices) != 21 || r.Failure != nil || r.ExitCode != 0 {
		t.Fatalf("%d notices, %v %s", len(r.Notices), r.Failure, r.Err)
	}
	for _, n := range r.Notices {
		if n.Kind != NoticeNetwork || len(n.Text) > 500 || strings.ContainsFunc(n.Text, func(c rune) bool { return c < ' ' || c > '~' && c != '…' }) {
			t.Errorf("%q", n.Text)
		}
	}
	if last := r.Notices[20].Text; last != "the network refused 42 more connections" {
		t.Error(last)
	}
}

func TestADryRunOfAFilteredNetworkHasNone(t *testing.T) {
	h := newHost(t)
	h.filtered("*", "")
	plan := h.build()
	line := plan.ShellCommand(h.launcher.Bwrap, []string{"/bin/true"})
	if !strings.Contains(line, "--unshare-net") || strings.Contains(line, ownProgram) {
		t.Error(line)
	}
	if text, err := json.Marshal(plan.Steps); err != nil || !strings.Contains(string(text), insideProgram) {
		t.Errorf("%s %v", text, err)
	}
}

// With a proxy as companies have them, which wants a password.
func TestAFilteredNetworkTakesTheWayThroughACompanysProxy(t *testing.T) {
	needProgram(t, "curl")
	needProgram(t, "tinyproxy")
	h := newHost(t)
	address := ownAddress(t) // what a loopback address has, no proxy is asked for
	at := func(start func(*httptest.Server)) func(http.Handler) *httptest.Server {
		return func(handler http.Handler) *httptest.Server {
			server := httptest.NewUnstartedServer(handler)
			server.Listener.Close()
			var err error
			if server.Listener, err = net.Listen("tcp", net.JoinHostPort(address, "0")); err != nil {
				t.Skip(err)
			}
			start(server)
			return server
		}
	}
	plain, secure := hello(t, at((*httptest.Server).Start)), hello(t, at((*httptest.Server).StartTLS))
	h.filtered(address, "denied.example")
	port, log := freePort(t), filepath.Join(h.launcher.State, "proxy.log")
	settings := h.write(filepath.Join(h.launcher.State, "proxy.conf"), fmt.Sprintf("Port %d\nListen 127.0.0.1\nLogFile \"%s\"\nLogLevel Connect\nBasicAuth me secret\nMaxClients 20\n", port, log))
	proxy := exec.Command("tinyproxy", "-d", "-c", settings)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Process.Kill(); proxy.Wait() })
	awaitListener(t, port)
	via := &profile.UpstreamProxy{Host: "127.0.0.1", Port: port, Authorization: "Basic bWU6c2VjcmV0"}
	h.profile.Upstream = profile.Upstream{Plain: via, Tunnel: via}
	for _, url := range []string{fmt.Sprintf("http://%s:%d/", address, plain), fmt.Sprintf("-k https://%s:%d/", address, secure)} {
		r := h.run("/bin/sh", "-c", "curl -sS "+url+"; env")
		if !strings.HasPrefix(r.Out, "hello from "+address+"\n") || strings.Contains(r.Out, "secret") || strings.Contains(r.Out, "bWU6") {
			t.Errorf("%s: %q %q", url, r.Out, r.Err)
		}
	}
	if r := h.run("/bin/sh", "-c", "curl -sS http://denied.example/ http://other.example/"); strings.Count(r.Out, "is refused: ") != 2 {
		t.Errorf("%q", r.Out)
	}
	via.Authorization = ""
	if r := h.run("/bin/sh", "-c", fmt.Sprintf("curl -sS http://%s:%d/", address, plain)); !strings.Contains(r.Out, "it wants other credentials (407)") {
		t.Errorf("%q", r.Out)
	}
	asked, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(asked), fmt.Sprintf("CONNECT %s:%d", address, secure)) || strings.Contains(string(asked), "denied.example") {
		t.Errorf("%v, it says:\n%s", err, asked)
	}
}

// ownAddress is one of this machine's that is no loopback address.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip := a.(*net.IPNet).IP; ip.To4() != nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			return ip.String()
		}
	}
	t.Skip("this machine has no other address")
	return ""
}
