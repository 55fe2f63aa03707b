package profile

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rooms are all packages of this module, what each holds, and which others it imports, besides
// those that every room may. The arrows go one way. A new arrow is a line changed here, and with
// -update in the table of docs/architecture.md.
var rooms = []struct{ path, holds, imports string }{
	{"profile/text", "how text of unknown origin is shown to people", ""},
	{"profile/aside", "a file of ours that cannot be used, kept under another name", ""},
	{"profile/whole", "small files of ours, replaced as a whole; on a full disk, written over in place if the new text is no longer than the old", ""},
	{"profile/shut", "directories of mode 0 that hold what commands write, so that no path leads there: opened for a moment, then used by descriptor", ""},
	{"profile/shut/shuttest", "tests alone: looks into such directories, and removes them", ""},
	{"profile/written", "the account of every directory that a command could write", ""},
	{"wire/socket", "unix sockets that only their owner reaches: made, named, guarded", ""},
	{"wire/strangers", "connections at an address that anybody reaches: who has not shown yet who they are makes room for later ones", ""},
	{"profile/variables", "the one list of environment variables that choose code, whom a program trusts, or as whom it speaks", ""},
	{"profile", "what one agent's sandbox may see and do; the configuration files and their schema; the environment", "profile/variables"},
	{"profile/preset", "what programs of agents, and the tools that they use, need of a sandbox: a file of JSON each", "profile"},
	{"wire", "HTTP and JSON by tables of routes: limits, streams of events", ""},
	{"sandbox", "profile → plan → bwrap's arguments and trees of mounts → a running command → result; what goes wrong, and why", "profile sandbox/bus sandbox/cow sandbox/cow/changes sandbox/descriptor sandbox/device sandbox/egress sandbox/image sandbox/landlock sandbox/limits sandbox/links sandbox/mounts sandbox/process sandbox/protect sandbox/publish sandbox/repository sandbox/seccomp sandbox/server sandbox/sshagent sandbox/trampoline"},
	{"sandbox/bus", "the session bus for a command: addresses, the names and calls that are let through, the socket, the proxy, the relay", "sandbox/descriptor sandbox/process"},
	{"sandbox/bus/bustest", "tests alone: a session bus of a test's own, with services on it", "sandbox/process/processtest"},
	{"sandbox/cow", "the layers of what is seen copy on write: made, found again, locked while in use", "sandbox/mounts"},
	{"sandbox/cow/changes", "what is in such a layer beside the host's: listed, compared, brought to the host, thrown away", "profile sandbox/cow sandbox/mounts"},
	{"sandbox/cow/changes/screen", "the screen at which a person looks through changes", "sandbox/cow/changes"},
	{"sandbox/descriptor", "open files by their descriptors: pipes, files in memory, objects held by what they are", "profile sandbox/links"},
	{"sandbox/device", "which devices of the host a command may have, by what the kernel says that they are", "profile sandbox/links"},
	{"sandbox/egress", "the proxy of a filtered network: who may be connected to, and what may be said first", "profile"},
	{"sandbox/image", "which images there are, where their files lie, which of them a run holds", "profile"},
	{"sandbox/image/store", "images imported and removed, their layers shared, on containers/storage", "profile sandbox/image sandbox/image/unpack"},
	{"sandbox/image/unpack", "archives, layers and directories of unknown origin, put into a directory and nowhere else", "sandbox/image"},
	{"sandbox/diagnosis", "why a command failed: which path or domain it lacked, or what no sandbox has", "profile sandbox"},
	{"sandbox/landlock", "the second layer beside the mounts: rules for what may be opened, no signals and abstract sockets across the edge", "sandbox/descriptor sandbox/trampoline"},
	{"sandbox/limits", "what a sandbox may take only so much of, and what holds it: cgroups, systemd's scopes, rlimits, process ids", "profile sandbox/descriptor sandbox/process sandbox/trampoline"},
	{"sandbox/links", "symbolic links followed hop by hop, as the kernel does; the file system as a plan looks at it", ""},
	{"sandbox/links/linkstest", "tests alone: a file system that is written down line by line", "sandbox/links"},
	{"sandbox/mounts", "trees of mounts: put together apart, moved in, changed and taken away while the sandbox runs, all by descriptor", "sandbox/trampoline"},
	{"sandbox/mounts/nomount", "tests alone: takes from a test the right to mount, as a container does", ""},
	{"sandbox/process/processtest", "tests alone: to wait for processes, and to find them", "profile/shut/shuttest"},
	{"sandbox/protect", "what programs outside execute: found before a command begins, set aside when it comes into being, kept in the quarantine; the records of runs", ""},
	{"sandbox/process", "a program that is started outside: trusted, guarded, its streams; the processes that it has started", "sandbox/descriptor sandbox/links"},
	{"sandbox/publish", "connections from the host's loopback interface to ports of a sandbox's own network", "sandbox/trampoline"},
	{"sandbox/repository", "git's settings: which do no harm, how their file is read and changed; what executes is taken out of a repository made inside; whether an index, an object or a pack is what it says", ""},
	{"sandbox/seccomp", "the filter of system calls: the table of what is refused and why, and the program for the kernel", ""},
	{"sandbox/server", "what starts the commands of a session in its one sandbox: in all of its namespaces but that of process ids", "sandbox/trampoline"},
	{"sandbox/sshagent", "what a launcher and the program that serves a sandbox's ssh-agent say to each other", "profile"},
	{"sandbox/sshagent/serve", "that program: what of an ssh-agent's protocol passes, to which hosts, with which keys", "profile sandbox/sshagent"},
	{"sandbox/trampoline", "programs of some forty instructions that carry out lists of system calls", ""},
	{"policy", "whether a command may leave the sandbox: shell lines, allowlists, the approvals file, what an approval is bound to", "profile/variables"},
	{"policy/host", "what decides on this machine: the configuration and the approvals file, put together", "policy profile"},
	{"audit", "the file that says what was asked, decided and done: lines of any shape, only ever appended to, under a tree of hashes whose root is signed", ""},
	{"grants", "path grants: the question, the decision, the rules that keep one no wider than the other; the snapshot that runs read", "profile"},
	{"grants/broker", "what waits for an answer; sessions, limits", "audit grants grants/store profile"},
	{"grants/brokertest", "tests alone: what every broker must do, and random calls to it beside a simple account of what must come of them", "grants profile"},
	{"grants/client", "the broker that is one end of such a socket; the program that asks from inside", "grants profile"},
	{"grants/review", "the screen at which a person answers", "grants profile"},
	{"grants/server", "the broker behind a unix socket", "grants wire"},
	{"grants/store", "what is stored, in a bbolt database", "grants profile"},
	{"outside", "what waits for an answer to run outside; decisions, what is on record, what a killed gateway left", "audit grants grants/broker outside/runner policy policy/host profile"},
	{"outside/container", "what a container and the gateway's door say to each other; the program that a container has", ""},
	{"outside/door", "the door for containers: tokens, one route over HTTP, on a socket and where asked on an address", "grants outside outside/container profile wire/strangers"},
	{"outside/runner", "runs commands outside of any sandbox, in a process of its own: asks the policy itself", "policy policy/host profile profile/variables"},
	{"integration/agents", "tests alone: programs of real agents, with a model that follows a script", ""},
	{"integration/gateway", "the daemon that owns the database and listens; one at a time, started on demand", "audit grants grants/broker grants/server grants/store integration/notify integration/peer outside outside/door outside/runner policy/host profile sandbox sandbox/protect"},
	{"integration/instructions", "what an agent is told about its sandbox, in words", "profile sandbox"},
	{"integration/mcp", "the agent's backend: a server of the Model Context Protocol", "grants integration/instructions integration/mcp/files integration/peer integration/rooms integration/session profile sandbox sandbox/cow/changes sandbox/diagnosis wire/strangers"},
	{"integration/mcp/files", "an agent's file tools: a program that runs inside, one request in and one answer out", ""},
	{"integration/notify", "a request as a notification on the desktop, with buttons", "grants profile"},
	{"integration/peer", "which process is at the other end of a unix socket, and whether it is in a sandbox", ""},
	{"integration/rooms", "the sandboxes that stay, for their person: listed, looked into, ended, joined", "integration/peer profile sandbox"},
	{"integration/session", "one agent's session: its sandboxes show what is granted when they start and while they run", "grants profile sandbox sandbox/sshagent"},
	{"integration/shell", "what an agent has in place of its shell: which line, whose agent's, and what comes back of it", ""},
	{"cmd/clai-sandbox", "the command: flags in, one call, output out", "cmd/delegated grants grants/client integration/instructions integration/rooms integration/session integration/shell profile profile/preset sandbox sandbox/cow sandbox/diagnosis sandbox/protect sandbox/repository"},
	{"cmd/clai-sandbox-hostexec", "the program that a container has: it asks at the door", "outside/container"},
	{"cmd/clai-sandboxd", "the long-running modes, and what is too heavy for a start of the command: `agents`, `approvals`, `config`, `explain --host`, `grants review`, `image`, `mcp`", "audit cmd/delegated grants grants/client grants/review grants/store integration/gateway integration/mcp integration/mcp/files integration/session outside/container outside/door outside/runner policy policy/host profile sandbox sandbox/bus sandbox/cow/changes sandbox/cow/changes/screen sandbox/image sandbox/image/store sandbox/image/unpack sandbox/sshagent/serve"},
	{"cmd/delegated", "the command lines of what `clai-sandbox` leaves to `clai-sandboxd`", "profile"},
	{"packaging/bench", "the benchmark", ""},
	{"packaging/mutate", "takes each condition of the security decisions out once, to see that a test notices", ""},
	{"packaging/testreport", "what a person wants to know of a run of the tests", ""},
}

