package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/preset"
	"github.com/clairun/clai-sandbox/profile/whole"
	"github.com/clairun/clai-sandbox/sandbox"
)

func installAgentCommand() *cli.Command {
	return &cli.Command{
		Name:      "install-agent",
		Usage:     "have an agent that is started as ever run its commands in a sandbox",
		ArgsUsage: "NAME",
		Description: "Writes one setting into the agent's own file of settings, by which clai-shell runs its commands, and shows before what it changes.\n" +
			"The agent itself, with its file tools, stays outside: clai-sandbox agent NAME has all of it inside.\n" +
			"A project's own settings can switch that off again, unless it is written with --system, as root.",
		Flags: []cli.Flag{
			&cli.BoolFlag{DisableDefaultText: true, Name: "system", Usage: "write it into the machine's settings, for all of its users, which no project's settings switch off"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "undo", Usage: "take back what was written, and nothing else"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "yes", Usage: "do not ask"},
		},
		OnUsageError: usageError,
		Action:       installAgentAction,
	}
}

func installAgentAction(c *cli.Context) error {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	all, err := preset.Load(caller.Directories().Config)
	if err != nil {
		return err
	}
	var names []string
	for _, p := range all {
		if p.Shell != nil {
			names = append(names, p.Name)
		}
	}
	if c.NArg() != 1 {
		return &usage{"which agent?", "it is one of " + strings.Join(names, ", ")}
	}
	i := slices.IndexFunc(all, func(p preset.Preset) bool { return p.Name == c.Args().First() })
	if i < 0 || all[i].Shell == nil {
		return &usage{"nothing is known of how " + profile.Printable(c.Args().First()) + " lets its shell be named", "it is one of " + strings.Join(names, ", ") +
			"; any agent can run in a sandbox as a whole: clai-sandbox agent"}
	}
	p, where := all[i], ""
	if c.Bool("system") {
		if err := checkSystem(p); err != nil {
			return err
		}
		p.Shell.File, where = p.Shell.System, "-system"
	}
	record := filepath.Join(caller.Directories().State, "installed", p.Name+where+".json")
	if c.Bool("undo") {
		return uninstall(c, p.Name, record)
	}
	return install(c, caller, p, record)
}

func install(c *cli.Context, caller profile.Caller, p preset.Preset, record string) error {
	program, err := shellPath()
	if err != nil {
		return err
	}
	note := strings.ReplaceAll(p.Shell.Note, "{shell}", sandbox.Quote(program))
	if p.Shell.File == "" {
		return &usage{p.Name + " has no file of settings in which its shell is named", note}
	}
	file, err := profile.ExpandPath(p.Shell.File, caller.Home)
	if err == nil {
		file, err = settled(file)
	}
	if err != nil {
		return err
	}
	text, err := readSettings(file)
	if err != nil {
		return err
	}
	var unknown [8]byte
	rand.Read(unknown[:])
	in, err := p.Shell.Install(file, text, program, sandbox.Quote(program), hex.EncodeToString(unknown[:]))
	if errors.Is(err, preset.ErrInstalled) {
		fmt.Printf("%s has it already: %s\n", p.Name, profile.Printable(file))
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(record); err == nil {
		return &usage{"what was written for " + p.Name + " before was changed since", "clai-sandbox install-agent " + p.Name + system(c) + " --undo first"}
	}
	if yes, err := agrees(c, file, string(text), in.After); !yes {
		return err
	}
	mode := fs.FileMode(0o600)
	if c.Bool("system") {
		mode = 0o644 // everybody's agent reads it
	}
	kept, err := json.Marshal(in)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(record), 0o700)
	}
	if err == nil {
		err = whole.Write(record, ".new", kept)
	}
	if err == nil {
		if err = writeSettings(file, text, []byte(in.After), mode); err != nil {
			os.Remove(record)
		}
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s runs its commands in a sandbox from its next start; clai-sandbox install-agent %[1]s%s --undo takes it back\n", p.Name, system(c))
	if note != "" {
		fmt.Println("note: " + note)
	}
	if p.Shell.System != "" && !c.Bool("system") {
		fmt.Printf("note: a project's own settings can switch it off without a word: in one that you did not write, start it by clai-sandbox agent %s; or have root write it for the machine, which counts more: clai-sandbox install-agent %[1]s --system\n", p.Name)
	}
	return nil
}

