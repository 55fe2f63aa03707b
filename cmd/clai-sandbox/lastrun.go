package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/diagnosis"
)

// A lastRun is what the last run of a command lacked, for clai-sandbox grants add --from-run last.
type lastRun struct {
	Agent   string  `json:"agent"`
	Command string  `json:"command"`
	Missing []offer `json:"missing"`
}

// An offer is something that a run lacked: a path that can be granted, or what a person was told.
type offer struct {
	Path   string         `json:"path,omitempty"`
	Access profile.Access `json:"access,omitzero"`
	Told   string         `json:"told"`
}

// Files in the state directory, which no sandbox sees. What is offered was named by a command, and
// is bounded where it is found.
const (
	lastRunName = "last-run.json"
	neverName   = "never-offered.json" // by agent, the paths that a person will not be asked about any more
	maxNever    = 1000
	maxOffers   = 1 << 20 // bytes of either file
)

// keepLastRun writes down what a run lacked. Where that cannot be written, only the lines that were
// printed say it.
func (j job) keepLastRun(command []string, missing []diagnosis.Missing) {
	path := filepath.Join(j.directories.State, lastRunName)
	if len(missing) == 0 {
		os.Remove(path)
		return
	}
	last := lastRun{Agent: j.profile.Agent, Command: shortened(strings.Join(command, " "))}
	for _, l := range missing {
		o := offer{Told: remedy(l, j.profile.Agent)}
		if l.Grantable() {
			o.Path, o.Access = l.Path, l.Access
		}
		last.Missing = append(last.Missing, o)
	}
	_ = replaceJSON(path, last)
}

func shortened(s string) string {
	if runes := []rune(s); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return s
}

// replaceJSON puts a file in place in one step.
func replaceJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}

// readJSON reads such a file. None is as an empty one.
func readJSON(path string, value any) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxOffers))
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// neverOffered are the paths that a person does not want to be asked about.
type neverOffered map[string][]string

func (n neverOffered) has(agent, path string) bool { return slices.Contains(n[agent], path) }

// readNever takes a file that cannot be read for none: then a person is asked once more.
func readNever(state string) neverOffered {
	n := neverOffered{}
	if readJSON(filepath.Join(state, neverName), &n) != nil || n == nil {
		return neverOffered{}
	}
	return n
}

// grantsAddFromRun asks about what the last run lacked, one after the other.
func grantsAddFromRun(c *cli.Context) error {
	for _, name := range []string{"agent", "access"} {
		if c.IsSet(name) {
			return &usage{"--" + name + " says nothing with --from-run", "leave it out: the run says it"}
		}
	}
	if which := c.String("from-run"); which != "last" {
		return &usage{"--from-run " + profile.Printable(which) + " is no run that is known", "clai-sandbox grants add --from-run last"}
	}
	if err := noArguments(c, "leave it out, or leave --from-run out"); err != nil {
		return err
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	state := caller.Directories().State
	var last lastRun
	if err := readJSON(filepath.Join(state, lastRunName), &last); err != nil {
		return err
	}
	if len(last.Missing) == 0 {
		fmt.Println("the last run lacked nothing that is known")
		return nil
	}
	fmt.Printf("%s, of agent %s, lacked:\n", profile.Printable(last.Command), profile.Printable(last.Agent))
	never, answers := readNever(state), bufio.NewReader(os.Stdin)
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		for _, o := range last.Missing {
			switch {
			case o.Path == "":
				fmt.Println("  " + oneLine(o.Told))
				continue
			case never.has(last.Agent, o.Path):
				fmt.Printf("  %s: you said never; clai-sandbox grants add grants it all the same\n", profile.Printable(o.Path))
				continue
			}
			if told := riskOf(o.Path, o.Access); told != "" {
				fmt.Printf("  note: %s\n", oneLine(told))
			}
			switch answer(answers, fmt.Sprintf("  let it %s %s? [g]rant, [s]kip, ne[v]er: ", o.Access.Verb(), profile.Printable(o.Path))) {
			case 'g':
				if err := addGrant(ctx, broker, c, last.Agent, o.Path, o.Access); err != nil {
					fmt.Fprintln(os.Stderr, "clai-sandbox: "+explainError(err))
				}
			case 'v':
				if never[last.Agent] = append(never[last.Agent], o.Path); len(never[last.Agent]) > maxNever {
					never[last.Agent] = never[last.Agent][1:]
				}
				if err := replaceJSON(filepath.Join(state, neverName), never); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// answer asks until there is one. The end of what is typed is to skip.
func answer(in *bufio.Reader, question string) byte {
	for {
		fmt.Print(question)
		line, err := in.ReadString('\n')
		switch word := strings.TrimSpace(line); {
		case word == "g" || word == "grant":
			return 'g'
		case word == "v" || word == "never":
			return 'v'
		case word == "s" || word == "skip":
			return 's'
		case err != nil:
			fmt.Println()
			return 's'
		}
	}
}
