package socket

import (
	"os"
	"path/filepath"
	"testing"
)

func TestADirectoryThatOthersEnterIsClosedToThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	os.Mkdir(dir, 0o755)
	os.Chmod(dir, 0o755)
	l, err := Listen(filepath.Join(dir, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(dir + "/x.sock"); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
}

func TestASocketInAForeignDirectoryIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := t.TempDir()
	os.Chown(dir, 12345, 12345)
	if l, err := Listen(filepath.Join(dir, "x.sock")); err == nil {
		l.Close()
		t.Error("it listens")
	}
	os.Chown(dir, 0, 0)
	write := filepath.Join(dir, "file")
	os.WriteFile(write, []byte("precious"), 0o600)
	if _, err := Listen(write); err == nil {
		t.Error("a file was replaced by a socket")
	}
}
