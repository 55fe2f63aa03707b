package client

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also a listener of another user's.
func TestMain(m *testing.M) {
	path := os.Getenv("CLIENT_TEST_LISTEN")
	if path == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	os.Chmod(path, 0o666)
	os.Stdout.WriteString("listens\n")
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(0)
		}
		for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != ""; {
		}
		conn.Write([]byte("HTTP/1.0 200 OK\r\n\r\n{\"version\":\"theirs\",\"pid\":1,\"notices\":[]}"))
		conn.Close()
	}
}

// Whoever can make the name of the broker's socket before the broker does is not the broker.
func TestAnotherUsersSocketIsNotTheBroker(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	for name, c := range map[string]struct {
		uid  int
		ours bool
	}{"another user": {65534, false}, "the caller": {0, true}} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/tmp", "clai-sandbox-conn-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			os.Chmod(dir, 0o777)
			program := dir + "/test" // where that user can execute it
			text, err := os.ReadFile(os.Args[0])
			if err == nil {
				err = os.WriteFile(program, text, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
			listener := exec.Command(program)
			listener.Env = []string{"CLIENT_TEST_LISTEN=" + dir + "/socket"}
			listener.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid), NoSetGroups: true}, Pdeathsig: syscall.SIGKILL}
			out, err := listener.StdoutPipe()
			if err == nil {
				err = listener.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Wait()
			defer listener.Process.Kill()
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listens\n" {
				t.Fatalf("%q, %v", line, err)
			}
			s, err := (&Client{Socket: dir + "/socket"}).Status(context.Background())
			if c.ours && (err != nil || s.Version != "theirs") {
				t.Errorf("%+v, %v", s, err)
			}
			if !c.ours && (err == nil || !strings.Contains(err.Error(), "user 65534 listens there, and not 0")) {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}
