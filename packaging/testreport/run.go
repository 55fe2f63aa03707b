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
	"sync"
)

// An event is what `go test -json` says; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string // empty for what concerns the whole package
	Output  string
}

// A run gathers the events of all `go test` that run side by side.
type run struct {
	out, log io.Writer

	mu              sync.Mutex
	packages        map[tested]*testedPackage
	ended           map[int]int // packages, of each input
	passed, nFailed int         // tests
	skipped         []skip
	failed          bool
	failedTests     []failure // those that are run by themselves, not as a part of another
	failedOtherwise bool      // something that is no test failed: a build, or a package that did not end
}

// A tested is a package of one `go test`: another one may test another part of it.
type tested struct {
	input int
	path  string
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

type failure struct{ pkg, test string }

func newRun(out, log io.Writer) *run {
	return &run{out: out, log: log, packages: map[tested]*testedPackage{}, ended: map[int]int{}}
}

// read takes the events of one `go test`, to their end. Several may be read at a time.
func (r *run) read(input int, events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			r.take(input, line)
		}
		if err == io.EOF {
			r.finish(input)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *run) take(input int, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(r.out, "%s", line) // the go command itself has something to say
		return
	}
	of := tested{input, e.Package}
	if e.Package != "" && e.Output != "" {
		p := r.pkg(of)
		p.all = append(p.all, e.Output)
	}
	switch {
	case e.Action == "build-output":
		io.WriteString(r.out, e.Output)
	case e.Action == "build-fail":
		r.failed, r.failedOtherwise = true, true
	case e.Test != "":
		r.takeOfTest(of, e)
	case e.Package != "":
		r.takeOfPackage(of, e)
	}
}

func (r *run) takeOfTest(of tested, e event) {
	t := r.pkg(of).test(e.Test)
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass":
		t.result = e.Action
		r.passed++
	case "fail":
		t.result = e.Action
		r.nFailed++
		if !strings.Contains(e.Test, "/") {
			r.failedTests = append(r.failedTests, failure{e.Package, e.Test})
		}
	case "skip":
		t.result = e.Action
		r.skipped = append(r.skipped, skip{pkg: e.Package, test: e.Test, reason: t.reason()})
	}
}

func (r *run) takeOfPackage(of tested, e event) {
	p := r.pkg(of)
	switch e.Action {
	case "output":
		p.own = append(p.own, e.Output)
	case "pass", "skip":
		for _, line := range p.own {
			if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") || strings.Contains(line, "\t[no test") {
				io.WriteString(r.out, line)
			}
		}
		r.end(of)
	case "fail":
		r.failed = true
		if !slices.ContainsFunc(p.tests, func(t *test) bool { return t.result == "fail" }) ||
			slices.ContainsFunc(p.tests, func(t *test) bool { return t.result == "" }) {
			r.failedOtherwise = true // TestMain, a panic or a timeout
		}
		r.printFailure(p)
		r.end(of)
	}
}

// end forgets a package. Packages run side by side, and only here can the log have each in one
// piece.
func (r *run) end(of tested) {
	io.WriteString(r.log, strings.Join(r.packages[of].all, ""))
	delete(r.packages, of)
	r.ended[of.input]++
}

// finish treats packages that never ended as failed, and an input without packages too: go test was
// stopped.
func (r *run) finish(input int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended[input] == 0 {
		r.failed, r.failedOtherwise = true, true
	}
	for _, of := range slices.SortedFunc(maps.Keys(r.packages), func(a, b tested) int { return strings.Compare(a.path, b.path) }) {
		if of.input != input {
			continue
		}
		r.failed, r.failedOtherwise = true, true
		r.printFailure(r.packages[of])
		fmt.Fprintf(r.out, "FAIL\t%s\tdid not end\n", of.path)
		r.end(of)
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

// again is a line for each test that is worth another try, its package and its name; nothing if
// anything else failed, too.
func (r *run) again() string {
	if r.failedOtherwise {
		return ""
	}
	var b strings.Builder
	for _, f := range r.failedTests {
		fmt.Fprintf(&b, "%s\t%s\n", f.pkg, f.test)
	}
	return b.String()
}

func (r *run) pkg(of tested) *testedPackage {
	p := r.packages[of]
	if p == nil {
		p = &testedPackage{byName: map[string]*test{}}
		r.packages[of] = p
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
