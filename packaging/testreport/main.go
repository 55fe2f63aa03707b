// Testreport reads the events of `go test -json`, from its standard input or from the files that
// are its arguments, which it reads side by side, and prints what a person wants to know of a test
// run: the result line of each package, the output of what failed, and every skipped test with its
// reason, so that no skip stays unseen. It exits with status 1 if anything failed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
)

func main() {
	as := flag.String("as", "", "the `user` that the tests ran as, for the headings")
	log := flag.String("log", "", "also write the tests' whole output to this `file`")
	again := flag.String("again", "", "write to this `file` which tests failed, each with its package, if nothing but tests failed")
	flag.Parse()
	inputs := []io.Reader{os.Stdin}
	if flag.NArg() > 0 {
		inputs = nil
	}
	for _, path := range flag.Args() {
		file, err := os.Open(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testreport:", err)
			os.Exit(1)
		}
		inputs = append(inputs, file)
	}
	failed, err := report(inputs, os.Stdout, *as, *log, *again)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func report(events []io.Reader, out io.Writer, as, logPath, againPath string) (failed bool, err error) {
	log := io.Discard
	if logPath != "" {
		file, err := os.Create(logPath)
		if err != nil {
			return true, err
		}
		defer file.Close()
		log = file
	}
	r := newRun(out, log)
	failures := make([]error, len(events))
	var reading sync.WaitGroup
	for i := range events {
		reading.Go(func() { failures[i] = r.read(i, events[i]) })
	}
	reading.Wait()
	if err := errors.Join(failures...); err != nil {
		return true, fmt.Errorf("read the events of go test: %w", err)
	}
	r.printSummary(as)
	if againPath != "" {
		err = os.WriteFile(againPath, []byte(r.again()), 0o644)
	}
	return r.failed, err
}
