// Command bench compares a start of clai-sandbox with bare bwrap and the very same options, in one
// interleaved run.
//
// It prints, for each command: the median and the minimum of the wall time in milliseconds, the
// peak resident memory of its largest process, and its ratio to bare bwrap. As root it does so a
// second time as an ordinary user. Absolute times of a machine mean little; the ratios are what it
// is for.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A subject is one command to be timed.
type subject struct {
	name    string
	argv    []string
	prepare func() ([]*os.File, error) // what it gets as descriptors 3 and on; may be nil
	times   []time.Duration
	rss     string // peak of the process itself, as the kernel tells it
}

func main() {
	rounds := flag.Int("n", 300, "rounds; each starts every command once")
	binary := flag.String("binary", "bin/clai-sandbox", "the clai-sandbox to measure")
	uid := flag.Int("uid", 65534, "the ordinary user, when root runs this")
	cow := flag.Bool("copied", false, "compare what is seen copy on write with what is not, in place of starts with bare bwrap")
	packages := flag.String("npm", "eslint typescript", "the packages that npm installs then")
	flag.Parse()
	err := error(nil)
	if *cow {
		err = copied(*binary, *rounds, *packages)
	} else {
		err = run(*binary, *rounds, *uid)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(binary string, rounds, uid int) error {
	dir, err := os.MkdirTemp("/var/tmp", "clai-sandbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	users := []int{os.Getuid()}
	if users[0] == 0 {
		users = append(users, uid)
	}
	for _, user := range users {
		u, err := newUser(dir, binary, user)
		if err != nil {
			return err
		}
		if err := u.measure(rounds); err != nil {
			return err
		}
	}
	return nil
}

// A user runs the benchmark from a home and a workspace of its own.
type user struct {
	uid        int
	home, work string
	plain      string // bare bwrap's workspace: there, what stands in for protected paths has to stay
	binary     string
	bare, many []string // bwrap's argv, without and with 200 grants
	grants     []string
}

func newUser(dir, binary string, uid int) (*user, error) {
	home := filepath.Join(dir, fmt.Sprint(uid))
	u := &user{uid: uid, home: home, work: home + "/work", plain: home + "/plain", binary: dir + "/clai-sandbox"}
	if err := errors.Join(os.MkdirAll(u.work, 0o755), os.MkdirAll(u.plain, 0o755)); err != nil {
		return nil, err
	}
	for i := range 200 {
		path := fmt.Sprintf("%s/data/%d", home, i)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
		u.grants = append(u.grants, "--grant", path+":rw")
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("%w; build it first: make build", err)
	}
	os.Remove(u.binary)
	if err := os.WriteFile(u.binary, text, 0o755); err != nil {
		return nil, err
	}
	err = filepath.Walk(home, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	})
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	if u.bare, err = u.dryRun(); err == nil {
		u.many, err = u.dryRun(u.grants...)
	}
	if err == nil {
		err = u.standIns()
	}
	return u, err
}

// standIns adds the mounts over what must not be made to bare bwrap's options. A dry run leaves
// them out, because bwrap would leave their mount points behind.
func (u *user) standIns() error {
	text, err := u.command([]string{u.binary, "explain", "--json"}).Output()
	if err != nil {
		return err
	}
	var explained struct {
		Mounts []struct{ Kind, Path string }
	}
	if err := json.Unmarshal(text, &explained); err != nil {
		return err
	}
	var options []string
	for _, mount := range explained.Mounts {
		if mount.Kind == "absent" {
			path := filepath.Join(u.plain, filepath.Base(mount.Path))
			if err := errors.Join(os.Mkdir(path, 0o700), os.Lchown(path, u.uid, u.uid)); err != nil {
				return err
			}
			options = append(options, "--perms", "0555", "--tmpfs", path)
		}
	}
	for _, words := range []*[]string{&u.bare, &u.many} {
		*words = slices.Insert(*words, slices.Index(*words, "--remount-ro"), options...)
	}
	return nil
}

// dryRun asks clai-sandbox for the bwrap command line that it would use, and takes it apart as a
// shell would: there is no better way to compare with the very same options.
func (u *user) dryRun(options ...string) ([]string, error) {
	argv := append(append([]string{u.binary, "run", "--dry-run"}, options...), "--", "/bin/true")
	cmd := u.command(argv)
	cmd.Dir = u.plain
	line, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv[:3], " "), err)
	}
	line, _, _ = bytes.Cut(line, []byte("\n#")) // the comments
	split := exec.Command("/bin/sh", "-c", "set -- "+strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(string(line), "env -i ")), "<", " '<' ")+`; printf '%s\0' "$@"`)
	words, err := split.Output()
	return strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00"), err
}

func (u *user) command(argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = u.work
	cmd.Env = []string{"HOME=" + u.home, "PATH=" + os.Getenv("PATH"), "USER=bench", "SHELL=/bin/sh"}
	if u.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.uid)}}
	}
	return cmd
}

