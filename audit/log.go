// Package audit keeps the file that says what was asked, what was decided and what became of it:
// one JSON object a line, only ever appended to. What a line says is its writer's business; that it
// is one line which holds nothing that a terminal obeys is this package's, and that a line which is
// changed, removed or added is found: a tree of hashes is over all lines, and its root is signed
// whenever a line has to be on the disk.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/aside"
	"github.com/clairun/clai-sandbox/profile/text"
)

// A Log is the file. Text in it that came from an agent is escaped beyond what JSON wants: nothing
// that a terminal obeys is in it.
//
// A line about what was given is in the file and signed, or it was not given. What is taken away
// does not wait for the file: blocks are kept for its lines, which nothing else uses, and a line
// that even so cannot be written is written later.
type Log struct {
	syncing sync.Mutex // held before mu: one at a time signs, for all who wait
	mu      sync.Mutex
	dir     string
	file    *os.File // nil: there is none
	broken  error    // why
	signer  note.Signer
	tree    tree
	most    int64 // bytes of a file, about
	first   int64 // line of the file
	base    int64 // bytes of the files before
	size    int64
	signed  int64    // lines of the tree that a checkpoint is of, the line of that included
	synced  int64    // position up to which all is signed and on the disk
	kept    int64    // how far the file has blocks
	partly  []byte   // the part of a line that it ends in
	owed    [][]byte // lines about what was taken away
}

// Name is the name of the file in the state directory.
const Name = "audit.log"

const (
	takingRoom   = 64 << 10 // kept for lines about what is taken away
	maxOwedLines = 1000
)

// Open opens the file. known is how far it had come when that was last stored; a notice, for
// people, says if some of it is gone. What stands there and is no file of ours is set aside. Where
// there can be no file, nothing is given, and what is given can be taken away.
func Open(path string, known int64) (*Log, []string) {
	a := &Log{most: maxSegment}
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
	a.dir = filepath.Dir(path)
	a.broken = a.take(path, tell)
	useless := ""
	switch {
	case errors.Is(a.broken, errNoKey):
		useless = filepath.Join(a.dir, keyName)
	case errors.Is(a.broken, errLongLine):
		useless = path
	}
	if useless != "" {
		if kept, err := aside.Put(useless, "set-aside", time.Now()); err == nil {
			tell("%v; it is kept as %s, and a new one was begun", a.broken, text.Line(kept))
			known, a.broken = 0, a.take(path, tell)
		}
	}
	if a.broken != nil {
		tell("the audit file cannot be used, so nothing is granted: %v", a.broken)
		return a, notices
	}
	if a.base+a.size < known {
		tell("the audit file is shorter than it was: %d bytes, and had %d", a.base+a.size, known)
	}
	return a, notices
}

