package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// longInput is more than a pipe holds, so that a part of it that was taken out too early would be
// missing.
const longInput = 1 << 20

func init() {
	helpers["refused"] = func() {
		var p profile.Profile
		fatal := func(err error) {
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		fatal(json.Unmarshal([]byte(os.Args[1]), &p))
		bwrap, err := FindBwrap("", "")
		fatal(err)
		plan, err := Build(p, Host{})
		fatal(err)
		var out bytes.Buffer
		_, err = Launcher{Bwrap: bwrap}.Run(context.Background(), plan, []string{"/bin/sh", "-c", "wc -c; cat " + os.Args[2] + "; echo x 2>/dev/null >> " + os.Args[2] + " || echo refused"},
			Stdio{In: strings.NewReader(strings.Repeat("x", longInput)), Out: &out})
		fatal(err)
		fmt.Print(out.String())
	}
}

// Where this process may not make the calls, or not enter its own sandbox, bubblewrap makes the
// mounts; nothing of the input is lost.
func TestWhereMountingIsRefusedBubblewrapMounts(t *testing.T) {
	for _, what := range []string{"mounts", "enter"} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t)
			file := h.write(h.outside()+"/data/file", "granted\n")
			h.grant(h.outside()+"/data", profile.ReadOnly)
			text, err := json.Marshal(h.profile)
			if err != nil {
				t.Fatal(err)
			}
			cmd := helperCommand(t, "refused", string(text), file)
			cmd.Env = append(cmd.Env, nomount.Variable+"="+what)
			out, err := cmd.CombinedOutput()
			if want := fmt.Sprintf("%d\ngranted\nrefused\n", longInput); err != nil || string(out) != want {
				t.Errorf("%v: %q, want %q", err, out, want)
			}
		})
	}
}
