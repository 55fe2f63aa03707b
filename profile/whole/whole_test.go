package whole

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestOnAFullDiskOnlyWhatTakesNoMoreRoomIsWritten(t *testing.T) {
	dir := os.Getenv("WHOLE_TEST_DISK")
	if dir == "" {
		command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		command.Env = append(os.Environ(), "WHOLE_TEST_DISK="+t.TempDir())
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Fatal(err)
	}
	path := dir + "/file"
	if err := Write(path, ".file-", []byte("what was there\n")); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	if err := os.WriteFile(dir+"/full", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, want string
		err        error
	}{
		{"what was there, and more\n", "what was there\n", syscall.ENOSPC},
		{"what was\n", "what was\n      ", nil},
		{"{}", "{}" + strings.Repeat(" ", 13), nil},
	} {
		err := Write(path, ".file-", []byte(c.text))
		if text, _ := os.ReadFile(path); string(text) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v", c.text, text, err)
		}
	}
	if now, err := os.Stat(path); err != nil || !now.ModTime().After(before.ModTime()) || now.Mode() != 0o600 {
		t.Errorf("%v, %v", now, err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 2 {
		t.Errorf("%v is left", names)
	}
}
