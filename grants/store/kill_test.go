package store

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// writeUntilKilled puts and deletes grants without an end. It says what it is about to do, and then
// that it is done.
func writeUntilKilled(dir string) {
	s, notices, err := Open(dir)
	if err != nil || len(notices) > 0 {
		fmt.Println("error", err, notices)
		os.Exit(1)
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	have := map[string]bool{}
	all, _ := s.Grants()
	for _, g := range all {
		have[g.ID] = true
	}
	for n := 0; ; n++ {
		id := fmt.Sprint("g", random.IntN(30))
		c, verb := Change{Put: []grants.Grant{newGrant("main", id, "/p/"+id)}, Records: []grants.Record{newRecord(id)}}, "put"
		if have[id] {
			c, verb = Change{Delete: c.Put}, "delete"
		}
		fmt.Println("will", verb, id)
		if err := s.Apply(c); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		have[id] = !have[id]
		fmt.Println("did", verb, id)
	}
}

// TestNothingDecidedIsLostWhenTheWriterIsKilled kills a writer several hundred times. What it said
// was done is done, what it was doing is done or not, nothing else is there, and in between the
// snapshot never shows more.
func TestNothingDecidedIsLostWhenTheWriterIsKilled(t *testing.T) {
	dir := t.TempDir()
	kills := 300
	if testing.Short() {
		kills = 20
	}
	have := map[string]bool{}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	outdated := 0
	for i := range kills {
		doing := runWriter(t, dir, have, time.Duration(random.IntN(12_000))*time.Microsecond)
		list, err := grants.ReadSnapshot(dir, "main")
		if err != nil {
			outdated++
		}
		for _, g := range list {
			if !have[g.ID] && g.ID != doing {
				t.Fatalf("kill %d: the snapshot shows %s, which was revoked or never given", i, g.ID)
			}
		}
		// Also one that is not used, because it is of another transaction: a database that is
		// damaged begins with it.
		whole, err := grants.ReadWholeSnapshot(dir)
		if err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		s, notices, err := Open(dir)
		if err != nil || len(notices) > 0 {
			t.Fatalf("kill %d: %v %+v", i, err, notices)
		}
		all, err := s.Grants()
		if err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		there := map[string]bool{}
		for _, g := range all {
			there[g.ID] = true
			if g != newGrant("main", g.ID, "/p/"+g.ID) {
				t.Fatalf("kill %d: nobody gave %+v", i, g)
			}
		}
		for _, g := range whole {
			if !there[g.ID] {
				t.Fatalf("kill %d: the snapshot has %s, and the database does not", i, g.ID)
			}
		}
		for n := range 30 {
			id := fmt.Sprint("g", n)
			if there[id] != have[id] && id != doing {
				t.Fatalf("kill %d: %s: stored %v, want %v", i, id, there[id], have[id])
			}
		}
		if got := snapshot(t, dir, "main"); got != ids(all) {
			t.Fatalf("kill %d: snapshot %s, stored %s", i, got, ids(all))
		}
		have = there
		s.Close()
	}
	t.Logf("%d kills, %d of them between database and snapshot", kills, outdated)
}

// runWriter lets a writer run for some time after its first change, kills it, and brings have up to
// what it said was done. It returns what it was doing.
func runWriter(t *testing.T, dir string, have map[string]bool, after time.Duration) (doing string) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "STORE_TEST_ROLE=writer", "STORE_TEST_DIR="+dir)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Wait()
	var kill *time.Timer
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if kill == nil {
			kill = time.AfterFunc(after, func() { command.Process.Kill() })
		}
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 3 && fields[0] == "will":
			doing = fields[2]
		case len(fields) == 3 && fields[0] == "did":
			have[fields[2]], doing = fields[1] == "put", ""
		case len(fields) > 0 && fields[0] == "error":
			t.Errorf("the writer: %s", lines.Text())
		}
	}
	return doing
}
