package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"
)

// A Report says whether a log is what was signed.
type Report struct {
	Lines    int64    `json:"lines"`              // all that were ever written, as far as the log says
	First    int64    `json:"first"`              // the first that is there: full segments may have been taken elsewhere
	Unsigned int64    `json:"unsigned"`           // at the end: they are signed with the next line that has to be on the disk
	Problems []string `json:"problems,omitempty"` // at most maxProblems
}

const maxProblems = 100

// Verify holds all lines of the log in a state directory against what was signed, with a key that
// may come from elsewhere, and against checkpoints that were kept elsewhere. It may be called while
// the log grows.
func Verify(dir, key string, kept ...string) (*Report, error) {
	report := &Report{}
	problem := func(text string) {
		if len(report.Problems) < maxProblems {
			report.Problems = append(report.Problems, text)
		}
	}
	if head, err := Head(dir); err == nil {
		kept = append(kept, head)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	roots := map[int64][]tlog.Hash{}
	var most int64
	for _, signed := range kept {
		c, err := OpenCheckpoint(signed, key)
		if err != nil {
			return nil, err
		}
		roots[c.Size] = append(roots[c.Size], c.Root)
		most = max(most, c.Size)
	}
	r := &reader{key: key, found: problem}
	check := func() {
		for _, root := range roots[r.size] {
			if is, err := r.root(); err != nil || is != root {
				problem(fmt.Sprintf("lines 0 to %d are not those of the checkpoint of %d lines", r.size-1, r.size))
			}
		}
	}
	err := walk(dir, 0, func(line []byte) error {
		check()
		return r.line(line)
	})
	if err != nil {
		return nil, err
	}
	check()
	if len(kept) > 0 && r.size <= most {
		problem(fmt.Sprintf("lines %d to %d are gone: a checkpoint has them, or is the last of them", r.size, most))
	}
	report.Lines, report.First, report.Unsigned = r.size, r.first, r.size-r.signed
	return report, nil
}

// walk calls do with each line of the log in a state directory, but for files that end before a
// line. What its file ends in and is no line yet is left out.
func walk(dir string, from int64, do func(line []byte) error) error {
	current, err := os.Open(filepath.Join(dir, Name)) // before the others are listed: it may become one of them
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer current.Close()
	paths, err := earlier(dir)
	if err != nil {
		return err
	}
	for i, path := range paths {
		if i+1 < len(paths) && firstOf(paths[i+1]) <= from {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		if same(file, current) {
			file.Close()
			break
		}
		rest, err := eachLine(file, do)
		if file.Close(); err == nil && len(rest) > 0 {
			err = do(rest)
		}
		if err != nil {
			return err
		}
	}
	if current == nil {
		return nil
	}
	_, err = eachLine(current, do)
	return err
}

func same(a, b *os.File) bool {
	if a == nil || b == nil {
		return false
	}
	is, err := a.Stat()
	other, failed := b.Stat()
	return err == nil && failed == nil && os.SameFile(is, other)
}

// Each calls do with the number and the text of each line from that number on, the oldest first.
func Each(dir string, from int64, do func(number int64, line []byte) error) error {
	var number int64
	return walk(dir, from, func(line []byte) error {
		if o := ownLine(line); o.Before != nil {
			number = o.Before.Lines
		}
		if number++; number <= from {
			return nil
		}
		return do(number-1, line)
	})
}

// A Proof shows whoever has the key that a line is in the log, or that a checkpoint is of a
// beginning of it: RFC 6962, as sigsum and the Go checksum database have it.
type Proof struct {
	Line       *int64      `json:"line,omitempty"`
	Text       string      `json:"text,omitempty"`
	Before     string      `json:"before,omitempty"` // the checkpoint of the beginning
	Checkpoint string      `json:"checkpoint"`
	Hashes     []tlog.Hash `json:"hashes"`
}

// Prove proves that a line is in the log, up to the last checkpoint.
func Prove(dir, key string, line int64) (*Proof, error) {
	p := &Proof{Line: &line}
	r, size, err := p.read(dir, key, func(number int64, text []byte) {
		if number == line {
			p.Text = string(text)
		}
	})
	if err != nil {
		return nil, err
	}
	if line < 0 || line >= size || p.Text == "" {
		return nil, fmt.Errorf("line %d is not there, or not signed yet: there are %d to %d", line, r.first, size-1)
	}
	p.Hashes, err = tlog.ProveRecord(size, line, r)
	return p, err
}

// ProveSince proves that what a checkpoint is of is the beginning of the log, up to the last
// checkpoint.
func ProveSince(dir, key, signed string) (*Proof, error) {
	begin, err := OpenCheckpoint(signed, key)
	if err != nil {
		return nil, err
	}
	p := &Proof{Before: signed}
	r, size, err := p.read(dir, key, func(int64, []byte) {})
	if err != nil {
		return nil, err
	}
	if begin.Size < 1 || begin.Size > size {
		return nil, fmt.Errorf("the checkpoint has %d lines, and the log %d", begin.Size, size)
	}
	p.Hashes, err = tlog.ProveTree(size, begin.Size, r)
	return p, err
}

// read reads the whole log, with all hashes.
func (p *Proof) read(dir, key string, line func(number int64, text []byte)) (r *reader, size int64, err error) {
	if p.Checkpoint, err = Head(dir); err != nil {
		return nil, 0, err
	}
	c, err := OpenCheckpoint(p.Checkpoint, key)
	if err != nil {
		return nil, 0, err
	}
	r = &reader{found: func(string) {}}
	r.all = true
	err = walk(dir, 0, func(text []byte) error {
		number := r.size
		if o := ownLine(text); o.Before != nil {
			number = o.Before.Lines
		}
		line(number, text)
		return r.line(text)
	})
	return r, c.Size, err
}

// Check checks a proof.
func (p *Proof) Check(key string) error {
	c, err := OpenCheckpoint(p.Checkpoint, key)
	if err != nil {
		return err
	}
	if p.Before != "" {
		begin, err := OpenCheckpoint(p.Before, key)
		if err != nil {
			return err
		}
		return tlog.CheckTree(p.Hashes, c.Size, c.Root, begin.Size, begin.Root)
	}
	if p.Line == nil {
		return errors.New("a proof has \"line\" or \"before\"")
	}
	return tlog.CheckRecord(p.Hashes, c.Size, c.Root, *p.Line, tlog.RecordHash([]byte(p.Text)))
}
