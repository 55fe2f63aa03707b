package sandbox

import (
	"os/exec"
	"testing"
)

// In pairs: a command of a session, and the same by fork and exec without a sandbox.
func BenchmarkSessionStartsTrue(b *testing.B) {
	h := newHost(b)
	s := h.openSession()
	b.Run("session", func(b *testing.B) {
		for b.Loop() {
			p, err := s.Start(Command{Argv: []string{"/bin/true"}})
			if err == nil {
				_, err = p.Wait()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fork and exec", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
