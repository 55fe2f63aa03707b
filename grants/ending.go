package grants

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is the time of day, and how long the machine has been up, suspended or not. Anybody with
// the right to can set the first, nobody the second.
type Clock func() (day time.Time, up time.Duration)

// MachineClock is the Clock of this machine.
func MachineClock() (time.Time, time.Duration) {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Now(), 0
	}
	return time.Now(), time.Duration(up.Nano())
}

// Endings tell when grants are over: at the time of day that they say, or after as long as that was
// away when the grant became known, whichever comes first. So a clock that is set back makes no
// grant longer. The zero value goes by the machine's clock; it is not safe for concurrent use.
type Endings struct {
	Clock Clock
	known map[string]ending // by the grant's id
}

type ending struct {
	at int64         // the time of day
	up time.Duration // and the time up
}

func (e *Endings) now() (time.Time, time.Duration) {
	if e.Clock != nil {
		return e.Clock()
	}
	return MachineClock()
}

// Note begins to count the time of a grant. Of one that is known, with the time that it had, the
// count goes on.
func (e *Endings) Note(g Grant) {
	if was, known := e.known[g.ID]; known && was.at == g.ExpiresAtUnixMs {
		return
	}
	delete(e.known, g.ID)
	if g.ExpiresAtUnixMs == 0 {
		return
	}
	if e.known == nil {
		e.known = map[string]ending{}
	}
	day, up := e.now()
	e.known[g.ID] = ending{g.ExpiresAtUnixMs, up + time.UnixMilli(g.ExpiresAtUnixMs).Sub(day)}
}

// Forget ends the count of a grant.
func (e *Endings) Forget(id string) { delete(e.known, id) }

// Left is how long a grant still holds, 0 or less if it is over, and whether it has an end.
func (e *Endings) Left(g Grant) (left time.Duration, ends bool) {
	if g.ExpiresAtUnixMs == 0 {
		return 0, false
	}
	day, up := e.now()
	left = time.UnixMilli(g.ExpiresAtUnixMs).Sub(day)
	if is, known := e.known[g.ID]; known && is.at == g.ExpiresAtUnixMs {
		left = min(left, is.up-up)
	}
	return left, true
}

// Over reports whether a grant's time is over.
func (e *Endings) Over(g Grant) bool {
	left, ends := e.Left(g)
	return ends && left <= 0
}

// maxAlarm is how long an alarm waits at most, should the clock be set on.
const maxAlarm = time.Minute

// An Alarm calls a function once.
type Alarm struct {
	stopped atomic.Bool
	file    *os.File
	timer   *time.Timer // where the kernel has no such file for it
}

// NewAlarm calls do after a time, or after a minute if that is longer. The time counts while the
// machine is suspended, too: then it is called when that wakes.
func NewAlarm(after time.Duration, do func()) *Alarm {
	after = min(max(after, time.Millisecond), maxAlarm)
	a := &Alarm{}
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err == nil {
		if err = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}, nil); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		a.timer = time.AfterFunc(after, do)
		return a
	}
	a.file = os.NewFile(uintptr(fd), "alarm")
	go func() {
		defer a.file.Close()
		if _, err := a.file.Read(make([]byte, 8)); err == nil && !a.stopped.Load() {
			do()
		}
	}()
	return a
}

// Stop keeps an alarm from calling, unless it has begun to. Stop of a nil Alarm does nothing.
func (a *Alarm) Stop() {
	switch {
	case a == nil:
	case a.timer != nil:
		a.timer.Stop()
	default:
		a.stopped.Store(true)
		a.file.Close()
	}
}
