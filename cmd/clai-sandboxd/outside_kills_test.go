package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
)

// notedName is a program that runs without an answer, and askedName one that waits for a person.
// Both add their second argument to the file that their first one names, and take a while.
const notedName, askedName = "noted", "asked"

func noted() int {
	file, err := os.OpenFile(os.Args[1], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = file.WriteString(os.Args[2] + "\n")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	time.Sleep(30 * time.Millisecond) // so that some are killed when they have
	return 0
}

// TestManyCommandsWithKillsRunOnceAndOnRecord has many ask at a time for commands that run by
// themselves and for such as a person allows or denies, while the gateway and its runner are killed
// again and again. Each asker gets a definite answer, nothing runs twice, nothing without its
// approval on record before, and the record is whole.
func TestManyCommandsWithKillsRunOnceAndOnRecord(t *testing.T) {
	requests := 40 // make stress: more
	if n, err := strconv.Atoi(os.Getenv("GATEWAY_TEST_OPERATIONS")); err == nil {
		requests = n
	}
	d := newDesk(t)
	d.write("config/clai-sandbox/exec-approvals.json", `{"version": 1, "agents": {"main": {"allowlist": [{"pattern": "`+d.bin+`/`+notedName+`"}]}}}`)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, d.bin+"/"+notedName)
	copyFile(t, self, d.bin+"/"+askedName)
	ran := filepath.Join(d.home, "work", "ran")

	var over atomic.Bool
	var answered atomic.Int64
	var others sync.WaitGroup
	kills := map[string]int{}
	others.Go(func() { // who kills, when some have got their answers since
		for last, few := int64(0), int64(2); !over.Load(); time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond) {
			if answered.Load() < last+few {
				continue
			}
			last, few = answered.Load(), int64(1+rand.IntN(6))
			status, err := d.client.Status(t.Context())
			if err != nil {
				continue
			}
			what, pid := "gateway", status.PID
			if children := childrenOf(pid); rand.IntN(2) == 0 && len(children) > 0 {
				what, pid = "runner", children[0]
			}
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				kills[what]++
			}
		}
	})
	var mu sync.Mutex
	decided := map[string]string{} // what the person said of a command, by its words
	others.Go(func() {             // the person
		for !over.Load() {
			list, err := d.client.Pending(t.Context())
			if err != nil || len(list) == 0 {
				time.Sleep(time.Millisecond)
				continue
			}
			for _, r := range list {
				decision, said := grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown}, "allowed"
				if rand.IntN(3) == 0 {
					decision, said = grants.Decision{Kind: grants.Deny}, "denied"
				}
				mu.Lock()
				decided[r.Outside.Text] += said + " "
				mu.Unlock()
				_, _ = d.client.Decide(t.Context(), r.ID, decision)
			}
		}
	})

	type answer struct {
		grants.CommandAnswer
		err error
	}
	answers := make([]answer, requests)
	var asking sync.WaitGroup
	next := make(chan int)
	for range 8 {
		asking.Go(func() {
			for i := range next {
				name := notedName
				if i%2 == 1 {
					name = askedName
				}
				a, err := d.client.RunOutside(t.Context(), "", false, grants.Command{Agent: "main", Argv: []string{d.bin + "/" + name, ran, strconv.Itoa(i)}, Cwd: d.home + "/work"})
				answers[i] = answer{a, err}
				answered.Add(1)
			}
		})
	}
	for i := range requests {
		next <- i
	}
	close(next)
	asking.Wait()
	over.Store(true)
	others.Wait()

	times := map[int]int{}
	text, _ := os.ReadFile(ran)
	for line := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		times[n]++
	}
	state := filepath.Join(d.home, "state", "clai-sandbox")
	approved, counts := approvedOnRecord(t, state), map[string]int{}
	for i, a := range answers {
		words := strings.Join([]string{d.bin + "/" + map[int]string{0: notedName, 1: askedName}[i%2], ran, strconv.Itoa(i)}, " ")
		mu.Lock()
		said := decided[words]
		mu.Unlock()
		switch {
		case a.err != nil && !errors.As(a.err, new(*grants.UnavailableError)), a.err == nil && a.Reason == "" && !a.Ran():
			t.Errorf("%d: no definite answer: %+v, %v", i, a.CommandAnswer, a.err)
		case a.err == nil && a.Ran() && (times[i] != 1 || a.ExitCode != 0):
			t.Errorf("%d: %+v, and it ran %d times", i, a.CommandAnswer, times[i])
		case a.err == nil && (a.Status == grants.CommandDenied || a.Status == grants.CommandTimeout) && times[i] != 0:
			t.Errorf("%d: %+v, and it ran", i, a.CommandAnswer)
		}
		if times[i] > 1 {
			t.Errorf("%d ran %d times", i, times[i])
		}
		if times[i] > 0 && (!approved[words] || i%2 == 1 && !strings.Contains(said, "allowed")) {
			t.Errorf("%d ran, on record as approved: %v; the person said: %q", i, approved[words], said)
		}
		if a.err != nil {
			counts["error: "+a.err.Error()]++
		} else {
			counts[strings.TrimSpace(string(a.Status)+" "+a.Reason)]++
		}
	}
	report, status := d.audit("verify")
	if status != 0 {
		t.Errorf("the record: %s", report)
	}
	if kills["gateway"] == 0 {
		t.Error("nothing was killed")
	}
	t.Logf("%d requests, kills %v, answers %v, %d ran; the record: %s", requests, kills, counts, len(times), report)
}

// childrenOf are the processes that a process began.
func childrenOf(pid int) (list []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			n, _ := strconv.Atoi(field)
			list = append(list, n)
		}
	}
	return list
}

// approvedOnRecord are the words of all commands of which the record says, before it says that they
// began, why they might.
func approvedOnRecord(t *testing.T, state string) map[string]bool {
	t.Helper()
	approved, began := map[string]bool{}, map[string]bool{}
	err := audit.Each(state, 0, func(_ int64, text []byte) error {
		var l struct {
			Event, RunID, Command string
			Decision              *grants.Decision
		}
		if json.Unmarshal(text, &l) != nil { // a kill cut it off: it counts for nothing
			return nil
		}
		switch {
		case l.Event == "command_auto_approved", l.Event == "command_decided" && l.Decision != nil && l.Decision.Kind != grants.Deny:
			approved[l.RunID] = true
		case l.Event == "command_started" && approved[l.RunID]:
			began[l.Command] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return began
}
