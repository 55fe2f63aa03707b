package process

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// A Meter lets so many bytes of a command's output through, and tells when there are more. Nil
// measures nothing.
type Meter struct {
	over chan struct{} // closed when there are more

	mu   sync.Mutex
	left int64
	done bool
}

// NewMeter lets limit bytes through. 0 is no limit.
func NewMeter(limit int64) *Meter {
	if limit == 0 {
		return nil
	}
	return &Meter{over: make(chan struct{}), left: limit}
}

// Measure puts the meter between the command and its streams. Where both lead to the same file they
// become one, so that what is written to them stays in its order. Without a meter they stay as they
// are: no byte passes through this process.
func (m *Meter) Measure(stdio Stdio) Stdio {
	if m == nil {
		return stdio
	}
	same := sameFile(stdio.Out, stdio.Err)
	for _, stream := range []*io.Writer{&stdio.Out, &stdio.Err} {
		if *stream != nil {
			*stream = &metered{m, *stream}
		}
	}
	if same {
		stdio.Err = stdio.Out
	}
	return stdio
}

func sameFile(a, b io.Writer) bool {
	one, isFile := a.(*os.File)
	other, both := b.(*os.File)
	if !isFile || !both {
		return false
	}
	info, err := one.Stat()
	otherInfo, otherErr := other.Stat()
	return err == nil && otherErr == nil && os.SameFile(info, otherInfo)
}

// Overflow is closed when there was too much output.
func (m *Meter) Overflow() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.over
}

// Exceeded reports whether there was too much output.
func (m *Meter) Exceeded() bool {
	select {
	case <-m.Overflow():
		return true
	default:
		return false
	}
}

// take returns how many of n bytes may still pass.
func (m *Meter) take(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	pass := int(min(int64(n), m.left))
	m.left -= int64(pass)
	if pass < n && !m.done {
		m.done = true
		close(m.over)
	}
	return pass
}

// metered is a stream behind a meter.
type metered struct {
	meter *Meter
	to    io.Writer
}

// Write takes everything, so that a command that is about to be ended is not held up by what it
// still writes.
func (m *metered) Write(p []byte) (int, error) {
	if pass := m.meter.take(len(p)); pass > 0 {
		if n, err := m.to.Write(p[:pass]); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// A Bounded keeps the beginning of what is written to it.
type Bounded struct {
	bytes.Buffer
	limit int
}

// KeepAtMost keeps so many bytes.
func KeepAtMost(limit int) *Bounded { return &Bounded{limit: limit} }

func (b *Bounded) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
