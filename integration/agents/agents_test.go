package agents

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update-agents", false, "write testdata anew")

// An agent is one that a test drives: it is told something, and interrupted.
type agent interface {
	prompt(text string)
	interrupt()
}

// drivers begin an agent on a machine, by the name of its program.
var drivers = map[string]struct {
	begin func(m *machine) agent
	wants []string // what it reaches for outside, however it is configured
}{
	"claude":   {claude, nil},
	"codex":    {codex, nil},
	"opencode": {opencode, []string{"registry.npmjs.org:443"}}, // for the types of its plugins
}

// What an agent does all day, as a script for its model: files, commands, a grant that comes while
// the sandbox runs, a denial, a call that is cancelled, and more output than a model reads. What
// the model was sent is in testdata.
func TestRealAgentsWorkInASessionsSandbox(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			program := installed(t, name)
			m := newMachine(t, program)
			granted, denied := m.base+"/other/granted", m.base+"/other/denied"
			m.write(granted, "what was granted\n")
			m.write(denied, "what was not\n")
			m.start("clai-sandbox", nil, m.command, "gateway", "--no-notify")
			a := driver.begin(m)
			sh := func(line string) map[string]any { return map[string]any{"command": line} }
			ask := func(path, access string) map[string]any {
				return map[string]any{"path": path, "access": access, "reason": "to see"}
			}
			m.model.follow([]step{
				{tool: "bash_exec", arguments: sh(`echo out; echo err >&2; pwd; (exit 3)`)},
				{tool: "write", arguments: map[string]any{"path": "file", "content": "one\n\"two\"\n"}},
				{tool: "read", arguments: map[string]any{"path": "file"}},
				{tool: "bash_exec", arguments: sh("cat " + granted)},
				{tool: "fs_request_grant", arguments: ask(granted, "read_only"), meanwhile: func() { m.answers("allow", granted) }},
				{tool: "bash_exec", arguments: sh("cat " + granted)},
				{tool: "fs_request_grant", arguments: ask(denied, "read_write"), meanwhile: func() { m.answers("deny", denied) }},
				{tool: "read", arguments: map[string]any{"path": denied}},
				{tool: "bash_exec", arguments: sh(`head -c 10000000 /dev/zero | tr '\0' x`)},
				{tool: "bash_exec", arguments: sh("touch begun; sleep 4711"), meanwhile: func() {
					m.until("the command runs", func() bool { _, err := os.Stat(m.work + "/begun"); return err == nil })
					a.interrupt()
					a.prompt("go on")
				}},
				{tool: "exec", arguments: sh("for i in $(seq 100); do ps x | grep -q '[s]leep 4711' || exit 0; sleep 0.05; done; echo it runs on")},
				{server: always, tool: "bash_exec", arguments: sh("echo out; (exit 3)")},
			})
			a.prompt("go")
			late := time.After(2 * time.Minute)
			for over := false; !over; {
				select {
				case do := <-m.model.meanwhile:
					do()
				case <-m.model.over:
					over = true
				case <-late:
					t.Fatalf("not in time; until then:\n%s", m.heard())
				}
			}
			m.compare("testdata/"+name+".txt", m.heard())
			for _, wanted := range m.model.wanted() {
				if !slices.Contains(driver.wants, wanted) {
					t.Errorf("it wants to reach %s", wanted)
				}
			}
			m.end(name)
			m.until("nothing runs any more", func() bool { return m.person("sessions", "list") == "no session has a sandbox\n" })
		})
	}
}

// installed is where packaging/agents.sh has put an agent's program.
func installed(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/agents/bin/" + name)
	if err == nil {
		err = exec.Command(path, "--version").Run()
	}
	if err != nil {
		t.Skipf("%s is not here, or does not run (packaging/agents.sh installs it, and says why not in bin/agents/%s/install.log): %v", name, name, err)
	}
	return path
}

// Own words of an agent's in a result that are not about the call, and what differs from time to
// time.
var (
	ownWords = regexp.MustCompile(`(?s)\n*(` + regexp.QuoteMeta(between) + `)?<system-reminder>.*?</system-reminder>`)
	times    = regexp.MustCompile(`(Wall time: |after )[0-9.]+( ?s)`)
	grantIDs = regexp.MustCompile(`\(grant g[a-z2-7]+\)`)
	manyX    = regexp.MustCompile(`x{100,}`)
	groups   = regexp.MustCompile(`(Process Group PGID: |Chunk ID: |Original token count: )[0-9a-f]+`)
	unnamed  = regexp.MustCompile(`(email address \(got ').*('\))`)
	waits    = regexp.MustCompile(`(?m)^(Output: )?fs_request_grant: waiting for a person.*\n`)
	unready  = regexp.MustCompile(`\.tmp\.[0-9]+\.[0-9a-f]+`)
	duration = regexp.MustCompile(`("durationMs":)\d+`)
)

// heard is what the model was sent as results, made comparable.
func (m *machine) heard() string {
	var b strings.Builder
	steps, results := m.model.heard()
	for i, result := range results {
		if steps[i].races {
			result = "(one of several)"
		}
		result = ownWords.ReplaceAllString(result, "")
		result = times.ReplaceAllString(result, "${1}N$2")
		result = unready.ReplaceAllString(result, ".tmp")
		result = duration.ReplaceAllString(result, "${1}1")
		result = waits.ReplaceAllString(result, "$1")
		result = unnamed.ReplaceAllString(groups.ReplaceAllString(result, "${1}N"), "${1}NAME$2")
		result = grantIDs.ReplaceAllString(result, "(grant ID)")
		result = manyX.ReplaceAllStringFunc(result, func(s string) string { return fmt.Sprintf("x*%d", len(s)) })
		call := steps[i].line
		if call == "" {
			call = strings.TrimLeft(steps[i].server+" "+steps[i].tool, " ") + " " + readable(steps[i].arguments)
		}
		fmt.Fprintf(&b, "> %s\n%s\n\n", call, strings.TrimRight(result, "\n"))
	}
	return strings.ReplaceAll(b.String(), m.base, "/machine")
}

// readable is JSON for people.
func readable(value any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.Encode(value)
	return strings.TrimRight(b.String(), "\n")
}

func (m *machine) compare(golden, got string) {
	m.t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		m.t.Fatal(err)
	}
	if got != string(want) {
		m.t.Errorf("%s is not what the model was sent (-update-agents writes it anew):\n%s", golden, got)
	}
}
