package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestSecretToolReachesTheKeyring uses the real thing at both ends.
func TestSecretToolReachesTheKeyring(t *testing.T) {
	for _, program := range []string{"secret-tool", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s (libsecret-tools, gnome-keyring)", program)
		}
	}
	h, bus := newBusHost(t)
	outside := append(os.Environ(), busVariable+"="+bus.Address, "HOME="+newDirectory(t), "XDG_RUNTIME_DIR="+newDirectory(t))
	keyring := exec.Command("gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
	keyring.Env, keyring.Stdin = outside, strings.NewReader("password")
	if err := keyring.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keyring.Process.Kill()
		keyring.Wait()
	})
	observer := bus.Serve()
	waitUntil(t, "the keyring is on the bus", func() bool {
		var owned bool
		err := observer.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, "org.freedesktop.secrets").Store(&owned)
		return err == nil && owned
	})
	if out := h.sh("printf hush | secret-tool store --label=test service example && secret-tool lookup service example"); out != "hush" {
		t.Errorf("inside: %q", out)
	}
	lookup := exec.Command("secret-tool", "lookup", "service", "example")
	lookup.Env = outside
	if out, err := lookup.Output(); string(out) != "hush" {
		t.Errorf("outside: %q %v", out, err)
	}
}
