package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// An event is what `go test -json` says; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string // empty for what concerns the whole package
	Output  string
}

// A run gathers the events of one `go test`.
type run struct {
	out, log io.Writer

	packages        map[string]*testedPackage
	ended           int // packages
	passed, nFailed int // tests
	skipped         []skip
	failed          bool
}

// A testedPackage is a package whose result is not yet known.
type testedPackage struct {
	all    []string // its whole output
	own    []string // what of it belongs to no test
	tests  []*test  // in the order in which they began
	byName map[string]*test
}

type test struct {
	name   string
	result string // the action that ended it; empty until then
	output []string
}

type skip struct{ pkg, test, reason string }

func newRun(out, log io.Writer) *run {
	return &run{out: out, log: log, packages: map[string]*testedPackage{}}
}

func (r *run) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			r.take(line)
		}
		if err == io.EOF {
			r.finish()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *run) take(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(r.out, "%s", line) // the go command itself has something to say
		return
	}
	if e.Package != "" && e.Output != "" {
		p := r.pkg(e.Package)
		p.all = append(p.all, e.Output)
	}
	switch {
	case e.Action == "build-output":
		io.WriteString(r.out, e.Output)
	case e.Action == "build-fail":
		r.failed = true
	case e.Test != "":
		r.takeOfTest(e)
	case e.Package != "":
		r.takeOfPackage(e)
	}
}

func (r *run) takeOfTest(e event) {
	t := r.pkg(e.Package).test(e.Test)
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass":
		t.result = e.Action
		r.passed++
	case "fail":
		t.result = e.Action
		r.nFailed++
	case "skip":
		t.result = e.Action
		r.skipped = append(r.skipped, skip{pkg: e.Package, test: e.Test, reason: t.reason()})
	}
}

func (r *run) takeOfPackage(e event) {
	p := r.pkg(e.Package)
	switch e.Action {
	case "output":
		p.own = append(p.own, e.Output)
	case "pass", "skip":
		for _, line := range p.own {
			if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") || strings.Contains(line, "\t[no test") {
				io.WriteString(r.out, line)
			}
		}
		r.end(e.Package)
	case "fail":
		r.failed = true
		r.printFailure(p)
		r.end(e.Package)
	}
}

// end forgets a package. Packages run side by side, and only here can the log have each in one piece.
func (r *run) end(pkg string) {
	io.WriteString(r.log, strings.Join(r.packages[pkg].all, ""))
	delete(r.packages, pkg)
	r.ended++
}

// finish treats packages that never ended as failed, and a run without packages too: go test was stopped.
func (r *run) finish() {
	if r.ended == 0 {
		r.failed = true
	}
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		r.failed = true
		r.printFailure(r.packages[pkg])
		fmt.Fprintf(r.out, "FAIL\t%s\tdid not end\n", pkg)
		r.end(pkg)
	}
}

func (r *run) printFailure(p *testedPackage) {
	for _, t := range p.tests {
		if t.result == "fail" || t.result == "" { // a panic or a timeout leaves tests without a result
			r.printOutput(t)
		}
	}
	io.WriteString(r.out, strings.Join(p.own, ""))
}

func (r *run) printOutput(t *test) {
	for line := range strings.Lines(strings.Join(t.output, "")) {
		if !isProgress(line) {
			io.WriteString(r.out, line)
		}
	}
}

// printSummary says how many tests passed, failed and were skipped, and why each of the last was.
func (r *run) printSummary(as string) {
	if as != "" {
		as = " as " + as
	}
	fmt.Fprintf(r.out, "== tests%s: %d passed, %d failed, %d skipped\n", as, r.passed, r.nFailed, len(r.skipped))
	for _, s := range r.skipped {
		fmt.Fprintf(r.out, "--- SKIP: %s (%s): %s\n", s.test, s.pkg, s.reason)
	}
}

func (r *run) pkg(path string) *testedPackage {
	p := r.packages[path]
	if p == nil {
		p = &testedPackage{byName: map[string]*test{}}
		r.packages[path] = p
	}
	return p
}

func (p *testedPackage) test(name string) *test {
	t := p.byName[name]
	if t == nil {
		t = &test{name: name}
		p.byName[name] = t
		p.tests = append(p.tests, t)
	}
	return t
}

// reason is what a skipped test printed, in one line.
func (t *test) reason() string {
	var said []string
	for line := range strings.Lines(strings.Join(t.output, "")) {
		line = strings.TrimSpace(line)
		if line != "" && !isProgress(line) && !strings.HasPrefix(line, "--- SKIP") {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// isProgress is true of the lines that tell which test runs: === RUN, PAUSE, CONT, NAME.
func isProgress(line string) bool { return strings.HasPrefix(line, "=== ") }
