package process

import (
	"io"
	"os"
)

// Stdio are the command's standard streams. An *os.File is handed over as it is: no byte passes
// through this process.
type Stdio struct {
	In       io.Reader // nil: /dev/null
	Out, Err io.Writer // nil: /dev/null
}

// stream turns one of the caller's streams into a file for the child. A file goes as it is; for
// anything else there is a pipe, and somebody who carries the bytes.
func (p *Process) stream(stream any) (file *os.File, ours bool, err error) {
	switch s := stream.(type) {
	case nil:
		file, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	case *os.File:
		return s, false, nil
	case io.Writer:
		var read *os.File
		if read, file, err = os.Pipe(); err == nil {
			p.copies.Go(func() {
				io.Copy(s, read)
				read.Close()
			})
		}
	case io.Reader:
		var write *os.File
		if file, write, err = os.Pipe(); err == nil {
			go func() { // not waited for: it may be waiting for input that nobody wants any more
				if p.begins() {
					io.Copy(write, s)
				}
				write.Close()
			}()
		}
	}
	return file, true, err
}

// begins waits until the command begins. It reports false if it never will.
func (p *Process) begins() bool {
	select {
	case <-p.begun:
		return true
	case <-p.over:
		return false
	}
}