// everywhere may be imported by every room.
var everywhere = []string{"profile/text", "profile/aside", "profile/whole", "profile/shut", "profile/written", "wire/socket"}

// quick are the programs that start with every command, or inside with every call of a file tool.
// What is heavy is not linked into them.
var (
	quick = []string{"cmd/clai-sandbox", "integration/mcp/files"}
	heavy = []string{"net/http", "crypto/tls", "github.com/google/jsonschema-go", "github.com/cpuguy83/go-md2man", "github.com/containers/storage",
		"go.etcd.io/bbolt", "charm.land", "github.com/godbus", "golang.org/x/crypto", "mvdan.cc/sh"}
)

const ours = "github.com/clairun/clai-sandbox/"

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	arrows := imports(t)
	for _, room := range rooms {
		found, is := arrows[ours+room.path]
		if !is {
			t.Errorf("%s is no package", room.path)
		}
		delete(arrows, ours+room.path)
		var list []string
		for _, path := range found {
			if other, is := strings.CutPrefix(path, ours); is && !slices.Contains(everywhere, other) {
				list = append(list, other)
			}
		}
		if got := strings.Join(list, " "); got != room.imports {
			t.Errorf("%s imports %q, want %q", room.path, got, room.imports)
		}
	}
	for path := range arrows {
		if room, is := strings.CutPrefix(path, ours); is {
			t.Errorf("%s is in no room", room)
		}
	}
}

