package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A comparison is of one command, in a workspace that it sees in several ways, one after the other
// in each round.
type comparison struct {
	name   string
	rounds int
	dir    string // where it runs, in the workspace
	argv   []string
	ways   []way
	before func(round int) error // each command; not timed
}

type way struct {
	name    string
	options []string
}

var asItIs, asCopied = way{"rw", nil}, way{"cow", []string{"--workspace-access", "cow"}}

// A copier compares what is seen copy on write with what is not, as whoever calls it, whose caches
// and modules are used.
type copier struct{ binary, dir, work string }

func copied(binary string, rounds int, packages string) error {
	dir, err := os.MkdirTemp("/var/tmp", "clai-sandbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	c := copier{binary, dir, filepath.Join(dir, "work")}
	if out, err := exec.Command("sh", "-ec", `mkdir "$0" "$0"/npm; git archive HEAD | tar x -C "$0"`, c.work).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the source: %w: %s", err, out)
	}
	stamp := func(round int) error {
		return os.WriteFile(filepath.Join(c.work, "profile/stamp.go"), fmt.Appendf(nil, "package profile\n\nconst Stamp = %d\n", round), 0o644)
	}
	all := []comparison{
		{"true", rounds, ".", []string{"true"}, []way{asItIs, asCopied}, nil},
		{"true", rounds, ".", []string{"true"}, []way{{"rw, --caches off", []string{"--caches", "off"}}, {"rw, caches cow", nil}}, nil},
		{"go build ./cmd/clai-sandbox, profile changed", max(rounds/20, 1), ".", []string{"go", "build", "-o", "built", "./cmd/clai-sandbox"}, []way{asItIs, asCopied}, stamp},
	}
	npm := comparison{"npm install --offline " + packages, max(rounds/20, 1), "npm", []string{"npm", "install", "--offline", "--no-audit", "--no-fund"}, []way{asItIs, asCopied}, nil}
	npm.argv = append(npm.argv, strings.Fields(packages)...)
	if out, err := exec.Command("npm", append([]string{"--prefix", filepath.Join(dir, "warm"), "install", "--no-audit", "--no-fund"}, strings.Fields(packages)...)...).CombinedOutput(); err != nil {
		fmt.Printf("npm install is not measured: npm cannot fetch %s: %v\n%.200s\n", packages, err, bytes.TrimSpace(out))
	} else {
		npm.before = func(int) error { return os.WriteFile(filepath.Join(c.work, "npm/package.json"), []byte("{}"), 0o644) }
		all = append(all, npm)
	}
	fmt.Printf("%-50s %-20s %12s %12s %8s\n", "what", "how", "median ms", "minimum", "rounds")
	for _, one := range all {
		if err := c.measure(one); err != nil {
			return err
		}
	}
	return nil
}

func (c copier) command(words ...string) *exec.Cmd {
	cmd := exec.Command(c.binary, words...)
	cmd.Env = append(os.Environ(), "CLAI_SANDBOX_STATE_DIR="+filepath.Join(c.dir, "state"))
	return cmd
}

// measure does the rounds, and throws away what each command made.
func (c copier) measure(one comparison) error {
	times := make([][]time.Duration, len(one.ways))
	round := 0
	for range one.rounds + 1 { // the first one is warm-up
		for i, w := range one.ways {
			if round++; one.before != nil {
				if err := one.before(round); err != nil {
					return err
				}
			}
			words := append([]string{"run", "--workspace", c.work, "--cwd", filepath.Join(c.work, one.dir)}, w.options...)
			cmd := c.command(append(append(words, "--"), one.argv...)...)
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s, %s: %w: %s", one.name, w.name, err, out)
			}
			if round > len(one.ways) {
				times[i] = append(times[i], time.Since(began))
			}
			if err := c.clear(); err != nil {
				return err
			}
		}
	}
	for i, w := range one.ways {
		fmt.Printf("%-50s %-20s %12.2f %12.2f %8d\n", one.name, w.name, ms(median(times[i])), ms(slices.Min(times[i])), len(times[i]))
	}
	return nil
}

// clear removes what a command made, on the host and in the layer.
func (c copier) clear() error {
	for _, name := range []string{"built", "npm/node_modules", "npm/package.json", "npm/package-lock.json"} {
		if err := os.RemoveAll(filepath.Join(c.work, name)); err != nil {
			return err
		}
	}
	cmd := c.command("changes", "discard", c.work)
	if out, err := cmd.CombinedOutput(); err != nil && !bytes.Contains(out, []byte("nothing was changed copy on write")) {
		return fmt.Errorf("discard: %w: %s", err, out)
	}
	return nil
}
