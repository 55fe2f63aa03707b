package sandbox

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/egress"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A filtered network is a network namespace with a loopback interface and nothing else. One
// listener stands in it, and this process, which is outside, serves it with the proxy of package
// egress. The trampoline opens the listener before it becomes the command, and hands it out through
// a socket; so no program of ours stays inside, and a command that does not ask the proxy is as cut
// off as with no network.

const (
	proxyAddress = "127.0.0.1:" + proxyPortText
	// proxyPort is below the ports that the kernel gives out by itself, and common for nothing.
	proxyPort     = 17980
	proxyPortText = "17980"
	// proxyBacklog are the connections that may wait for the proxy.
	proxyBacklog = 128

	// insideProgram is this program, inside: what ssh reaches the proxy with.
	insideProgram = "/run/clai-sandbox/connect"
	// ownProgram is its source. Who carries the plan out is not the plan's to know.
	ownProgram = "/proc/self/exe"
)

// network shows what a command needs to find the proxy.
func (b *builder) network() {
	if b.profile.Network == profile.NetworkFiltered {
		b.layers.put(Step{Kind: Bind, Path: insideProgram, Source: ownProgram, Access: profile.ReadOnly, Origin: baseline, file: true})
	}
}

// proxyVariables tell programs of the proxy. By HTTP everywhere, because some programs refuse to
// start if they are told of a SOCKS proxy and lack a library for it. The sandbox's own loopback
// interface is left out, unless the rules allow the host's.
func proxyVariables(p *profile.Profile) []profile.Variable {
	const url = "http://" + proxyAddress
	direct := "localhost,127.0.0.1,::1"
	if p.Domains.Loopback() {
		direct = ""
	}
	origin := profile.Origin{Kind: profile.OriginBaseline, Source: "filtered network"}
	var list []profile.Variable
	for _, v := range [][2]string{{"HTTP_PROXY", url}, {"HTTPS_PROXY", url}, {"ALL_PROXY", url}, {"NO_PROXY", direct}} {
		list = append(list, profile.Variable{Name: v[0], Value: v[1], Origin: origin},
			profile.Variable{Name: strings.ToLower(v[0]), Value: v[1], Origin: origin})
	}
	return append(list,
		profile.Variable{Name: sshCommandVariable, Value: "ssh -o 'ProxyCommand=" + insideProgram + " %h %p'", Origin: origin},
		profile.Variable{Name: "NODE_USE_ENV_PROXY", Value: "1", Origin: origin})
}

// proxied is the command's environment with the way to the proxy, where there is one.
func proxied(p *profile.Profile, list []profile.Variable) []profile.Variable {
	if p.Network != profile.NetworkFiltered {
		return list
	}
	ours := proxyVariables(p)
	list = slices.DeleteFunc(slices.Clone(list), func(v profile.Variable) bool {
		return namesProxy(v.Name) || slices.ContainsFunc(ours, func(o profile.Variable) bool { return o.Name == v.Name })
	})
	return append(list, ours...)
}

// namesProxy reports whether a variable would name another proxy: it could not be reached, and may
// hold a password.
func namesProxy(variable string) bool {
	return strings.HasSuffix(strings.ToLower(variable), "_proxy")
}

// listenForProxy lists the calls that open the proxy's listener, at a descriptor that must be free,
// and send it through the channel.
func listenForProxy(p *trampoline.List, channel, listener int) {
	socket := p.Call(0, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	p.Call(0, unix.SYS_FCNTL, p.Result(socket), unix.F_DUPFD_CLOEXEC, uint64(listener))
	address := p.Put([]byte{unix.AF_INET, 0, proxyPort >> 8, proxyPort & 0xff, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}) // struct sockaddr_in
	p.Call(0, unix.SYS_BIND, uint64(listener), address, 16)
	p.Call(0, unix.SYS_LISTEN, uint64(listener), proxyBacklog)
	p.Call(0, unix.SYS_SENDMSG, uint64(channel), rights(p, listener), 0)
}

// rights adds a message of one byte that carries a descriptor: struct msghdr of sendmsg(2).
func rights(p *trampoline.List, fd int) uint64 {
	const space = 24 // CMSG_SPACE of one descriptor
	control := p.Words(20, unix.SCM_RIGHTS<<32|unix.SOL_SOCKET, uint64(fd))
	vector := p.Words(p.Put([]byte{0}), 1)
	return p.Words(0, 0, vector, 1, control, space, 0)
}

// receiveListener takes the listener out of the channel, and closes that: what comes later may be
// the command's.
func receiveListener(channel *net.UnixConn) (net.Listener, error) {
	defer channel.Close()
	fd, err := descriptor.Receive(channel)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	return net.FileListener(file)
}

// A Reach is what a filtered network reaches while its command runs. Hand a new one to
// Launcher.Reach before Run, and call Set, from any goroutine.
type Reach struct {
	mu    sync.Mutex
	proxy *egress.Proxy
	rules *profile.Domains // what was set before there was a proxy
}

// Set makes the network reach what these rules allow. Connections that they do not allow are ended
// before it returns.
func (r *Reach) Set(rules profile.Domains) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rules = &rules; r.proxy != nil {
		r.proxy.SetRules(rules)
	}
}

func (r *Reach) begin(p *egress.Proxy) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proxy = p; r.rules != nil {
		p.SetRules(*r.rules)
	}
}

// serveNetwork serves the listener once it comes, until endNetwork. If none comes, the sandbox has
// ended before its command began.
func (a *attempt) serveNetwork() {
	if a.proxy == nil {
		return
	}
	go func() {
		if listener, err := receiveListener(a.channel); err == nil {
			a.proxy.Serve(listener)
		}
	}()
}

// endNetwork ends the proxy, and notes what it refused. The sandbox has ended.
func (a *attempt) endNetwork() {
	if a.proxy == nil {
		return
	}
	a.channel.Close()
	a.proxy.Close()
	list, more := a.proxy.Refusals()
	for _, refusal := range list {
		a.plan.Notices = append(a.plan.Notices, Notice{Kind: NoticeNetwork, Domain: refusal.To, Text: refusal.Error()})
	}
	if more > 0 {
		a.plan.notice(NoticeNetwork, "", fmt.Sprintf("the network refused %d more connections", more))
	}
}

// connectMain is the program that ssh reaches the proxy with: it connects its streams to host and
// port, and returns its exit status.
func connectMain(host, port string) int {
	if _, err := profile.ParsePort(port); err != nil {
		fmt.Fprintf(os.Stderr, "clai-sandbox: %v\n", err)
		return 1
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if err := egress.Connect(proxyAddress, host+":"+port, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
