package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// A session bus that a sandboxed command could be behind would answer for the person.
func TestNoSessionBusOfACommandsIsAskedForThePerson(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"project", "run", ".local/state/clai-sandbox"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	account := filepath.Join(home, ".local/state/clai-sandbox", profile.WrittenName)
	if err := os.WriteFile(account, []byte("0 0 \""+home+"/project\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/project/bus", "/run/bus"} {
		l, err := net.Listen("unix", home+path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	t.Setenv("XDG_RUNTIME_DIR", home+"/run")
	c := profile.Caller{UID: os.Getuid(), Home: home}
	good := "unix:path=" + home + "/run/bus"
	for address, want := range map[string]string{
		"":                                   good,
		"unix:runtime=yes":                   good,
		good + ",guid=0123456789abcdef":      good,
		"unix:path=" + home + "/project/bus": "",
		"unix:path=" + home + "/project/bus;" + good: good,
		"unixexec:path=/bin/true":                    "",
		"autolaunch:":                                "",
		"unix:path=" + home + "/run/none":            "",
		"nothing":                                    "",
	} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		if got := sessionBus(c); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}