// bwrap is a subject of bare bwrap. The words behind the command are the redirections of a dry run:
// "3", "<", file.
func (u *user) bwrap(name string, words []string) *subject {
	end := slices.Index(words, "/bin/true") + 1
	s := &subject{name: name, argv: words[:end]}
	var sources []string
	for i := end; i+2 < len(words); i += 3 {
		sources = append(sources, words[i+2])
	}
	s.prepare = func() ([]*os.File, error) {
		var files []*os.File
		for _, source := range sources {
			file, err := os.Open(source)
			if err != nil {
				return files, err
			}
			files = append(files, file)
		}
		return files, nil
	}
	return s
}

func (u *user) measure(rounds int) error {
	run := func(options ...string) []string {
		return append(append([]string{u.binary, "run"}, options...), "--", "/bin/true")
	}
	subjects := []*subject{
		{name: "/bin/true", argv: []string{"/bin/true"}},
		u.bwrap("bwrap, the same options", u.bare),
		{name: "clai-sandbox run", argv: run()},
		u.bwrap("bwrap, the same and --unshare-net", slices.Insert(slices.Clone(u.bare), 1, "--unshare-net")),
		{name: "… --network disabled", argv: run("--network", "disabled")},
		{name: "… --network filtered", argv: run("--network", "filtered")},
	}
	if err := u.interleave(subjects, rounds); err != nil {
		return err
	}
	for _, s := range subjects {
		if err := u.weigh(s); err != nil {
			return err
		}
	}
	fmt.Printf("user %d, %d rounds\n", u.uid, rounds)
	print(subjects[:3], 1)
	print(subjects[3:], 0) // without the host's network, which costs bwrap something too

	many := []*subject{u.bwrap("bwrap, the same options, 200 grants", u.many), {name: "clai-sandbox run, 200 grants", argv: run(u.grants...)}}
	if err := u.interleave(many, max(rounds/10, 5)); err != nil {
		return err
	}
	if err := u.weigh(many[1]); err != nil {
		return err
	}
	print(many, 0)
	return u.together(subjects[1], subjects[2], max(rounds/15, 5))
}

// interleave runs the subjects in turn, so that what else the machine does meets all of them alike.
func (u *user) interleave(subjects []*subject, rounds int) error {
	for round := range rounds + 3 {
		for _, s := range subjects {
			took, err := u.once(s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round >= 3 { // the first are for the caches
				s.times = append(s.times, took)
			}
		}
	}
	return nil
}

func (u *user) once(s *subject) (time.Duration, error) {
	cmd, done, err := u.ready(s, s.argv)
	if err != nil {
		return 0, err
	}
	defer done()
	began := time.Now()
	err = cmd.Run()
	return time.Since(began), err
}

// ready is a subject's command with its descriptors, and what closes them.
func (u *user) ready(s *subject, argv []string) (*exec.Cmd, func(), error) {
	cmd := u.command(argv)
	if s.prepare == nil {
		return cmd, func() {}, nil
	}
	files, err := s.prepare()
	cmd.ExtraFiles, cmd.Env = files, []string{}
	return cmd, func() {
		for _, file := range files {
			file.Close()
		}
	}, err
}

// weigh reads the peak resident memory of a subject while its command sleeps. What wait(2) reports
// would not do: there the peak of a child is never below that of its parent, and this one is larger
// than any of them.
func (u *user) weigh(s *subject) error {
	argv := slices.Clone(s.argv)
	argv[len(argv)-1] = "/bin/sleep"
	cmd, done, err := u.ready(s, append(argv, "0.2"))
	if err != nil {
		return err
	}
	defer done()
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond) // in the middle of the sleep
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			s.rss = strings.TrimSpace(value)
		}
	}
	return errors.Join(err, cmd.Wait())
}

// together runs eight at once, until each of two subjects has done so often enough.
func (u *user) together(bare, ours *subject, rounds int) error {
	batch := func(s *subject) (time.Duration, error) {
		failures := make(chan error, 8)
		began := time.Now()
		for range 8 {
			go func() {
				_, err := u.once(s)
				failures <- err
			}()
		}
		var err error
		for range 8 {
			err = errors.Join(err, <-failures)
		}
		return time.Since(began), err
	}
	var times [2][]time.Duration
	for range rounds {
		for i, s := range []*subject{bare, ours} {
			took, err := batch(s)
			if err != nil {
				return err
			}
			times[i] = append(times[i], took)
		}
	}
	a, b := median(times[0]), median(times[1])
	fmt.Printf("  8 at once, all of them: bwrap %.2f ms, clai-sandbox %.2f ms, ratio %.2f\n\n", ms(a), ms(b), float64(b)/float64(a))
	return nil
}

// print is a table; base is the subject that the ratios are to.
func print(subjects []*subject, base int) {
	fmt.Printf("  %-38s %10s %10s %10s %14s %12s\n", "", "median ms", "minimum", "peak RSS", "ratio (median)", "(minimum)")
	reference := subjects[base]
	for _, s := range subjects {
		fmt.Printf("  %-38s %10.2f %10.2f %10s %14.2f %12.2f\n", s.name, ms(median(s.times)), ms(slices.Min(s.times)), s.rss,
			float64(median(s.times))/float64(median(reference.times)), float64(slices.Min(s.times))/float64(slices.Min(reference.times)))
	}
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
