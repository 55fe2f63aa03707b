// Package audit keeps the file that says what was asked, what was decided and what became of it: one JSON object a line, only ever
// appended to. What a line says is its writer's business; that it is one line which holds nothing that a terminal obeys is this package's.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/aside"
	"github.com/clairun/clai-sandbox/profile/text"
)

// A Log is the file. Text in it that came from an agent is escaped beyond what JSON wants: nothing that a terminal obeys is in it.
//
// A line about what was given is in the file, or it was not given. What is taken away does not wait for the file: blocks are kept
// for its lines, which nothing else uses, and a line that even so cannot be written is written later.
type Log struct {
	mu     sync.Mutex
	file   *os.File // nil: there is none
	broken error    // why
	size   int64
	kept   int64    // how far the file has blocks
	partly bool     // it ends in a part of a line
	owed   [][]byte // lines about what was taken away
}

// Name is the name of the file in the state directory.
const Name = "audit.log"

const (
	takingRoom   = 64 << 10 // kept for lines about what is taken away
	maxOwedLines = 1000
)

// Open opens the file. known is how far it had come when that was last stored; a notice, for people, says if some of it is gone. What stands
// there and is no file of ours is set aside. Where there can be no file, nothing is given, and what is given can be taken away.
func Open(path string, known int64) (*Log, []string) {
	a := &Log{}
	var notices []string
	tell := func(format string, v ...any) {
		notices = append(notices, fmt.Sprintf(format, v...))
	}
	if why := notOurs(path); why != "" {
		kept, err := aside.Put(path, "set-aside", time.Now())
		if err != nil {
			a.broken = fmt.Errorf("%s %s: %w", path, why, err)
			tell("the audit file cannot be used, so nothing is granted: %v", a.broken)
			return a, notices
		}
		tell("the audit file %s; it is kept as %s, and a new one was begun", why, text.Line(kept))
		known = 0
	}
	if a.file, a.broken = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600); a.broken == nil {
		a.broken = a.begin()
	}
	if a.broken != nil {
		a.file.Close()
		a.file = nil
		tell("the audit file cannot be used, so nothing is granted: %v", a.broken)
		return a, notices
	}
	if a.size < known {
		tell("the audit file is shorter than it was: %d bytes, and had %d", a.size, known)
	}
	return a, notices
}

// notOurs says why what stands at the path cannot be the audit file.
func notOurs(path string) string {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return ""
	case !info.Mode().IsRegular():
		return "was no regular file"
	case int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid():
		return "belonged to somebody else"
	}
	if info.Mode().Perm()&0o600 != 0o600 {
		_ = os.Chmod(path, 0o600) // ours, and who opens it will say why not
	}
	return ""
}

// begin takes the file as it is. A line that a crash cut off is ended before the next one.
func (a *Log) begin() error {
	if err := a.file.Chmod(0o600); err != nil {
		return err
	}
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	a.size, a.kept = info.Size(), info.Size()
	if a.size > 0 {
		last := make([]byte, 1)
		if _, err := a.file.ReadAt(last, a.size-1); err != nil {
			return err
		}
		a.partly = last[0] != '\n'
	}
	_ = a.keepRoom(a.size + takingRoom)
	return nil
}

// Close closes the file.
func (a *Log) Close() error {
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}

// keepRoom makes sure that the file has blocks up to an offset. A file system that keeps none is taken as it is.
func (a *Log) keepRoom(end int64) error {
	if end <= a.kept {
		return nil
	}
	end += takingRoom // not for each line anew
	err := unix.Fallocate(int(a.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, a.size, end-a.size)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &os.PathError{Op: "write", Path: a.file.Name(), Err: err}
	}
	a.kept = end
	return nil
}

func lineOf(value any) ([]byte, error) {
	line, err := json.Marshal(value)
	return append(text.PlainJSON(line), '\n'), err
}

// Append appends a line, and returns how far the file has come with it. With sync, it is on the disk by then.
func (a *Log) Append(line any, sync bool) (position int64, err error) {
	written, err := lineOf(line)
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return 0, fmt.Errorf("audit file: %w", a.broken)
	}
	if err = a.settle(); err == nil {
		err = a.keepRoom(a.size + int64(len(written)) + takingRoom)
	}
	if err == nil {
		err = a.write(written)
	}
	if err == nil && sync {
		err = a.file.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("audit file: %w", err)
	}
	return a.size, nil
}

// AppendTaking appends a line about what was taken away, now or when there is room.
func (a *Log) AppendTaking(line any) (position int64) {
	written, err := lineOf(line)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || a.file == nil {
		return 0
	}
	if len(a.owed) < maxOwedLines {
		a.owed = append(a.owed, written)
	}
	if a.settle() == nil {
		_ = a.file.Sync()
	}
	_ = a.keepRoom(a.size + takingRoom)
	return a.size
}

// settle writes what is owed.
func (a *Log) settle() error {
	for len(a.owed) > 0 {
		if err := a.write(a.owed[0]); err != nil {
			return err
		}
		a.owed = a.owed[1:]
	}
	return nil
}

// write appends a line as a whole or not at all.
func (a *Log) write(line []byte) error {
	if a.partly {
		line = append([]byte("\n"), line...)
	}
	n, err := a.file.Write(line)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, a.file.Truncate(a.size))
			a.kept = a.size // with what was cut off, the room behind it is gone
		}
		return err
	}
	a.partly = false
	a.size += int64(n)
	return nil
}