// take opens the file, with the key.
func (a *Log) take(path string, tell func(string, ...any)) (err error) {
	var key string
	if a.signer, key, err = keys(a.dir); err != nil {
		return err
	}
	if a.file, err = os.OpenFile(path, openFlags|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err = a.begin(key, tell); err != nil {
		a.file.Close()
		a.file = nil
	}
	return err
}

const openFlags = os.O_RDWR | os.O_APPEND | syscall.O_NOFOLLOW | syscall.O_NONBLOCK

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

// begin takes the file as it is, and says what in it is not what was signed. A line that a crash
// cut off is ended before the next one.
func (a *Log) begin(key string, tell func(string, ...any)) error {
	if err := a.file.Chmod(0o600); err != nil {
		return err
	}
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	a.size, a.kept = info.Size(), info.Size()
	var problems []string
	r := reader{key: key, found: func(problem string) { problems = append(problems, problem) }}
	if a.size > 0 {
		a.partly, err = eachLine(io.NewSectionReader(a.file, 0, a.size), r.line)
		a.tree, a.signed, a.first, a.base = r.tree, r.signed, r.first, r.base
	} else if last := lastSegment(a.dir); last != "" {
		err = a.goOn(last, &r)
	}
	if err != nil {
		return err
	}
	_ = a.keepRoom(a.size + takingRoom)
	if len(problems) > 0 {
		tell("the audit file is not what was signed: %s; 'clai-sandbox audit verify' says all", problems[0])
		a.AppendTaking(own{Time: time.Now().UTC(), Event: eventChanged, Reason: problems[0]})
	} else if lines := r.size - r.signed; lines > 0 && r.signed > 0 {
		a.AppendTaking(own{Time: time.Now().UTC(), Event: eventUnsigned, Lines: lines})
	}
	return nil
}

// goOn begins a file after the last one that was full.
func (a *Log) goOn(last string, r *reader) error {
	info, err := os.Stat(last)
	if err == nil {
		err = r.readFile(last)
	}
	if err != nil {
		return fmt.Errorf("%s: %v", filepath.Base(last), err) // no errLongLine: that would be about the file that begins now
	}
	a.tree, a.signed, a.first, a.base = r.tree, r.signed, r.size, r.base+info.Size()
	line, err := a.firstLine()
	if err == nil {
		err = a.write(line)
	}
	return err
}

// Close signs what is not signed yet, and closes the file.
func (a *Log) Close() error {
	if a.file == nil {
		return nil
	}
	a.mu.Lock()
	unsigned := a.tree.size > a.signed
	a.mu.Unlock()
	if unsigned {
		_ = a.commit(math.MaxInt64)
	}
	return a.file.Close()
}

// keepRoom makes sure that the file has blocks up to an offset. A file system that keeps none is
// taken as it is.
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

// Append appends a line, and returns how far the log has come with it. With sync, it is signed and
// on the disk by then.
func (a *Log) Append(line any, sync bool) (position int64, err error) {
	written, err := lineOf(line)
	if err != nil {
		return 0, err
	}
	if len(written) > maxLine {
		return 0, fmt.Errorf("audit file: a line of more than %d bytes", maxLine)
	}
	a.mu.Lock()
	if a.file == nil {
		err = a.broken
	} else if err = a.settle(); err == nil {
		if err = a.keepRoom(a.size + int64(len(written)) + takingRoom); err == nil {
			err = a.write(written)
		}
	}
	position = a.base + a.size
	sync = sync || a.size >= a.most // or a file of lines that nobody waits for would have no end
	a.mu.Unlock()
	if err == nil && sync {
		err = a.commit(position)
	}
	if err != nil {
		return 0, fmt.Errorf("audit file: %w", err)
	}
	return position, nil
}

// AppendTaking appends a line about what was taken away, now or when there is room.
func (a *Log) AppendTaking(line any) (position int64) {
	written, err := lineOf(line)
	if err != nil {
		return 0
	}
	a.mu.Lock()
	if a.file == nil {
		a.mu.Unlock()
		return 0
	}
	if len(a.owed) < maxOwedLines {
		a.owed = append(a.owed, written)
	}
	settled := a.settle() == nil
	_ = a.keepRoom(a.size + takingRoom)
	position = a.base + a.size
	a.mu.Unlock()
	if settled {
		_ = a.commit(position)
	}
	return position
}

// commit signs what was written, and returns when all up to a position is on the disk. Who waits
// meanwhile is served by the next one.
func (a *Log) commit(position int64) error {
	a.syncing.Lock()
	defer a.syncing.Unlock()
	a.mu.Lock()
	if a.synced >= position {
		a.mu.Unlock()
		return nil
	}
	signed, err := a.sign()
	file, end := a.file, a.base+a.size
	a.mu.Unlock()
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return err
	}
	_ = writeHead(filepath.Join(a.dir, headName), signed) // for who looks whether the end was cut off; the log does without
	a.mu.Lock()
	defer a.mu.Unlock()
	a.synced = end
	if a.size >= a.most && len(a.owed) == 0 {
		_ = a.rotate() // it grows on otherwise
	}
	return nil
}

// sign writes a checkpoint.
func (a *Log) sign() (signed string, err error) {
	root, err := a.tree.root()
	if err != nil {
		return "", err
	}
	text, err := note.Sign(&note.Note{Text: Checkpoint{a.tree.size, root}.text()}, a.signer)
	if err != nil {
		return "", err
	}
	line, err := lineOf(own{Time: time.Now().UTC(), Event: eventCheckpoint, Checkpoint: string(text)})
	if err == nil {
		err = a.write(line)
	}
	if err == nil {
		a.signed = a.tree.size
	}
	return string(text), err
}

// rotate begins a new file. All of this one is signed, and on the disk. A crash between the two
// renames leaves none, and goOn begins it.
func (a *Log) rotate() error {
	line, err := a.firstLine()
	if err != nil {
		return err
	}
	path, full := filepath.Join(a.dir, Name), filepath.Join(a.dir, fmt.Sprintf(segmentName, a.first))
	next, err := os.OpenFile(path+".new", openFlags|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = next.Write(line); err == nil {
		err = next.Sync()
	}
	if err == nil {
		err = os.Rename(path, full)
	}
	if err == nil {
		if err = os.Rename(path+".new", path); err != nil {
			err = errors.Join(err, os.Rename(full, path))
		}
	}
	if err != nil {
		next.Close()
		return err
	}
	a.file.Close()
	a.file, a.first, a.base, a.size, a.kept = next, a.tree.size, a.base+a.size, int64(len(line)), int64(len(line))
	return a.tree.add(line[:len(line)-1])
}

// firstLine says what stands before a file that begins now.
func (a *Log) firstLine() ([]byte, error) {
	edge, err := a.tree.edge()
	if err != nil {
		return nil, err
	}
	return lineOf(own{Time: time.Now().UTC(), Event: eventSegment, Before: &before{a.tree.size, a.base + a.size, edge}})
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
	whole := line
	if len(a.partly) > 0 {
		whole = append([]byte("\n"), line...)
	}
	n, err := a.file.Write(whole)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, a.file.Truncate(a.size))
			a.kept = a.size // with what was cut off, the room behind it is gone
		}
		return err
	}
	a.size += int64(n)
	if len(a.partly) > 0 {
		err = a.tree.add(a.partly)
		a.partly = nil
	}
	return errors.Join(err, a.tree.add(line[:len(line)-1]))
}
