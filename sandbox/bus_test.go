package sandbox

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/bus"
	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
)

// call is a shell command that calls a service on the session bus, where its name stands for it.
func call(destination string) string {
	return callAt(destination, bustest.Objects[destination])
}

// callAt calls one of its objects.
func callAt(destination string, at bustest.Object) string {
	at.Path, at.Face = cmp.Or(at.Path, "/"), cmp.Or(at.Face, "org.example.Test")
	member := "Echo"
	if at.Face == "org.freedesktop.Notifications" {
		member = "GetServerInformation"
	}
	return "dbus-send --session --print-reply=literal --reply-timeout=5000 --dest=" + destination + " " + at.Path + " " + at.Face + "." + member + " string:hello"
}

func TestAFilteredBusLetsThroughTheListedNamesAndNoOthers(t *testing.T) {
	h, bus := newBusHost(t)
	listed := bus.Serve("org.freedesktop.secrets", "org.freedesktop.Notifications", "org.freedesktop.portal.Desktop")
	unlisted := bus.Serve("org.freedesktop.systemd1", "org.gnome.Shell", "org.example.Other", "org.freedesktop.portals")
	for _, name := range []string{"org.freedesktop.secrets", "org.freedesktop.Notifications", "org.freedesktop.portal.Desktop"} {
		if out := h.sh(call(name)); !strings.Contains(out, "hello") {
			t.Errorf("%s answered %q", name, out)
		}
	}
	for _, name := range []string{"org.freedesktop.systemd1", "org.gnome.Shell", "org.example.Other", "org.freedesktop.portals", unlisted.Names()[0],
		"org.example.Activatable"} {
		h.refused(call(name))
	}
	ask := func(method string) string {
		return "dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus." + method + " 2>&1 || true"
	}
	names := h.sh(ask("ListNames") + "; " + ask("ListActivatableNames"))
	if !strings.Contains(names, "org.freedesktop.secrets") || strings.Contains(names, "org.gnome.Shell") ||
		strings.Contains(names, "org.example") || strings.Contains(names, "systemd1") {
		t.Errorf("the names inside: %s", names)
	}
	for _, method := range []string{"GetNameOwner string:org.gnome.Shell", "GetConnectionUnixProcessID string:org.gnome.Shell",
		"StartServiceByName string:org.example.Activatable uint32:0", "RequestName string:org.example.Mine uint32:0",
		"AddMatch string:eavesdrop=true"} {
		if out := h.sh(ask(method)); !strings.Contains(out, "Error") && method[:3] != "Add" {
			t.Errorf("%s: %s", method, out)
		}
	}
	h.refused("dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.Monitoring.BecomeMonitor array:string: uint32:0")
	if calls := unlisted.Called(); calls != nil {
		t.Errorf("calls that reached unlisted services: %v", calls)
	}
	if calls := listed.Called(); len(calls) != 3 {
		t.Errorf("calls that reached the listed services: %v", calls)
	}
	if _, err := os.Stat(bus.Marker); err == nil {
		t.Error("a program was started outside")
	}
}

func TestEveryKindOfClientConnects(t *testing.T) {
	h, bus := newBusHost(t)
	bus.Serve("org.freedesktop.secrets")
	for program, command := range map[string]string{
		"dbus-send": call("org.freedesktop.secrets"),
		"gdbus":     "gdbus call --session --dest org.freedesktop.secrets --object-path /org/freedesktop/secrets --method org.freedesktop.Secret.Session.Echo hello",
		"busctl":    "busctl --user call org.freedesktop.secrets /org/freedesktop/secrets org.freedesktop.Secret.Session Echo s hello",
	} {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("no %s", program)
			}
			if out := h.sh(command); !strings.Contains(out, "hello") {
				t.Error(out)
			}
		})
	}
}