func uninstall(c *cli.Context, name, record string) error {
	kept, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return &usage{"nothing was written for " + name, "clai-sandbox install-agent " + name + system(c) + " writes it"}
	}
	var in preset.Installed
	if err == nil {
		err = json.Unmarshal(kept, &in)
	}
	if err != nil {
		return err
	}
	text, err := readSettings(in.File)
	if err != nil {
		return err
	}
	before, err := in.Undo(text)
	if err != nil {
		return &usage{profile.Printable(in.File) + ": " + err.Error(), "take " + strings.Join(in.Key, ".") + " out by hand; then: rm " + quoteWord(record)}
	}
	if yes, err := agrees(c, in.File, string(text), string(before)); !yes {
		return err
	}
	if before == nil {
		err = os.Remove(in.File)
	} else {
		err = writeSettings(in.File, text, before, 0o600)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s runs its commands as before, from its next start\n", name)
	return os.Remove(record)
}

// system is the option, if it was given.
func system(c *cli.Context) string {
	if c.Bool("system") {
		return " --system"
	}
	return ""
}

// checkSystem refuses what cannot be in the machine's settings: everybody's agent would execute
// what these name.
func checkSystem(p preset.Preset) error {
	if p.Shell.System == "" {
		return &usage{"nothing is known of settings of " + p.Name + " for the whole machine", "clai-sandbox install-agent " + p.Name + " writes yours"}
	}
	if os.Geteuid() != 0 {
		return &usage{"--system writes " + p.Shell.System + ", which only root may", "sudo clai-sandbox install-agent " + p.Name + " --system"}
	}
	program, err := shellPath()
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	for _, path := range []string{program, real} {
		for at := path; ; at = filepath.Dir(at) {
			info, err := os.Lstat(at)
			if err != nil {
				return err
			}
			stat, is := info.Sys().(*syscall.Stat_t)
			if mode := info.Mode(); !is || stat.Uid != 0 || mode.Type() != fs.ModeSymlink && mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
				return &usage{profile.Printable(at) + " is not root's alone, and everybody's " + p.Name + " would execute " + profile.Printable(program), "install clai-sandbox for the machine: sudo make install"}
			}
			if at == "/" {
				break
			}
		}
	}
	return nil
}

// agrees shows what would change in a file, and asks.
func agrees(c *cli.Context, file, before, after string) (bool, error) {
	fmt.Printf("%s:\n", profile.Printable(file))
	for _, line := range changedLines(before, after) {
		fmt.Println(oneLine(line))
	}
	if c.Bool("yes") {
		return true, nil
	}
	if !isTerminal(os.Stdin) {
		return false, &usage{"nobody is here to ask", "--yes writes it all the same"}
	}
	fmt.Print("write it? [y/N] ")
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y"), nil
}

// changedLines are the lines in which two texts differ, with at most two around them.
func changedLines(before, after string) (list []string) {
	lines := func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	old, now := lines(before), lines(after)
	first := 0
	for first < min(len(old), len(now)) && old[first] == now[first] {
		first++
	}
	last := 0
	for last < min(len(old), len(now))-first && old[len(old)-1-last] == now[len(now)-1-last] {
		last++
	}
	add := func(sign string, part []string) {
		for _, line := range part {
			list = append(list, sign+line)
		}
	}
	add("  ", old[max(0, first-2):first])
	add("- ", old[first:len(old)-last])
	add("+ ", now[first:len(now)-last])
	add("  ", old[len(old)-last:min(len(old), len(old)-last+2)])
	return list
}

// settled is a file's own path, where links of the person's lead to it. It need not be there yet.
func settled(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return "", &usage{profile.Printable(path) + " is a symbolic link that leads nowhere", "remove it, or make what it leads to"}
		}
		return path, nil
	}
	return real, err
}

// maxSettings bounds a file of settings.
const maxSettings = 4 << 20

// readSettings reads a file of an agent's; nil: there is none.
func readSettings(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxSettings) {
		err = fmt.Errorf("%s is not a file of settings", profile.Printable(file))
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSettings))
	if text == nil {
		text = []byte{}
	}
	return text, err
}

// writeSettings writes a file of an agent's as a whole, if it still holds what was shown. Its mode
// stays; a new file has the one that is given.
func writeSettings(file string, shown, text []byte, mode fs.FileMode) error {
	now, err := readSettings(file)
	if err != nil {
		return err
	}
	if string(now) != string(shown) || (now == nil) != (shown == nil) {
		return &usage{profile.Printable(file) + " was changed meanwhile", "try again"}
	}
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // of the machine's settings, everybody's
		return err
	}
	if err := whole.Write(file, "."+filepath.Base(file)+".", text); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}
