package grants

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestAGrantIsOverByWhicheverClockIsFirst(t *testing.T) {
	began := time.UnixMilli(1_800_000_000_000)
	const hour, upFirst = time.Hour, 5 * time.Hour
	for name, c := range map[string]struct {
		day, up time.Duration // since it became known
		over    bool
	}{
		"too early":                            {hour - time.Second, hour - time.Second, false},
		"in time":                              {hour, hour, true},
		"the clock was set back":               {-24 * hour, hour, true},
		"it was set back, and its time is not": {-24 * hour, hour - time.Second, false},
		"it was set on":                        {hour, time.Second, true},
	} {
		day, up := began, upFirst
		e := Endings{Clock: func() (time.Time, time.Duration) { return day, up }}
		g := Grant{ID: "g", ExpiresAtUnixMs: began.Add(hour).UnixMilli()}
		e.Note(g)
		day, up = began.Add(c.day), upFirst+c.up
		e.Note(g) // known already: it is no longer for that
		if e.Over(g) != c.over {
			t.Errorf("%s: over %v", name, !c.over)
		}
		if left, ends := e.Left(g); !ends || (left <= 0) != c.over {
			t.Errorf("%s: %v left", name, left)
		}
		later := g
		later.ExpiresAtUnixMs = day.Add(hour).UnixMilli()
		if e.Note(later); e.Over(later) {
			t.Errorf("%s: what was given anew is over", name)
		}
		e.Forget("g")
		if len(e.known) != 0 {
			t.Errorf("%s: %v is left", name, e.known)
		}
		g.ExpiresAtUnixMs = 0
		if e.Note(g); e.Over(g) || len(e.known) != 0 {
			t.Errorf("%s: without an end", name)
		}
	}
	day, up := MachineClock()
	if again, later := MachineClock(); up <= 0 || later < up || again.Before(day) {
		t.Errorf("%v %v, then %v %v", day, up, again, later)
	}
}

func TestAnAlarmCountsWhileTheMachineIsSuspended(t *testing.T) {
	rang := make(chan bool, 1)
	a := NewAlarm(time.Hour, func() { rang <- true })
	if a.file == nil {
		t.Skip("this kernel has no such timer")
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, entry := range list {
		text, _ := os.ReadFile("/proc/self/fdinfo/" + entry.Name())
		found = found || strings.Contains(string(text), "clockid: 7\n") // CLOCK_BOOTTIME
	}
	if !found {
		t.Error("it goes by another clock")
	}
	a.Stop()
	NewAlarm(0, func() { rang <- true })
	<-rang
	select {
	case <-rang:
		t.Error("one that was stopped has rung")
	default:
	}
	(*Alarm)(nil).Stop()
}
