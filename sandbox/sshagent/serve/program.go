package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// Program is the program that a launcher starts. It ends when the launcher does.
func Program() error {
	// Nobody of the same user looks into it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	listening := os.NewFile(sshagent.ListenerFD, "listener")
	listener, err := net.FileListener(listening)
	listening.Close()
	if err != nil {
		return err
	}
	launcher := os.NewFile(sshagent.LauncherFD, "launcher")
	lines := bufio.NewScanner(launcher)
	lines.Buffer(nil, sshagent.MaxLine)
	var setup sshagent.Setup
	if !lines.Scan() {
		return errors.New("no setup came")
	}
	if err := json.Unmarshal(lines.Bytes(), &setup); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := link{to: json.NewEncoder(launcher), waiting: map[int]chan sshagent.Answer{}}
	server := New(setup, l.ask, func(refused string) { l.send(sshagent.Report{Refused: refused}) })
	go func() {
		defer cancel()
		for lines.Scan() {
			var answer sshagent.Answer
			if json.Unmarshal(lines.Bytes(), &answer) != nil {
				return
			}
			l.answer(answer)
		}
	}()
	err = server.Serve(ctx, listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// link is the way to the launcher.
type link struct {
	mu      sync.Mutex
	to      *json.Encoder
	last    int
	waiting map[int]chan sshagent.Answer
}

func (l *link) send(r sshagent.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.to.Encode(r) // without a launcher, this ends as well
}

func (l *link) ask(ctx context.Context, q sshagent.Question) sshagent.Answer {
	l.mu.Lock()
	l.last++
	id, answer := l.last, make(chan sshagent.Answer, 1)
	l.waiting[id] = answer
	_ = l.to.Encode(sshagent.Report{ID: id, Ask: &q})
	l.mu.Unlock()
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		return sshagent.Answer{}
	}
}

func (l *link) answer(a sshagent.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waiting := l.waiting[a.ID]; waiting != nil {
		delete(l.waiting, a.ID)
		waiting <- a
	}
}
