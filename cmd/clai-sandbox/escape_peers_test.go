package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The scoreboard makes the same attempts in other launchers of sandboxes, as they are installed
// from npm and Debian, and in bare bwrap with the options that one thinks of first. It is not part
// of the tests: make scoreboard runs it, as an ordinary user, with CLAI_SANDBOX_PEERS naming the
// directory of npm's programs.

// networkOff reports whether an attempt is one without a network.
func (a attempt) networkOff() bool { return slices.Contains(a.options, "disabled") }

var peers = []driver{
	{"bare bwrap", func(p *place, a attempt, script string) []string {
		argv := []string{"bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--symlink", "usr/bin", "/bin",
			"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
			"--ro-bind", p.home, p.home, "--bind", p.work, p.work, "--chdir", p.work, "--die-with-parent"}
		if socket, found := strings.CutPrefix(p.bus, "unix:path="); found {
			argv = append(argv, "--bind", socket, socket)
		}
		if a.networkOff() {
			argv = append(argv, "--unshare-net")
		}
		return append(argv, "--", "sh", "-c", script)
	}},
	{"sandbox-runtime", func(p *place, _ attempt, script string) []string {
		settings := p.dir + "/srt.json"
		p.write(settings, `{"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}`)
		return []string{"srt", "-s", settings, "-c", script}
	}},
	{"codex", func(_ *place, _ attempt, script string) []string {
		return []string{"codex", "sandbox", "-c", `sandbox_mode="workspace-write"`, "sh", "-c", script}
	}},
	{"firejail", func(p *place, a attempt, script string) []string {
		// The places lie in /var/tmp, which it makes private, or else read-only, if nobody says
		// otherwise.
		argv := []string{"firejail", "--quiet", "--keep-var-tmp", "--whitelist=" + p.work, "--read-write=" + p.work}
		if a.networkOff() {
			argv = append(argv, "--net=none")
		}
		return append(argv, "sh", "-c", "cd "+quoted([]string{p.work})+"; "+script) // it begins in the home
	}},
	ours,
}

// notForPeers are the classes that are about this program alone.
var notForPeers = []string{"our own files", "network by name", "the launcher", "limits"}

func TestScoreboard(t *testing.T) {
	programs := os.Getenv("CLAI_SANDBOX_PEERS")
	if programs == "" {
		t.Skip("make scoreboard sets CLAI_SANDBOX_PEERS")
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	usable := map[string]string{}
	for _, d := range peers {
		p := newPlace(t)
		if through, err := (attempt{command: "echo usable > probe", through: contains("$WORK/probe", "usable")}).make(p, d); err != nil || !through {
			usable[d.name] = fmt.Sprintf("does not run here: %v %s", err, firstLine(p.out))
		}
	}
	results := make([]map[string]string, len(attempts))
	for i, a := range attempts {
		results[i] = map[string]string{}
		if !a.applies() || a.refused || slices.Contains(notForPeers, a.class) {
			continue
		}
		for _, d := range peers {
			if usable[d.name] != "" {
				results[i][d.name] = "–"
				continue
			}
			t.Run(fmt.Sprintf("%s %02d", d.name, i+1), func(t *testing.T) {
				p := newPlace(t)
				through, err := a.make(p, d)
				switch {
				case err != nil:
					results[i][d.name] = "–"
				case through:
					results[i][d.name] = "**through**"
				default:
					results[i][d.name] = "held"
				}
			})
		}
	}
	writeScoreboard(t, results, usable)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

func writeScoreboard(t *testing.T, results []map[string]string, usable map[string]string) {
	var text strings.Builder
	fmt.Fprintf(&text, `# Scoreboard

Written by `+"`make scoreboard`"+` on %s, as an ordinary user: the attempts of [escapes.md](escapes.md) that are not about
this program alone, in other launchers of sandboxes as they come from npm and Debian. "through": it did what it tried.
"held": it did not, for whatever reason. "–": the launcher would not run it here.

Each with a writable project, the home readable, and no network where the attempt is one without (sandbox-runtime and codex never
have one here). Bare bwrap has the options that one thinks of first: system and home read-only, the project writable, the
network shared, the session bus bound. What a launcher does not set out to do counts all the same: firejail confines
desktop programs and leaves a project to its owner; sandbox-runtime and codex protect some of a project's files and leave
the home readable; bare bwrap is a tool to build launchers with.

Versions: %s.

`, time.Now().UTC().Format("2006-01-02"), versions())
	for _, d := range peers {
		if usable[d.name] != "" {
			fmt.Fprintf(&text, "%s %s\n\n", d.name, usable[d.name])
		}
	}
	header, rule := "| | class | attempt |", "|---|---|---|"
	for _, d := range peers {
		header, rule = header+" "+d.name+" |", rule+"---|"
	}
	text.WriteString(header + "\n" + rule + "\n")
	sums, made := map[string]int{}, map[string]int{}
	for i, a := range attempts {
		if len(results[i]) == 0 {
			continue
		}
		fmt.Fprintf(&text, "| %d | %s | %s |", i+1, a.class, a.title)
		for _, d := range peers {
			result := results[i][d.name]
			fmt.Fprintf(&text, " %s |", result)
			if result != "–" {
				made[d.name]++
			}
			if strings.Contains(result, "through") {
				sums[d.name]++
			}
		}
		text.WriteString("\n")
	}
	text.WriteString("| | | **got through, of those that ran** |")
	for _, d := range peers {
		fmt.Fprintf(&text, " %d of %d |", sums[d.name], made[d.name])
	}
	text.WriteString("\n")
	path := filepath.Join(os.Getenv("CLAI_SANDBOX_SCOREBOARD"), "scoreboard.md")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
	if sums[ours.name] > 0 {
		t.Errorf("%d got through ours", sums[ours.name])
	}
}

func versions() string {
	var list []string
	for _, command := range []string{"bwrap --version", "srt --version", "codex --version", "firejail --version"} {
		words := strings.Fields(command)
		out, _ := exec.Command(words[0], words[1:]...).Output()
		list = append(list, words[0]+": "+firstLine(string(out)))
	}
	return strings.Join(list, "; ")
}
