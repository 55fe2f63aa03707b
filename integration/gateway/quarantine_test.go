package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// What comes into the quarantine is on record once, whoever put it there, also what came while no
// gateway ran.
func TestWhatIsSetAsideIsOnRecord(t *testing.T) {
	state := t.TempDir()
	log, problems := audit.Open(filepath.Join(state, audit.Name), 0)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	defer log.Close()
	made := 0
	put := func(n int) {
		t.Helper()
		q := protect.QuarantineIn(state)
		q.Agent, q.Workspace = "main", "/w"
		for range n {
			made++
			if _, err := q.PutSetting("/w/.git/config", protect.Setting{Key: fmt.Sprint("core.x", made)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(event string) int {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(state, audit.Name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), `"event":"`+event+`"`)
	}
	q := newQuarantineRecord(state, "somebody", log)
	q.look()
	put(2)
	q.look()
	q.look()
	if n := count("quarantined"); n != 2 {
		t.Errorf("%d lines of 2", n)
	}
	put(1)
	next := newQuarantineRecord(state, "somebody", log)
	next.look()
	if n := count("quarantined"); n != 3 {
		t.Errorf("%d lines of 3", n)
	}
	next.most = 3
	put(8)
	next.look()
	next.look()
	if n, more := count("quarantined"), count("quarantined_more"); n != 6 || more != 1 {
		t.Errorf("%d lines, %d of more", n, more)
	}
	text, _ := os.ReadFile(filepath.Join(state, audit.Name))
	if !strings.Contains(string(text), `"agentId":"main","workspaceId":"/w","path":"/w/.git/config"`) {
		t.Errorf("%.500s", text)
	}
}
