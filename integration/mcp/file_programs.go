package mcp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/integration/mcp/files"
	"github.com/clairun/clai-sandbox/sandbox"
)

// filePrograms are the programs in a room that carry out file tools. One that has answered is kept
// for the next request: to start one takes longer than what it does. A command can end or stop one,
// as any other process of the session; into what it is asked and answers it cannot get. So one that
// does not answer, or not as it should, is thrown away.
type filePrograms struct {
	mu   sync.Mutex
	idle []*fileProgram
	over bool
}

// maxIdlePrograms bounds those that wait for a request.
const maxIdlePrograms = 2

type fileProgram struct {
	process *sandbox.Process
	in, out *os.File
}

func (f *fileProgram) end() {
	f.process.Signal(unix.SIGKILL)
	f.in.Close()
	f.out.Close()
}

// take is one that waits, or a new one; used says that it has waited.
func (l *filePrograms) take(rm *room) (f *fileProgram, used bool, err error) {
	l.mu.Lock()
	for len(l.idle) > 0 && f == nil {
		f = l.idle[len(l.idle)-1]
		l.idle = l.idle[:len(l.idle)-1]
		select {
		case <-f.process.Ended():
			f.end()
			f = nil
		default:
		}
	}
	l.mu.Unlock()
	if f != nil {
		return f, true, nil
	}
	in, request, err := os.Pipe()
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	answer, out, err := os.Pipe()
	if err != nil {
		request.Close()
		return nil, false, err
	}
	defer out.Close()
	p, err := rm.sandbox.Start(sandbox.Command{Argv: []string{files.Place, files.Stays}, In: in, Out: out})
	if err != nil {
		request.Close()
		answer.Close()
		return nil, false, err
	}
	return &fileProgram{p, request, answer}, false, nil
}

// keep keeps one for the next request.
func (l *filePrograms) keep(f *fileProgram) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || len(l.idle) >= maxIdlePrograms {
		f.end()
		return
	}
	l.idle = append(l.idle, f)
}

// end ends those that wait. There are no others from then on.
func (l *filePrograms) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, f := range l.idle {
		f.end()
	}
	l.idle = nil
}

// errNoAnswer is about a program that was ended, or stopped.
var errNoAnswer = errors.New("the file tool was ended by something in the session's sandbox; what it was about may or may not be done: look, and try again")

// ask has a request carried out. What only reads is asked a second time of a program that is new.
func (l *filePrograms) ask(ctx context.Context, rm *room, request []byte, reads bool) ([]byte, error) {
	for {
		f, used, err := l.take(rm)
		if err != nil {
			return nil, err
		}
		answer, sent, err := f.ask(ctx, request)
		if err == nil {
			l.keep(f)
			return answer, nil
		}
		f.end()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !used || sent && !reads:
			return nil, errNoAnswer
		}
	}
}

// ask sends a request and reads the answer. sent says that all of it may have come there.
func (f *fileProgram) ask(ctx context.Context, request []byte) (answer []byte, sent bool, err error) {
	until, limited := ctx.Deadline()
	if !limited {
		until = time.Now().Add(fileTimeout)
	}
	stop := context.AfterFunc(ctx, func() { f.in.SetDeadline(time.Now()); f.out.SetDeadline(time.Now()) })
	defer stop()
	f.in.SetWriteDeadline(until)
	f.out.SetReadDeadline(until)
	if _, err := f.in.Write(append(binary.LittleEndian.AppendUint32(make([]byte, 0, len(request)+4), uint32(len(request))), request...)); err != nil {
		return nil, false, err
	}
	var size [4]byte
	if _, err := io.ReadFull(f.out, size[:]); err != nil {
		return nil, true, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > files.MaxResponse {
		return nil, true, errors.New("too much")
	}
	answer = make([]byte, n)
	_, err = io.ReadFull(f.out, answer)
	return answer, true, err
}
