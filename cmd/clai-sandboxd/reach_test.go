package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
)

// With curl, a command in a sandbox that has the host's network reaches nothing of the gateway's
// but its own socket, and there nothing but to ask; at the address for containers it is nobody
// without a token.
func TestCurlInASandboxReachesNothingOfTheGateway(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	d := newDesk(t, "--containers", address)
	d.build("clai-sandbox", "../clai-sandbox")
	asked := make(chan grants.CommandAnswer, 1)
	go func() {
		a, _ := d.client.RunOutside(t.Context(), "", false, grants.Command{Argv: []string{"id", "-g"}, Cwd: d.home})
		asked <- a
	}()
	waits := d.waiting()

	var sockets []string
	err = filepath.WalkDir(d.home, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type()&fs.ModeSocket != 0 {
			sockets = append(sockets, path)
		}
		return err
	})
	if err != nil || len(sockets) < 3 { // the person's, another session's, that of containers
		t.Fatal(sockets, err)
	}
	var api struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	text, err := os.ReadFile("../../grants/server/openapi.json")
	if err == nil {
		err = json.Unmarshal(text, &api)
	}
	if err != nil {
		t.Fatal(err)
	}
	decision := fmt.Sprintf(`{"kind":"allowOnce","shown":%q}`, waits.Outside.Shown)
	var script strings.Builder
	calls := 0
	call := func(name, method, target string, options ...string) {
		calls++
		fmt.Fprintf(&script, "echo \"%s $(curl -sS --max-time 5 -o /dev/null -w '%%{http_code}' -X %s -H 'Content-Type: application/json' -d '%s' %s '%s' 2>/dev/null)\"\n", name, method, decision, strings.Join(options, " "), target)
	}
	for path, methods := range api.Paths {
		for method := range methods {
			at := "http://broker" + strings.ReplaceAll(path, "{id}", waits.ID)
			// Asking is what its own socket is for: a body that asks for nothing is refused there.
			call("own", strings.ToUpper(method), at, "--unix-socket", grants.InsideSocket)
		}
	}
	for i, socket := range sockets {
		call(fmt.Sprint("socket", i), "GET", "http://broker/v1/status", "--unix-socket", socket)
	}
	request := "http://" + address + "/request"
	call("door", "POST", request)
	call("door", "POST", request, "-H", "'X-Clai-Token: "+strings.Repeat("0", 64)+"'")
	call("page", "POST", request, "-H", "'Origin: http://127.0.0.1'")
	call("nothing", "POST", "http://"+address+"/v1/grants/requests/"+waits.ID+"/decision")

	run := exec.Command(d.bin+"/clai-sandbox", "run", "--broker", "--network", "enabled", "--agent", "main", "--", "sh")
	run.Dir, run.Stdin = d.home+"/work", strings.NewReader(script.String())
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != calls {
		t.Errorf("%d of %d: %s", len(lines), calls, out)
	}
	for _, line := range lines {
		name, status, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(name, "socket") && status == "000":
		case name == "own" && (status == "404" || status == "405" || status == "400"):
		case name == "door" && status == "401", name == "page" && status == "403", name == "nothing" && status == "404":
		default:
			t.Errorf("%s", line)
		}
	}
	if r := d.waiting(); r.ID != waits.ID {
		t.Errorf("%+v", r)
	}
	if _, err := d.client.Decide(t.Context(), waits.ID, grants.Decision{}); err != nil {
		t.Fatal(err)
	}
	if a := <-asked; a.Status != grants.CommandDenied {
		t.Errorf("%+v", a)
	}
}
