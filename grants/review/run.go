package review

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
)

// ErrNoTerminal means that nobody could see the screen, or press a key.
var ErrNoTerminal = errors.New("grants review needs a terminal; in a script, use grants pending, allow and deny")

// Run shows the screen until the person leaves it, or the context ends.
func Run(ctx context.Context, broker grants.Broker, in, out *os.File) error {
	for _, stream := range []*os.File{in, out} {
		if _, err := unix.IoctlGetTermios(int(stream.Fd()), unix.TCGETS); err != nil {
			return ErrNoTerminal
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := broker.Pending(ctx); err != nil { // told before the screen is taken
		return err
	}
	program := tea.NewProgram(newModel(ctx, broker), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	go follow(ctx, broker, program.Send)
	_, err := program.Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// again is how long to wait before a broker that went away is looked for again.
const again = time.Second

// follow tells the screen what happens. Events are asked for before the list, so that nothing is
// missed in between.
func follow(ctx context.Context, broker grants.Broker, send func(tea.Msg)) {
	for ctx.Err() == nil {
		events, err := broker.Events(ctx, grants.EventsFrom{})
		var list []grants.Request
		if err == nil {
			list, err = broker.Pending(ctx)
		}
		if err == nil {
			send(pendingMsg(list))
			for e := range events {
				send(eventMsg(e))
			}
			err = errors.New("it is gone; looking for it again")
		}
		if ctx.Err() != nil {
			return
		}
		send(lostMsg{err})
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}
