package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// DefaultOutputLimit is what a result carries of a command's output, in bytes, where the
	// options say nothing else: as much of the beginning as of the end.
	DefaultOutputLimit = 30_000
	// MinOutputLimit and MaxOutputLimit are the least and the most that it can carry.
	MinOutputLimit = 1_000
	MaxOutputLimit = 1 << 20
	// fileLimit is what is kept of it in a file.
	fileLimit = 64 << 20
)

// An output takes what a command writes, both streams in their order, and holds no more in memory
// than a result carries. What is longer goes to a file in the client session's /tmp as well.
type output struct {
	dir  string // where the file goes, on the host; the sandbox has it at /tmp
	most int64  // how much a result carries
	mu   sync.Mutex
	head []byte
	tail []byte // a ring, once it is full
	at   int
	size int64
	file *os.File
	name string
	kept int64
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if o.size <= o.most && o.size+int64(n) > o.most {
		o.spill()
	}
	if o.file != nil && o.kept < fileLimit {
		o.keep(p[:min(int64(n), fileLimit-o.kept)])
	}
	o.size += int64(n)
	half := int(o.most / 2)
	room := min(half-len(o.head), len(p))
	o.head = append(o.head, p[:room]...)
	for p = p[room:]; len(p) > 0; {
		if len(o.tail) < half {
			room := min(half-len(o.tail), len(p))
			o.tail = append(o.tail, p[:room]...)
			p = p[room:]
			continue
		}
		if len(p) > half { // the rest of it only
			p = p[len(p)-half:]
		}
		copied := copy(o.tail[o.at:], p)
		o.at = (o.at + copied) % half
		p = p[copied:]
	}
	return n, nil
}

// output is one of the client session's commands.
func (s *clientSession) output() *output {
	most := s.options.OutputLimit
	if most <= 0 {
		most = DefaultOutputLimit
	}
	return &output{dir: s.tmp, most: int64(min(most, MaxOutputLimit)) &^ 1}
}

// spill begins the file, with what came until now. The command may write in its directory: a new
// name, and no link is followed.
func (o *output) spill() {
	file, err := newOutputFile(o.dir)
	if err != nil {
		return
	}
	o.file, o.name = file, filepath.Base(file.Name())
	o.keep(append(append([]byte{}, o.head...), o.end()...))
}

// keep writes to the file. On a full disk there is none, and the result carries what it carries.
func (o *output) keep(p []byte) {
	n, err := o.file.Write(p)
	o.kept += int64(n)
	if err != nil {
		o.file.Close()
		os.Remove(o.file.Name())
		o.file = nil
	}
}

// newOutputFile makes a file of a name that nobody has.
func newOutputFile(dir string) (*os.File, error) {
	for number := 1; ; number++ {
		path := filepath.Join(dir, fmt.Sprintf("output-%d.txt", number))
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
		if err == nil || !errors.Is(err, os.ErrExist) || number == 100_000 {
			return file, err
		}
	}
}

// end is the last of the output, in order.
func (o *output) end() []byte {
	return append(append([]byte{}, o.tail[o.at:]...), o.tail[:o.at]...)
}

// A captured is what became of an output.
type captured struct {
	text      string
	tail      []byte // raw
	size      int64
	truncated bool
	file      string // inside
}

// finish is called when all has been written.
func (o *output) finish() captured {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.end()
	c := captured{size: o.size, tail: append(append([]byte{}, o.head...), end...), truncated: o.size > o.most}
	if len(c.tail) > 64<<10 {
		c.tail = c.tail[len(c.tail)-64<<10:]
	}
	if o.file != nil {
		o.file.Close()
		c.file = "/tmp/" + o.name
	}
	var text strings.Builder
	if !c.truncated {
		text.Write(o.head)
		text.Write(end)
	} else {
		// Cut at characters: what is left out says so itself.
		text.Write(bytes.TrimRightFunc(o.head, func(r rune) bool { return r == '\uFFFD' }))
		fmt.Fprintf(&text, "\n[… %d bytes left out …]\n", o.size-int64(len(o.head)+len(end)))
		text.Write(bytes.TrimLeftFunc(end, func(r rune) bool { return r == '\uFFFD' }))
	}
	c.text = strings.ToValidUTF8(text.String(), "\uFFFD")
	return c
}

// pipeTo is a pipe whose other end is carried into w. The reader's end is done when all writers are
// gone.
func pipeTo(w io.Writer) (write *os.File, done <-chan struct{}, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer read.Close()
		io.Copy(w, read)
	}()
	return write, over, nil
}