func TestNothingHeavyIsLinkedIntoWhatStartsWithEveryCommand(t *testing.T) {
	arrows := imports(t)
	for _, program := range quick {
		linked := []string{ours + program}
		for i := 0; i < len(linked); i++ {
			for _, path := range arrows[linked[i]] {
				if slices.ContainsFunc(heavy, func(h string) bool { return strings.HasPrefix(path, h) }) {
					t.Errorf("%s links %s, by %s", program, path, linked[i])
				} else if !slices.Contains(linked, path) {
					linked = append(linked, path)
				}
			}
		}
	}
}

// imports lists what each package of this module, and each that it takes, imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-tags", "urfave_cli_no_docs", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, ours+"...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 0 {
			all[words[0]] = words[1:]
		}
	}
	return all
}

func TestTheDocumentHasTheRooms(t *testing.T) {
	const document, begin, end = "../docs/architecture.md", "| room | holds | imports of ours |\n|---|---|---|\n", "\n\n"
	was, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasTable := bytes.Cut(was, []byte(begin))
	_, after, ends := bytes.Cut(rest, []byte(end))
	if !hasTable || !ends {
		t.Fatalf("%s has no table of rooms", document)
	}
	var table strings.Builder
	for _, room := range rooms {
		list := "nothing"
		if room.imports != "" {
			list = "`" + strings.ReplaceAll(room.imports, " ", "`, `") + "`"
		}
		if slices.Contains(everywhere, room.path) {
			list += "; every room may import it"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", room.path, room.holds, list)
	}
	want := string(before) + begin + strings.TrimSuffix(table.String(), "\n") + end + string(after)
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(was) {
		t.Errorf("%s is not what this table says: go test ./profile -run %s -update", document, t.Name())
	}
}

// An arrow inside of a process, in the drawing, is an import.
func TestTheDocumentDrawsWhatIsImported(t *testing.T) {
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```mermaid\n")
	drawing, _, _ := strings.Cut(rest, "```")
	imports, room := map[string][]string{}, drawnRooms(drawing)
	for _, r := range rooms {
		imports[r.path] = append(strings.Fields(r.imports), everywhere...)
	}
	checked := 0
	for _, arrow := range regexp.MustCompile(`(\w+)(?:\["[^"]*"\])? --> (\w+)`).FindAllStringSubmatch(drawing, -1) {
		from, to := room(arrow[1]), room(arrow[2])
		list, isRoom := imports[from]
		if !isRoom {
			continue
		}
		checked++
		if !slices.Contains(list, to) {
			t.Errorf("%s does not import %s", from, to)
		}
	}
	if checked < 12 {
		t.Errorf("only %d arrows between rooms found", checked)
	}
}

// drawnRooms finds the room of a name in a drawing: what its label begins with, or the name itself.
func drawnRooms(drawing string) func(string) string {
	labels := map[string]string{}
	for _, label := range regexp.MustCompile(`(\w+)\["([^",:]*)`).FindAllStringSubmatch(drawing, -1) {
		labels[label[1]] = label[2]
	}
	return func(name string) string { return cmp.Or(labels[name], name) }
}

func TestTheDocumentNamesFilesThatAreThere(t *testing.T) {
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for i, word := range strings.Split(string(text), "`") {
		if i%2 == 1 && strings.Contains(word, "/") && strings.HasSuffix(word, ".go") {
			named++
			if _, err := os.Stat("../" + word); err != nil {
				t.Error(err)
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d files found", named)
	}
}
