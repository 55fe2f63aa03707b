package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/image"
	"github.com/clairun/clai-sandbox/sandbox/image/unpack"
)

// A Base is a Debian system to be made.
type Base struct {
	Suite    string
	Mirror   string
	Include  []string
	Progress io.Writer
}

// buildName is the directory in which a system is made. Whatever is in it is removed by the next
// command.
const buildName = "build"

// check refuses words that a program could take for something else.
func (b *Base) check() error {
	words := append([]string{b.Suite, b.Mirror}, b.Include...)
	for _, word := range words {
		if word == "" || word[0] == '-' || strings.ContainsAny(word, " ,;|'\"\\\n\x00") {
			return &Error{"not a suite, an archive's address or a package: " + profile.Printable(word), "clai-sandbox image build-base --help says what they are"}
		}
	}
	return nil
}

// Build makes a Debian system by the program that is installed for that, and an image of it.
func (s *Store) Build(ctx context.Context, b Base, name string, budget unpack.Budget) (*image.Image, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	if err := profile.CheckImage(name); err != nil {
		return nil, &Error{err.Error(), "choose another name"}
	}
	if _, err := os.Lstat(image.File(s.dir, name)); err == nil {
		return nil, &Error{"there is an image " + name, "remove it first: clai-sandbox image remove " + name}
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, buildName)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, err := b.make(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, s.sweep())
	}
	made, err := s.Import(ctx, source, name, budget)
	return made, err
}

// make makes the system, and returns what is to be imported.
func (b *Base) make(ctx context.Context, dir string) (string, error) {
	include := ""
	if len(b.Include) > 0 {
		include = "--include=" + strings.Join(b.Include, ",")
	}
	if path, err := exec.LookPath("mmdebstrap"); err == nil {
		archive := filepath.Join(dir, "system.tar")
		return archive, b.run(ctx, path, include, "--variant=minbase", "--", b.Suite, archive, b.Mirror)
	}
	path, err := exec.LookPath("debootstrap")
	if err == nil && os.Geteuid() == 0 {
		tree := filepath.Join(dir, "system")
		return tree, b.run(ctx, path, include, "--variant=minbase", "--", b.Suite, tree, b.Mirror)
	}
	if err == nil {
		return "", &Error{"debootstrap works for root alone", "install mmdebstrap: sudo apt install mmdebstrap"}
	}
	return "", &Error{"neither mmdebstrap nor debootstrap is installed", "sudo apt install mmdebstrap"}
}

// maxSaid is how much is kept of what a program said.
const maxSaid = 4 << 10

func (b *Base) run(ctx context.Context, path string, args ...string) error {
	if args[0] == "" {
		args = args[1:]
	}
	said := &tail{}
	command := exec.CommandContext(ctx, path, args...)
	command.Stdout, command.Stderr = said, said
	if b.Progress != nil {
		fmt.Fprintf(b.Progress, "clai-sandbox: %s makes %s; this takes a minute or more\n", filepath.Base(path), profile.Printable(b.Suite))
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &Error{fmt.Sprintf("%s: %v: %s", filepath.Base(path), err, profile.Printable(said.last())), buildHint()}
	}
	return nil
}

// buildHint is what mends most of what can be wrong.
func buildHint() string {
	if os.Geteuid() != 0 {
		return "as an ordinary user it takes subordinate ids in /etc/subuid and the package uidmap; or root makes an archive, and you import it"
	}
	return "look whether the suite is one of that archive, and whether the network is there"
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if len(t.text) > maxSaid {
		t.text = append([]byte(nil), t.text[len(t.text)-maxSaid:]...)
	}
	return len(p), nil
}

// last are the last lines that say something.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
