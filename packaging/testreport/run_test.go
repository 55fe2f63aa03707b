package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReportShowsWhatAPersonWantsToKnow(t *testing.T) {
	const ok = `{"Action":"output","Package":"m/p","Output":"ok  \tm/p\t0.1s\n"}
{"Action":"pass","Package":"m/p"}`
	tests := map[string]struct {
		events string
		want   string
		failed bool
	}{
		"a passed test leaves only its package's line": {
			events: `{"Action":"output","Package":"m/p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"    a_test.go:1: chatter\n"}
{"Action":"pass","Package":"m/p","Test":"TestA"}
{"Action":"output","Package":"m/p","Output":"PASS\n"}
` + ok,
			want: "ok  \tm/p\t0.1s\n" +
				"== tests as nobody: 1 passed, 0 failed, 0 skipped\n",
		},
		"a skip is listed with its reason in one line": {
			events: `{"Action":"output","Package":"m/p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"    a_test.go:1: needs root,\n"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"        really\n"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"m/p","Test":"TestA"}
{"Action":"skip","Package":"m/p","Test":"TestB"}
` + ok,
			want: "ok  \tm/p\t0.1s\n" +
				"== tests as nobody: 0 passed, 0 failed, 2 skipped\n" +
				"--- SKIP: TestA (m/p): a_test.go:1: needs root, really\n" +
				"--- SKIP: TestB (m/p): no reason given\n",
		},
		"a failure shows the output of what failed and of what had no end": {
			events: `{"Action":"output","Package":"m/p","Test":"TestA","Output":"    a_test.go:1: wrong\n"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"--- FAIL: TestA (0.00s)\n"}
{"Action":"fail","Package":"m/p","Test":"TestA"}
{"Action":"output","Package":"m/p","Test":"TestB","Output":"chatter\n"}
{"Action":"pass","Package":"m/p","Test":"TestB"}
{"Action":"output","Package":"m/p","Test":"TestC","Output":"panic: c\n"}
{"Action":"output","Package":"m/p","Output":"FAIL\tm/p\t0.1s\n"}
{"Action":"fail","Package":"m/p"}`,
			want: "    a_test.go:1: wrong\n" +
				"--- FAIL: TestA (0.00s)\n" +
				"panic: c\n" +
				"FAIL\tm/p\t0.1s\n" +
				"== tests as nobody: 1 passed, 1 failed, 0 skipped\n",
			failed: true,
		},
		"a package that does not build has failed": {
			events: `{"ImportPath":"m/p","Action":"build-output","Output":"p.go:1: no\n"}
{"ImportPath":"m/p","Action":"build-fail"}
{"Action":"output","Package":"m/p","Output":"FAIL\tm/p [build failed]\n"}
{"Action":"fail","Package":"m/p"}`,
			want: "p.go:1: no\n" +
				"FAIL\tm/p [build failed]\n" +
				"== tests as nobody: 0 passed, 0 failed, 0 skipped\n",
			failed: true,
		},
		"a package without an end has failed": {
			events: `{"Action":"start","Package":"m/p"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"half of it\n"}`,
			want: "half of it\n" +
				"FAIL\tm/p\tdid not end\n" +
				"== tests as nobody: 0 passed, 0 failed, 0 skipped\n",
			failed: true,
		},
		"no package at all has failed": {
			events: "",
			want:   "== tests as nobody: 0 passed, 0 failed, 0 skipped\n",
			failed: true,
		},
		"what is no event is passed on": {
			events: "go: something\n" + ok,
			want: "go: something\n" +
				"ok  \tm/p\t0.1s\n" +
				"== tests as nobody: 0 passed, 0 failed, 0 skipped\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			failed, err := report([]io.Reader{strings.NewReader(test.events)}, &out, "nobody", "", "")
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != test.want {
				t.Errorf("printed\n%s\nwant\n%s", out.String(), test.want)
			}
			if failed != test.failed {
				t.Errorf("failed: %v, want %v", failed, test.failed)
			}
		})
	}
}

func TestLogKeepsEachPackageInOnePiece(t *testing.T) {
	events := `{"Action":"output","Package":"m/a","Test":"TestA","Output":"a1\n"}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"b1\n"}
{"Action":"output","Package":"m/a","Output":"a2\n"}
{"Action":"pass","Package":"m/a"}
{"Action":"output","Package":"m/b","Output":"b2\n"}
{"Action":"pass","Package":"m/b"}`
	log := filepath.Join(t.TempDir(), "log")
	if _, err := report([]io.Reader{strings.NewReader(events)}, &strings.Builder{}, "", log, ""); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a1\na2\nb1\nb2\n"; string(got) != want {
		t.Errorf("log is %q, want %q", got, want)
	}
}

func TestTwoHalvesOfAPackageAreTwoResultsAndBothMustBe(t *testing.T) {
	half := func(result, test string) string {
		return `{"Action":"` + result + `","Package":"m/p","Test":"` + test + `"}
{"Action":"output","Package":"m/p","Output":"ok  \tm/p\t0.1s\n"}
{"Action":"` + result + `","Package":"m/p"}`
	}
	for name, c := range map[string]struct {
		second string
		failed bool
		want   string
	}{
		"both pass":               {half("pass", "TestB"), false, "2 passed, 0 failed"},
		"one fails":               {half("fail", "TestB"), true, "1 passed, 1 failed"},
		"one never began":         {"", true, "1 passed, 0 failed"},
		"one ended in the middle": {`{"Action":"run","Package":"m/p","Test":"TestB"}`, true, "m/p\tdid not end"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			failed, err := report([]io.Reader{strings.NewReader(half("pass", "TestA")), strings.NewReader(c.second)}, &out, "", "", "")
			if err != nil || failed != c.failed || !strings.Contains(out.String(), c.want) {
				t.Errorf("failed: %v, %v\n%s", failed, err, &out)
			}
		})
	}
}

func TestWhatFailedIsTriedAgainOnlyIfNothingElseFailed(t *testing.T) {
	const failed = `{"Action":"fail","Package":"m/p","Test":"TestA/one"}
{"Action":"fail","Package":"m/p","Test":"TestA"}
`
	tests := map[string]struct{ events, want string }{
		"the test as a whole":                  {failed + `{"Action":"fail","Package":"m/p"}`, "m/p\tTestA\n"},
		"with one that did not end":            {failed + "{\"Action\":\"output\",\"Package\":\"m/p\",\"Test\":\"TestB\",\"Output\":\"panic\"}\n{\"Action\":\"fail\",\"Package\":\"m/p\"}", ""},
		"a package that did not end":           {failed, ""},
		"a package without a test that failed": {`{"Action":"fail","Package":"m/p"}`, ""},
		"with a build that failed":             {failed + `{"Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"m/p"}`, ""},
		"none":                                 {`{"Action":"pass","Package":"m/p"}`, ""},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			again := filepath.Join(t.TempDir(), "again")
			if _, err := report([]io.Reader{strings.NewReader(c.events)}, io.Discard, "", "", again); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(again); err != nil || string(got) != c.want {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}
