package shell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// An Owner is the process whose lines share a sandbox: an agent's.
type Owner struct {
	PID       int
	Began     uint64 // in ticks since the machine began: with PID, no other process
	Directory string // its working directory
	Program   string // the name of its program
}

// Name is the name of the file that says which sandbox is the owner's.
func (o Owner) Name() string { return fmt.Sprintf("%s%d-%d", ownerPrefix, o.PID, o.Began) }

const ownerPrefix = "owner-"

// named is the owner of such a file, without more than its process.
func named(name string) (o Owner, is bool) {
	rest, is := strings.CutPrefix(name, ownerPrefix)
	if !is {
		return o, false
	}
	_, err := fmt.Sscanf(rest, "%d-%d", &o.PID, &o.Began)
	return o, err == nil && o.Name() == name
}

// Runs reports whether the owner has not ended.
func (o Owner) Runs() bool {
	_, began, err := status(o.PID)
	return err == nil && began == o.Began
}

// shells are programs that agents have between themselves and a line.
var shells = append(slices.Clone(Names), "busybox")

// Names are the names of shells.
var Names = []string{"sh", "bash", "dash", "rbash", "zsh", "rzsh", "ash", "ksh", "ksh93", "mksh", "fish", "tcsh", "csh"}

// Is reports whether a name is a shell's: of a program, or the one under which it is started. A
// shell that begins a session has "-" before it.
func Is(name string) bool {
	return slices.Contains(Names, strings.TrimPrefix(filepath.Base(name), "-"))
}

// maxGenerations bounds the parents that are looked at.
const maxGenerations = 64

// OwnerOf is whose line a process runs: its closest ancestor that is neither a shell that was given
// a line (-c) nor this program. A person's own shell, and one that runs a file, are owners.
func OwnerOf(pid int) (Owner, error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return Owner{}, err
	}
	for range maxGenerations {
		parent, _, err := status(pid)
		if err != nil {
			return Owner{}, err
		}
		if pid = parent; pid <= 1 {
			break
		}
		if between(pid, self) {
			continue
		}
		_, began, err := status(pid)
		if err != nil {
			return Owner{}, err
		}
		o := Owner{PID: pid, Began: began}
		if o.Directory, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil {
			return Owner{}, fmt.Errorf("process %d, whose lines these are, is not to be looked at: %w", pid, err)
		}
		if words := wordsOf(pid); len(words) > 0 {
			o.Program = filepath.Base(words[0])
		}
		if !o.Runs() {
			return Owner{}, errors.New("who asked for it has ended")
		}
		return o, nil
	}
	return Owner{}, errors.New("no process is there whose line it would be")
}

// Environment is what the owner's program was started with, whatever it has read since: programs of
// agents take variables from a file of the project (.env), and pass them on. A program that starts
// itself anew may have done so before: what counts is the environment of the first of its
// processes. nil: the owner is a shell, in which a person has set the variables that this process
// has.
func (o Owner) Environment() ([]string, error) {
	exe := func(pid int) string { return fmt.Sprintf("/proc/%d/exe", pid) }
	unknown := func(err error) ([]string, error) {
		return nil, fmt.Errorf("the environment in which process %d was started: %w", o.PID, err)
	}
	if path, err := os.Readlink(exe(o.PID)); err != nil {
		return unknown(err)
	} else if slices.Contains(shells, programName(path)) {
		return nil, nil
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return unknown(err)
	}
	program, err := os.Stat(exe(o.PID))
	if err != nil {
		return unknown(err)
	}
	first, began := o.PID, o.Began
	for at, n := o.PID, 0; n < maxGenerations; n++ {
		parent, _, err := status(at)
		if err != nil {
			return unknown(err)
		}
		if at = parent; at <= 1 {
			break
		}
		if other, err := os.Stat(exe(at)); err == nil && os.SameFile(program, other) {
			first = at
			if _, began, err = status(at); err != nil {
				return unknown(err)
			}
		} else if !between(at, self) {
			break
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", first))
	if err != nil {
		return unknown(err)
	}
	if !o.Runs() || !(Owner{PID: first, Began: began}).Runs() {
		return unknown(errors.New("it has ended"))
	}
	return append([]string{}, strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 })...), nil
}

// programName is the name of a program by its link in /proc.
func programName(exe string) string { return strings.TrimSuffix(filepath.Base(exe), " (deleted)") }

// between reports whether a process only passes a line on.
func between(pid int, self os.FileInfo) bool {
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	if program, err := os.Stat(exe); err == nil && os.SameFile(program, self) {
		return true
	}
	path, err := os.Readlink(exe)
	if err != nil || !slices.Contains(shells, programName(path)) {
		return false
	}
	words := wordsOf(pid)
	for i, word := range words {
		switch {
		case i == 0:
		case len(word) < 2 || word[0] != '-' && word[0] != '+':
			return false
		case word[0] == '-' && word[1] != '-' && strings.Contains(word, "c"):
			return true
		}
	}
	return false
}

func wordsOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// status is a process's parent, and when it began (proc_pid_stat(5), fields 4 and 22).
func status(pid int) (parent int, began uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // its name may hold anything
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("/proc/%d/stat is not what proc(5) says", pid)
	}
	if parent, err = strconv.Atoi(fields[1]); err == nil {
		began, err = strconv.ParseUint(fields[19], 10, 64)
	}
	return parent, began, err
}
