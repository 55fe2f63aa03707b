package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
)

// memory is what the gateway takes, and has taken at most, in KiB.
func (d *desk) memory() (now, most int) {
	d.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.gateway))
	if err != nil {
		d.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			now, _ = strconv.Atoi(fields[1])
		case "VmHWM:":
			most, _ = strconv.Atoi(fields[1])
		}
	}
	return now, most
}

// A thousand commands are asked for at once, by ten askers in each of a hundred sandboxes, while
// one more sandbox asks for hundreds: each asker has its own command's output, and none waits for
// the one that asks too much.
func TestAThousandAskAtOnce(t *testing.T) {
	const agents, each, greedy = 100, 10, 400
	d := newDesk(t)
	open := func(agent string) *grants.Session {
		s, err := d.client.Open(t.Context(), grants.SessionSpec{Agent: agent, Workspace: d.home + "/work"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	d.inside("printf", "x") // the runner runs
	var sessions []*grants.Session
	for i := range agents {
		sessions = append(sessions, open(fmt.Sprint("agent", i)))
	}
	crowd := open("greedy")
	before, _ := d.memory()
	ask := func(s *grants.Session, argv ...string) (grants.CommandAnswer, error) {
		c := client.Client{Socket: s.Socket}
		return c.RunOutside(t.Context(), "", true, grants.Command{Argv: argv})
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	begin := make(chan struct{})
	var begun time.Time
	served, refused := 0, 0
	for range greedy {
		asking.Go(func() {
			<-begin
			_, err := ask(crowd, "sleep", "0.05")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				served++
			} else {
				refused++ // by the broker, or by the socket, which takes so many at once
			}
		})
	}
	for i, s := range sessions {
		for j := range each {
			asking.Go(func() {
				<-begin
				want := fmt.Sprintf("%d-%d", i, j)
				answer, err := ask(s, "printf", want)
				if err != nil || string(answer.Stdout) != want || answer.Status != grants.CommandAutoApproved || answer.ExitCode != 0 {
					t.Errorf("%s: %+v, %v", want, answer, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(begun))
			})
		}
	}
	begun = time.Now()
	close(begin)
	asking.Wait()
	slices.Sort(took)
	_, most := d.memory()
	t.Logf("%d askers in %v: half of them after %v; beside them %d of %d of one sandbox, %d refused; %d MiB of memory, and %d before", len(took), took[len(took)-1].Round(time.Millisecond),
		took[len(took)/2].Round(time.Millisecond), served, greedy, refused, most>>10, before>>10)
	if served+refused != greedy || served == 0 {
		t.Errorf("%d and %d", served, refused)
	}
	if most-before > 256<<10 {
		t.Errorf("it takes %d KiB, and took %d", most, before)
	}
	// Each is on record once, from what was asked to what came of it.
	lines := map[string]int{}
	err := audit.Each(d.home+"/state/clai-sandbox", 0, func(_ int64, line []byte) error {
		for _, event := range []string{"command_requested", "command_auto_approved", "command_started", "command_ended"} {
			if bytes.Contains(line, []byte(`"event":"`+event+`"`)) && bytes.Contains(line, []byte(`"agentId":"agent`)) {
				lines[event]++
			}
		}
		return nil
	})
	if err != nil || len(lines) != 4 {
		t.Errorf("%v, %v", lines, err)
	}
	for event, n := range lines {
		if n != agents*each {
			t.Errorf("%s: %d", event, n)
		}
	}
}

// What a sandbox asks for ten thousand times waits for no person more than a few times, and keeps
// nobody else from being heard.
func TestTenThousandQuestionsOfOneSandbox(t *testing.T) {
	d := newDesk(t)
	before, _ := d.memory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asking sync.WaitGroup
	questions := make(chan int)
	var mu sync.Mutex
	answers := map[string]int{}
	for range 64 {
		asking.Go(func() {
			for n := range questions {
				c := client.Client{Socket: d.session.Socket}
				_, err := c.RunOutside(ctx, "", true, grants.Command{Argv: []string{"id", "-u", fmt.Sprint("user", n)}})
				kind := "answered"
				switch {
				case errors.As(err, new(*grants.BusyError)):
					kind = "busy"
				case ctx.Err() != nil:
					kind = "left"
				case err != nil:
					kind = err.Error()
				}
				mu.Lock()
				answers[kind]++
				mu.Unlock()
			}
		})
	}
	// Some of them wait, for good; the others go on asking.
	for n := range 10000 {
		select {
		case questions <- n:
		case <-time.After(20 * time.Second):
			t.Fatalf("after %d questions, all askers wait", n)
		}
	}
	close(questions)
	other, err := d.client.Open(t.Context(), grants.SessionSpec{Agent: "other", Workspace: d.home + "/work"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c := client.Client{Socket: other.Socket}
	if a, err := c.RunOutside(t.Context(), "", true, grants.Command{Argv: []string{"printf", "x"}}); err != nil || string(a.Stdout) != "x" {
		t.Errorf("%+v, %v", a, err)
	}
	list, err := d.client.Pending(t.Context())
	if err != nil || len(list) == 0 || len(list) > 16 {
		t.Errorf("%d wait, %v", len(list), err)
	}
	_, most := d.memory()
	refused := func() int {
		mu.Lock()
		defer mu.Unlock()
		return answers["busy"]
	}
	for end := time.Now().Add(20 * time.Second); refused() < 10000-len(list) && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	cancel()
	asking.Wait()
	t.Logf("%v; %d MiB of memory, and %d before", answers, most>>10, before>>10)
	if answers["busy"]+answers["left"] != 10000 || answers["left"] != len(list) {
		t.Errorf("%v, and %d waited", answers, len(list))
	}
	if most-before > 64<<10 {
		t.Errorf("it takes %d KiB, and took %d", most, before)
	}
}

// A body of 100 MB is refused long before its end, at each socket, whether it says how long it is
// or not.
func TestAHundredMegabytesAreRefused(t *testing.T) {
	d := newDesk(t)
	const length = 100 << 20
	before, _ := d.memory()
	for name, at := range map[string]struct{ socket, route string }{
		"the person's":  {d.client.Socket, "/v1/commands"},
		"a new session": {d.client.Socket, "/v1/sessions"},
		"a sandbox's":   {d.session.Socket, "/v1/commands"},
		"a question":    {d.session.Socket, "/v1/questions"},
	} {
		for _, chunked := range []bool{false, true} {
			conn, err := net.Dial("unix", at.socket)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(30 * time.Second))
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: broker\r\nContent-Type: application/json\r\n", at.route)
			if chunked {
				head += "Transfer-Encoding: chunked\r\n\r\n"
			} else {
				head += fmt.Sprintf("Content-Length: %d\r\n\r\n", length)
			}
			_, err = io.WriteString(conn, head+map[bool]string{true: fmt.Sprintf("%x\r\n", length)}[chunked]+`{"argv":["`)
			part := []byte(strings.Repeat("x", 64<<10))
			sent := 0
			for err == nil && sent < length {
				var n int
				n, err = conn.Write(part)
				sent += n
			}
			if err == nil || sent > 16<<20 {
				t.Errorf("%s: %d bytes were taken, chunked: %v", name, sent, chunked)
			}
			answer, _ := io.ReadAll(conn) // which may be lost, where the connection was reset
			if len(answer) > 0 && !bytes.Contains(answer[:min(len(answer), 20)], []byte(" 4")) {
				t.Errorf("%s: %.200q", name, answer)
			}
			conn.Close()
		}
	}
	if _, most := d.memory(); most-before > 64<<10 {
		t.Errorf("it takes %d KiB, and took %d", most, before)
	}
	if out, _, status := d.inside("printf", "x"); out != "x" || status != 0 {
		t.Error("nobody is answered any more")
	}
}