func TestADeniedBusIsNotThere(t *testing.T) {
	h, bus := newBusHost(t)
	service := bus.Serve("org.freedesktop.secrets")
	h.profile.SessionBus = profile.SessionBusDeny
	if out := h.sh("echo \"[$DBUS_SESSION_BUS_ADDRESS]\"; ls -A /run/clai-sandbox 2>/dev/null; true"); out != "[]\n" {
		t.Error(out)
	}
	h.refused(call("org.freedesktop.secrets"))
	h.refused("DBUS_SESSION_BUS_ADDRESS='" + bus.Address + "' " + call("org.freedesktop.secrets"))
	plan := h.build()
	if calls := service.Called(); calls != nil || plan.Notices != nil || plan.Bus.Place != "" {
		t.Errorf("%v %v", calls, plan.Notices)
	}
}

func TestAnOpenBusIsReachedAndTold(t *testing.T) {
	h, bus := newBusHost(t)
	bus.Serve("org.gnome.Shell")
	h.profile.SessionBus = profile.SessionBusAllow
	r := h.run("/bin/sh", "-c", call("org.gnome.Shell")+"; "+strings.Replace(call("org.example.Activatable"), "5000", "200", 1))
	if !strings.Contains(r.Out, "hello") {
		t.Error(r.Out, r.Err, r.Failure)
	}
	if _, err := os.Stat(bus.Marker); err != nil {
		t.Error("the bus is not open, or what it starts leaves no trace, and then the test of a filtered one shows nothing:", err)
	}
	if len(r.Notices) != 1 || r.Notices[0].Kind != NoticeSessionBus || !strings.Contains(r.Notices[0].Text, "outside the sandbox") {
		t.Errorf("notices %v", r.Notices)
	}
}

func TestTheBusIsFoundByEveryFormOfItsAddress(t *testing.T) {
	bustest.NeedProxy(t)
	odd := filepath.Join(newDirectory(t), "a b,c;d=é%\\*")
	quoted := bus.Address{Transport: "unix", Keys: map[string]string{"path": odd}}.String()
	run, linked := newDirectory(t), filepath.Join(newDirectory(t), "linked")
	os.Symlink(run, linked)
	gone := filepath.Join(newDirectory(t), "gone")
	dead := filepath.Join(newDirectory(t), "dead")
	deadSocket(t, dead)
	abstract := fmt.Sprintf("clai-sandbox test %d", os.Getpid())
	unnamed := bus.Address{Transport: "unix", Keys: map[string]string{"abstract": abstract}}.String()
	for name, c := range map[string]struct{ listen, address, runtime string }{
		"path":                        {quoted, quoted, ""},
		"path and guid":               {quoted, quoted + ",guid=0123456789abcdef0123456789abcdef", ""},
		"runtime":                     {"unix:path=" + run + "/bus", "unix:runtime=yes", run},
		"runtime through a link":      {"unix:path=" + run + "/bus", "unix:runtime=yes", linked},
		"no address":                  {"unix:path=" + run + "/bus", "", run},
		"abstract":                    {unnamed, unnamed, ""},
		"the second of two":           {quoted, "unix:path=" + gone + ";" + quoted, ""},
		"after one that nobody hears": {quoted, "unix:path=" + dead + ";" + quoted, ""},
		"after other transports":      {quoted, "tcp:host=localhost,port=1;unixexec:path=/bin/false;autolaunch:;" + quoted, ""},
		"abstract after a dead path":  {unnamed, "unix:path=" + dead + ";" + unnamed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(odd)
			os.Remove(run + "/bus")
			h, bus := newHost(t), bustest.Start(t, c.listen)
			bus.Serve("org.freedesktop.secrets")
			h.profile.SessionBusNames = profile.DefaultSessionBusNames
			h.profile.SessionBusAddress, h.profile.RuntimeDirectory = c.address, c.runtime
			for _, mode := range []profile.SessionBus{profile.SessionBusFiltered, profile.SessionBusAllow} {
				h.profile.SessionBus = mode
				r := h.run("/bin/sh", "-c", call("org.freedesktop.secrets"))
				if !strings.Contains(r.Out, "hello") {
					t.Errorf("%s: %q %q %v %v", mode, r.Out, r.Err, r.Notices, r.Failure)
				}
			}
		})
	}
}

