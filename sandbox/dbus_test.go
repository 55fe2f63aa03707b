package sandbox

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func TestABusAddressIsReadAsTheSpecificationHasIt(t *testing.T) {
	for text, want := range map[string]string{
		"unix:path=/run/user/1000/bus":           "unix path=/run/user/1000/bus",
		"unix:path=/a,guid=0123":                 "unix guid=0123 path=/a",
		"unix:path=/with%20space%2c":             "unix path=/with space,",
		"unix:abstract=/tmp/dbus-x,guid=1;":      "unix abstract=/tmp/dbus-x guid=1",
		"unix:runtime=yes":                       "unix runtime=yes",
		"tcp:host=localhost,port=1;unix:path=/b": "tcp host=localhost port=1|unix path=/b",
		"autolaunch:":                            "autolaunch",
		"nonce-tcp:noncefile=%2Ftmp%2Fx":         "nonce-tcp noncefile=/tmp/x",
		"unix":                                   "error",
		"unix:path":                              "error",
		":path=/a":                               "error",
		"unix:=/a":                               "error",
		"unix:path=/a,":                          "unix path=/a",
		"unix:path=/a,path=/b":                   "error",
		"unix:path=%2":                           "error",
		"unix:path=%zz":                          "error",
		"unix:path=/with space":                  "error",
		"unix:path=/a\n":                         "error",
		strings.Repeat("unix:path=/a;", 100):     "error",
		strings.Repeat("x", 20<<10):              "error",
	} {
		list, err := ParseBusAddress(text)
		var words []string
		for _, a := range list {
			word := a.Transport
			for _, key := range slices.Sorted(maps.Keys(a.Keys)) {
				word += " " + key + "=" + a.Keys[key]
			}
			words = append(words, word)
		}
		got := strings.Join(words, "|")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%.60q: %q %v, want %q", text, got, err, want)
		}
	}
}

func FuzzBusAddress(f *testing.F) {
	f.Add("unix:path=/a,guid=0;unix:abstract=x%20y;tcp:host=h")
	f.Add("unix:path=%00%ff")
	f.Add("unix:")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseBusAddress(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("the message is more than a line of text: %q", err)
			}
			return
		}
		// What was read can be written, and reads the same.
		var entries []string
		for _, a := range list {
			entries = append(entries, a.String())
		}
		if again, err := ParseBusAddress(strings.Join(entries, ";")); err == nil && fmt.Sprint(again) != fmt.Sprint(list) {
			t.Errorf("%v, then %v", list, again)
		} else if err != nil && len(text) < maxBusAddressText/3 {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// startBus runs a real session bus, and returns its socket.
func startBus(t *testing.T) string {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip(err)
	}
	socket := newDirectory(t) + "/bus"
	cmd := exec.Command(daemon, "--session", "--nofork", "--nopidfile", "--print-address=1", "--address=unix:path="+socket)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q %v", line, err)
	}
	return socket
}

const listNames = "dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames"

func TestTheSessionBusIsOpenOnlyWhereThatIsSaid(t *testing.T) {
	if _, err := exec.LookPath("dbus-send"); err != nil {
		t.Skip(err)
	}
	h := newHost(t)
	h.profile.SessionBusAddress = "unix:path=/nowhere;unix:path=" + startBus(t) + ",guid=00"
	for _, mode := range []profile.SessionBus{profile.SessionBusDeny, profile.SessionBusFiltered} {
		h.profile.SessionBus = mode
		h.refused(listNames)
		h.refused("test -e " + insideBus)
		h.refused("test -n \"$DBUS_SESSION_BUS_ADDRESS\"")
		if plan := h.build(); len(plan.Notices) != 0 {
			t.Errorf("%s: %v", mode, plan.Notices)
		}
	}
	h.profile.SessionBus = profile.SessionBusAllow
	if out := h.sh(listNames); !strings.Contains(out, "org.freedesktop.DBus") {
		t.Error(out)
	}
	plan := h.build()
	if len(plan.Notices) != 1 || plan.Notices[0].Kind != NoticeSessionBus || !strings.Contains(plan.Notices[0].Text, "outside the sandbox") {
		t.Errorf("%v", plan.Notices)
	}
}

func TestTheBusIsFoundOrItIsSaidWhyNot(t *testing.T) {
	dir := newDirectory(t)
	listener, err := net.Listen("unix", dir+"/bus")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	os.WriteFile(dir+"/file", nil, 0o600)
	os.Symlink("bus", dir+"/link")
	for _, c := range []struct{ address, runtime, want, err string }{
		{"unix:path=" + dir + "/bus", "", dir + "/bus", ""},
		{"unix:path=" + dir + "/link", "", dir + "/bus", ""},
		{"", dir, dir + "/bus", ""},
		{"unix:runtime=yes", dir, dir + "/bus", ""},
		{"tcp:host=x;unix:path=/gone;unix:path=" + dir + "/bus", "", dir + "/bus", ""},
		{"", "", "", "does not exist"},
		{"", "/nowhere", "", "does not exist"},
		{"unix:path=" + dir + "/gone", dir, "", "does not exist"},
		{"unix:path=" + dir + "/file", "", "", "not a socket"},
		{"unix:path=relative", "", "", "does not exist"},
		{"unix:abstract=x", "", "", "abstract"},
		{"unix:path=%", "", "", "hexadecimal"},
	} {
		got, err := findBus(Host{}, profile.Profile{SessionBusAddress: c.address, RuntimeDirectory: c.runtime})
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s in %q: %q, %v", c.address, c.runtime, got, err)
		}
	}
	if os.Getuid() == 0 {
		os.Chown(dir+"/bus", 4321, 4321)
		if got, err := findBus(Host{}, profile.Profile{RuntimeDirectory: dir}); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("another's socket: %q, %v", got, err)
		}
	}
}
