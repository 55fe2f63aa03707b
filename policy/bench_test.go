package policy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// benchLists are a thousand entries of all kinds, the one that is looked for last.
func benchLists(tr *tree) *Lists {
	l := newLists(tr.m, benchEntries(tr), nil, false)
	l.SafeBins.Names = DefaultSafeBins()
	return l
}

func benchEntries(tr *tree) []Entry {
	var entries []Entry
	for i := range 999 {
		switch i % 4 {
		case 0:
			entries = append(entries, Entry{Pattern: fmt.Sprintf("/opt/tools-%d/bin/*", i)})
		case 1:
			entries = append(entries, Entry{Pattern: fmt.Sprintf("%s/bin/tool-%d", tr.dir, i)})
		case 2:
			entries = append(entries, Entry{Pattern: fmt.Sprintf("%s/**/tool-%d", tr.dir, i)})
		default:
			entries = append(entries, Entry{Pattern: tr.dir + "/bin/rg", ArgPattern: hashArguments("/", []string{fmt.Sprint(i)}), Source: sourceAllowAlways})
		}
	}
	return append(entries, Entry{Pattern: tr.dir + "/bin/rg"})
}

func BenchmarkAVerdict(b *testing.B) {
	tr := newTree(b, "rg", "head")
	l := benchLists(tr)
	for name, line := range map[string]string{"command": "rg -n TODO src", "pipeline": "rg -n TODO src | head -n 5"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !EvaluateLine(tr.m, l, line, tr.cwd()).Satisfied {
					b.Fatal("not allowed")
				}
			}
		})
	}
}

func BenchmarkADecision(b *testing.B) {
	tr := newTree(b, "rg", "head")
	p := tr.policy()
	p.Approvals.Agents["main"].Allowlist = benchEntries(tr)
	b.ReportAllocs()
	for b.Loop() {
		if tr.decide(p, "rg -n TODO src").Verdict != Run {
			b.Fatal("not allowed")
		}
	}
}

func BenchmarkALine(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, refusal := ParseLine("rg -n 'TODO x' src | head -n 5"); refusal != nil {
			b.Fatal(refusal)
		}
	}
}

// Lines that a parser could spend its time and memory on are refused before it, or are done at
// once.
func TestNoLineTakesLongOrMuchMemory(t *testing.T) {
	tr := newTree(t, "rg")
	l := benchLists(tr)
	for name, line := range map[string]string{
		"a mebibyte":       strings.Repeat("rg a; ", 1<<20/6),
		"parentheses":      strings.Repeat("(", MaxLine-1),
		"substitutions":    strings.Repeat("$(", MaxLine/2),
		"quoted":           strings.Repeat("\"$(", MaxLine/3),
		"braces":           strings.Repeat("{ ", MaxLine/2),
		"ifs":              strings.Repeat("if ", MaxLine/3),
		"backquotes":       strings.Repeat("`", MaxLine),
		"pipes":            "rg" + strings.Repeat("|rg", MaxLine/3-1),
		"ands":             "rg" + strings.Repeat("&&a", MaxLine/3-1),
		"words":            "rg" + strings.Repeat(" a", MaxLine/2-1),
		"one word":         "rg " + strings.Repeat("a", MaxLine-3),
		"stars":            "rg " + strings.Repeat("*", MaxLine-3),
		"dollars":          "rg " + strings.Repeat("$", MaxLine-3),
		"arithmetic":       "rg $((" + strings.Repeat("1+", MaxLine/2-5),
		"here documents":   strings.Repeat("rg <<A;", MaxLine/7),
		"assignments":      strings.Repeat("a=1 ", MaxLine/4),
		"long path":        "/" + strings.Repeat("a/", MaxLine/2-1),
		"a shell's line":   "sh -c '" + strings.Repeat("rg;", MaxLine/3-5) + "'",
		"backslashes":      "rg " + strings.Repeat("\\", MaxLine-3),
		"case":             strings.Repeat("case a in a) ", MaxLine/13),
		"functions":        strings.Repeat("f(){ ", MaxLine/5),
		"extended globs":   "rg " + strings.Repeat("@(", MaxLine/2-3),
		"parameters":       "rg " + strings.Repeat("${a:-", MaxLine/5-1),
		"tests":            "[[ " + strings.Repeat("( ", MaxLine/2-3),
		"process":          "rg " + strings.Repeat("<(", MaxLine/2-3),
		"sh within sh":     "sh -c " + quote("sh -c "+quote("sh -c "+quote("sh -c id; id"))),
		"xargs on xargs":   strings.Repeat("xargs ", MaxLine/6),
		"find with finds":  "find " + strings.Repeat("-exec find ; ", 1000),
		"wrappers for all": strings.Repeat("env ", MaxLine/4),
	} {
		var satisfied bool
		var memory float64
		took := busy(func() {
			memory = testing.AllocsPerRun(1, func() { satisfied = EvaluateLine(tr.m, l, line, tr.cwd()).Satisfied })
		})
		if took > 2*time.Second || memory > 1e6 {
			t.Errorf("%s: %v, %v allocations", name, took, memory)
		}
		if satisfied && name != "one word" {
			t.Errorf("%s is allowed", name)
		}
	}
	var allocations float64
	took := busy(func() {
		allocations = testing.AllocsPerRun(10, func() { ParseLine(strings.Repeat("a", 1<<20)) })
	})
	if allocations > 5 || took > time.Second {
		t.Errorf("a mebibyte: %v allocations, %v", allocations, took)
	}
}

// busy is how long a processor works for something. That others want the processors, too, does not
// count.
func busy(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() (d time.Duration) {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			panic(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	do()
	return used() - before
}

func TestNoPatternTakesLong(t *testing.T) {
	path := "/" + strings.Repeat("a", 4000)
	for _, pattern := range []string{"/" + strings.Repeat("*a", 2000) + "b", "/" + strings.Repeat("**a", 1300) + "b", "/" + strings.Repeat("?", 4000) + "*b", strings.Repeat("*", 4000)} {
		if took := busy(func() { newPattern(pattern, "").Match(path) }); took > time.Second {
			t.Errorf("%.20s… takes %v", pattern, took)
		}
	}
	for _, text := range []string{"(a*)*b", "(.*)*", "(a+)+", "(x+x+)+y", "^(a?){30}a{30}$", strings.Repeat("(", 2000) + strings.Repeat(")*", 2000)} {
		if _, err := NewArgPattern(text); err == nil {
			t.Errorf("%.20s… is taken", text)
		}
	}
}