// deadSocket makes the file of a socket that nobody listens at.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	if err := exec.Command("python3", "-c", "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", path).Run(); err != nil {
		t.Fatal(err)
	}
}

func TestAnotherUsersSocketIsNoBus(t *testing.T) {
	needRoot(t)
	h, bus := newBusHost(t)
	service := bus.Serve("org.freedesktop.secrets")
	if err := os.Chown(bus.Path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []profile.SessionBus{profile.SessionBusFiltered, profile.SessionBusAllow} {
		h.profile.SessionBus = mode
		plan := h.build()
		if plan.Bus.Place != "" || len(plan.Notices) != 1 || !strings.Contains(plan.Notices[0].Text, "another user") {
			t.Errorf("%s: %+v %v", mode, plan.Bus, plan.Notices)
		}
	}
	os.Chown(bus.Path, 0, 0)
	h.profile.SessionBus = profile.SessionBusFiltered
	plan := h.build()
	os.Chown(bus.Path, 65534, 65534) // between the plan and the first connection
	r := h.runPlan(plan, "/bin/sh", "-c", call("org.freedesktop.secrets"))
	if r.ExitCode == 0 || len(r.Notices) != 1 || service.Called() != nil {
		t.Errorf("%s %v", r.Out, r.Notices)
	}
}

// busTree is a fake host with sockets: those of the caller's, and others.
type busTree struct {
	fakeTree
	own, others []string
}

func (b busTree) Lstat(path string) (Object, error) {
	switch {
	case slices.Contains(b.own, path):
		return Object{Mode: fs.ModeSocket | 0o666, UID: uint32(os.Getuid())}, nil
	case slices.Contains(b.others, path):
		return Object{Mode: fs.ModeSocket | 0o666, UID: uint32(os.Getuid()) + 1}, nil
	case filepath.Base(path) == bus.ProxyName && b.fakeTree[path] != "":
		return Object{Mode: 0o755}, nil
	}
	return b.fakeTree.Lstat(path)
}

func TestWhatAPlanSaysOfTheBus(t *testing.T) {
	const proxy, run = "/usr/bin/xdg-dbus-proxy x", "/run/user/7"
	const covered, none, leftOut = "covered: ", "no session bus for the command: ", "left out: "
	const here = "/d/bus"
	rw := grant("/d", profile.ReadWrite, profile.OriginConfig)
	for name, c := range map[string]struct {
		tree    []string
		own     []string
		change  func(*profile.Profile)
		place   string
		notices []string
	}{
		"filtered":           {[]string{proxy}, []string{run + "/bus"}, nil, busPlace, nil},
		"no bus":             {[]string{proxy}, nil, nil, "", nil},
		"no bus, no proxy":   {nil, nil, nil, "", nil},
		"no proxy":           {nil, []string{run + "/bus"}, nil, "", []string{none + whyNoBusProxy}},
		"proxy not for all":  {[]string{"/home/u/work/xdg-dbus-proxy x"}, []string{run + "/bus"}, searching("/home/u/work"), "", []string{none + whyNoBusProxy}},
		"proxy behind links": {[]string{"/usr/local/bin -> /home/u/work", "/home/u/work/xdg-dbus-proxy x"}, []string{run + "/bus"}, nil, "", []string{none + whyNoBusProxy}},
		"proxy in PATH":      {[]string{"/opt/p/xdg-dbus-proxy x"}, []string{run + "/bus"}, searching("relative:/opt/p"), "", []string{none + whyNoBusProxy}},
		"a file":             {[]string{proxy, run + "/bus"}, nil, nil, "", []string{none + run + "/bus: not a socket"}},
		"not an address":     {[]string{proxy}, []string{run + "/bus"}, addressed("unix:path=/a b"), "", []string{none + "D-Bus address"}},
		"tcp":                {[]string{proxy}, []string{run + "/bus"}, addressed("tcp:host=h"), "", []string{none + "tcp:host=h: the transport tcp is not used"}},
		"an address alone":   {[]string{proxy}, []string{run + "/bus"}, addressed("unix:path=/gone"), "", nil},
		"its directory":      {[]string{proxy}, []string{here}, changed(addressed("unix:path="+here), granted(rw)), busPlace, []string{covered}},
		"two of them":        {[]string{proxy}, []string{here, "/d/systemd/private"}, changed(addressed("unix:path="+here), granted(rw), runtimeIn("/d")), busPlace, []string{covered, covered}},
		"the socket itself":  {[]string{proxy}, []string{here}, changed(addressed("unix:path="+here), granted(grant(here, profile.ReadOnly, profile.OriginFlag))), busPlace, []string{covered}},
		"denied but granted": {[]string{proxy}, []string{here}, changed(addressed("unix:path="+here), granted(rw), busMode(profile.SessionBusDeny)), "", []string{covered}},
		"open and granted":   {[]string{proxy}, []string{here}, changed(addressed("unix:path="+here), granted(rw), busMode(profile.SessionBusAllow)), busPlace, []string{noticeBusOpen}},
		"/run is a link":     {[]string{proxy, "/etc/resolv.conf -> /run/r", "/run -> /var/run", "/var/run/r"}, []string{here}, addressed("unix:path=" + here), "", []string{none + whyNoBusPlace}},
		"open without one":   {[]string{proxy}, nil, busMode(profile.SessionBusAllow), "", nil},
		"a mode from where?": {[]string{proxy}, []string{run + "/bus"}, busMode(77), "", nil},
		"no names":           {[]string{proxy}, []string{run + "/bus"}, named(), "", nil},
		"bad names":          {[]string{proxy}, []string{run + "/bus"}, named("*", "org.*", ".*", "org", "a.b=c", "--log", ":1.5", "a..b", "a.1b", "org.ok.*"), busPlace, slices.Repeat([]string{leftOut}, 9)},
		"names that lead out": {[]string{proxy}, []string{run + "/bus"}, named("org.freedesktop.systemd1", "org.freedesktop.*", "org.gnome.Shell.*", "org.gnome.Shellfish"),
			busPlace, slices.Repeat([]string{noticeBusOpen + ", because"}, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeProfile(home)
			p.SessionBus, p.SessionBusNames, p.RuntimeDirectory = profile.SessionBusFiltered, profile.DefaultSessionBusNames, run
			if c.change != nil {
				c.change(&p)
			}
			plan, err := Build(p, busTree{fakeTree: newFakeTree(slices.Concat(usual, c.tree, []string{"/d/systemd/", run + "/"})...), own: c.own})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Bus.Place != c.place || len(plan.Notices) != len(c.notices) {
				t.Fatalf("place %q, notices %v", plan.Bus.Place, plan.Notices)
			}
			for i, n := range plan.Notices {
				if n.Kind != NoticeSessionBus || !strings.HasPrefix(n.Text, c.notices[i]) {
					t.Errorf("notice %v, want %s", n, c.notices[i])
				}
			}
			if found := slices.ContainsFunc(plan.Environment, func(v profile.Variable) bool { return v.Name == busVariable }); found != (c.place != "") ||
				!slices.IsSortedFunc(plan.Environment, func(a, b profile.Variable) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("environment %v", plan.Environment)
			}
		})
	}
	tree := busTree{fakeTree: newFakeTree(append(usual, proxy)...), others: []string{run + "/bus"}}
	p := fakeProfile(home)
	p.SessionBus, p.RuntimeDirectory = profile.SessionBusAllow, run
	tree.fakeTree["/run/user/7"], tree.fakeTree["/run/user"], tree.fakeTree["/run"] = "/", "/", "/"
	if plan, err := Build(p, tree); err != nil || plan.Bus.Place != "" || len(plan.Notices) != 1 {
		t.Errorf("another user's bus: %+v %v %v", plan.Bus, plan.Notices, err)
	}
}

func addressed(text string) func(*profile.Profile) {
	return func(p *profile.Profile) { p.SessionBusAddress = text }
}

func searching(text string) func(*profile.Profile) {
	return func(p *profile.Profile) { p.Environment[1].Value = text }
}

func runtimeIn(dir string) func(*profile.Profile) {
	return func(p *profile.Profile) { p.RuntimeDirectory = dir }
}

func busMode(m profile.SessionBus) func(*profile.Profile) {
	return func(p *profile.Profile) { p.SessionBus = m }
}

func named(list ...string) func(*profile.Profile) {
	return func(p *profile.Profile) { p.SessionBusNames = list }
}

func granted(list ...profile.Grant) func(*profile.Profile) {
	return func(p *profile.Profile) { p.Grants = append(p.Grants, list...) }
}

func changed(changes ...func(*profile.Profile)) func(*profile.Profile) {
	return func(p *profile.Profile) {
		for _, change := range changes {
			change(p)
		}
	}
}

func TestExplainAndDoctorTellOfTheBus(t *testing.T) {
	h, daemon := newBusHost(t)
	for _, c := range []struct {
		change func()
		text   string
		state  CheckState
		args   bool // the command line that people read shows the socket
	}{
		{func() {}, "filtered: org.freedesktop.secrets, org.freedesktop.portal.*, org.freedesktop.Notifications, through /", CheckOK, false},
		{func() { h.profile.SessionBus = profile.SessionBusAllow }, "allow: all of it, a way out of the sandbox", CheckWeak, true},
		{func() { h.profile.SessionBus = profile.SessionBusDeny }, "deny", CheckOK, false},
		{func() { h.profile.SessionBus, h.tree = profile.SessionBusFiltered, hiding{bus.ProxyName} }, "filtered: " + whyNoBusProxy, CheckWeak, false},
		{func() { h.tree, h.profile.SessionBusAddress = Host{}, "unix:path=/nowhere" }, "filtered: " + whyNoBus, CheckOK, false},
		{func() { h.profile.SessionBusAddress = "unix:path=" }, "filtered: D-Bus address", CheckWeak, false},
	} {
		c.change()
		plan := h.build()
		check := checkSessionBus(&plan)
		if text := plan.DescribeBus(); !strings.HasPrefix(text, c.text) || check.State != c.state || check.Found != text {
			t.Errorf("%q, want %q; %+v", text, c.text, check)
		}
		if shown := slices.Contains(plan.Args(), busPlace); shown != c.args {
			t.Errorf("%s: %q", c.text, plan.Args())
		}
		if sight := plan.Look(h.tree, busPlace); sight.Visible != (plan.Bus.Place != "") {
			t.Errorf("%s: %+v", c.text, sight)
		}
	}
	h.profile.SessionBusAddress = daemon.Address
	plan := h.build()
	os.Remove(daemon.Path)
	deadSocket(t, daemon.Path)
	if check := checkSessionBus(&plan); check.State != CheckWeak || !strings.Contains(check.Found, "refused") {
		t.Errorf("a bus that does not answer: %+v", check)
	}
}

// hiding is the host without one program.
type hiding struct{ program string }

func (h hiding) Lstat(path string) (Object, error) {
	if filepath.Base(path) == h.program {
		return Object{}, fs.ErrNotExist
	}
	return Host{}.Lstat(path)
}

func (h hiding) Readlink(path string) (string, error) { return Host{}.Readlink(path) }
func (h hiding) ReadDir(path string) ([]Entry, error) { return Host{}.ReadDir(path) }
func (h hiding) ReadFile(path string, limit int) (string, error) {
	return Host{}.ReadFile(path, limit)
}
