package mounts

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// newSilent is a mounter at whose other end is the test.
func newSilent(t *testing.T) (m *Mounter, other int) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ends[0]); unix.Close(ends[1]) })
	if err := unix.SetsockoptTimeval(ends[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000}); err != nil {
		t.Fatal(err)
	}
	return &Mounter{socket: ends[0]}, ends[1]
}

// answer says what a mounter says to a list of one call: a tag, and a result for it and for each of
// the four that answer.
func answer(t *testing.T, other int, result byte) {
	if _, err := unix.Write(other, []byte{8: result, 31: 0}); err != nil {
		t.Fatal(err)
	}
}

func TestAnAnswerThatComesTooLateIsNotTakenForTheNext(t *testing.T) {
	m, other := newSilent(t)
	s := m.script()
	s.do(unix.SYS_GETPID)
	if err := s.flush(); !errors.Is(err, trampoline.ErrSilent) {
		t.Errorf("no answer: %v", err)
	}
	answer(t, other, 1)
	s = m.script()
	s.do(unix.SYS_GETPID)
	if err := s.flush(); !errors.Is(err, trampoline.ErrSilent) {
		t.Errorf("the answer to the one before: %v", err)
	}
}

func TestTheAnswerToWhatNobodyWaitsForIsNotTakenForTheNext(t *testing.T) {
	m, other := newSilent(t)
	chores := m.script()
	chores.try(unix.SYS_GETPID)
	chores.sendOff()
	answer(t, other, 1)
	answer(t, other, 2)
	s := m.script()
	r := s.do(unix.SYS_GETPID)
	if err := s.flush(); err != nil || r.value != 2 {
		t.Errorf("%d, %v", r.value, err)
	}
}

func TestAMounterThatHasEnteredNoSandboxMountsNothing(t *testing.T) {
	m, err := Start(-1, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.script()
	r := s.do(unix.SYS_GETPID)
	if err := s.flush(); err == nil || r.value > 0 {
		t.Errorf("%d, %v", r.value, err)
	}
	m.Enter(0) // there is no such process
	s = m.script()
	s.do(unix.SYS_GETPID)
	for range 2 {
		if err := s.flush(); !errors.Is(err, ErrRefused) {
			t.Errorf("%v", err)
		}
	}
}
