package diagnosis

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// A Failure is a command that was run in a sandbox, and has ended.
type Failure struct {
	Plan     *sandbox.Plan
	Host     sandbox.Tree // the host's files; nil: the real ones
	Command  []string     // as it was run
	ExitCode int
	// Stderr and Stdout are the last of what it wrote. Where both went to one place, it is Stderr.
	Stderr, Stdout []byte
	// Unread: what it wrote is not known, as at a terminal. What the command line itself names has
	// to do.
	Unread    bool
	Directory string           // where it began; empty: the plan's
	Notices   []sandbox.Notice // of the Result
	Own       []string         // directories of this program, of which nothing is told (Profile.OwnDirectories)
}

// A Kind is what was lacking.
type Kind string

const (
	Path    Kind = "path"
	Domain  Kind = "domain"
	Machine Kind = "machine"
)

// A Why is why the sandbox does not have it.
type Why string

const (
	NotGranted      Why = "not_granted"      // the host has it, and nothing shows it
	Hidden          Why = "hidden"           // a credential store: only a grant of its own shows it, and whether there is one is not told
	ReadOnly        Why = "read_only"        // it is shown for reading only
	Copied          Why = "copy_on_write"    // it can be written there, but not in that way
	DomainRefused   Why = "domain_refused"   // no rule of the filtered network allows it, or one denies it
	NotByProxy      Why = "not_by_proxy"     // the filtered network lets out who asks its proxy, and the program did not
	NetworkDisabled Why = "network_disabled" // the sandbox has no network at all
	OutsideOnly     Why = "outside_only"     // something of the machine that no sandbox has, such as another user's rights
)

// A Missing is something that a command needed and its sandbox did not give.
type Missing struct {
	Kind   Kind           `json:"kind" jsonschema:"what was lacking: path, domain or machine"`
	Path   string         `json:"path,omitempty" jsonschema:"of a path: the absolute path to ask for"`
	Domain string         `json:"domain,omitempty" jsonschema:"of a domain: the host, if it is known, with its port where that is known"`
	Access profile.Access `json:"access,omitempty" jsonschema:"of a path: the access that was needed"`
	Why    Why            `json:"why" jsonschema:"not_granted, hidden, read_only, copy_on_write, domain_refused, not_by_proxy, network_disabled, or outside_only of what no sandbox has of the machine"`
	Hint   string         `json:"hint" jsonschema:"what to do about it"`
	about  thing
	wanted string // a directory to make in a place of ours, and to grant
	// Of the machine, what a person is told.
	instead string
	// Of a domain: the file that closes the network, whatever the command line says.
	closedBy string
}

// A thing is a path that is read-only for a reason of its own.
type thing uint8

const (
	aPath        thing = iota
	aRepository        // of which the workspace is a part
	aPlaceOfOurs       // it holds files of this program, as the home does
	aProtectedName
	hiddenForGood // by the administrator's file or the project's
)

const (
	maxTail       = 64 << 10 // bytes of each stream that are read
	maxLines      = 400
	maxLine       = 4096
	maxMissing    = 8
	maxCandidates = 200 // paths that are looked up
)

// Of says what the command lacked. It is nothing if the command did not fail, or failed for reasons
// of its own.
func Of(f Failure) []Missing {
	if f.Plan == nil || f.ExitCode == 0 || endedBySignal(f.ExitCode) {
		return nil
	}
	d := newDiagnosis(f)
	if d.command.saysNo(f.ExitCode) {
		return nil
	}
	if f.Unread {
		if list := d.named(); list != nil {
			return list
		}
		return d.programOutside()
	}
	stderr, stdout := tail(f.Stderr), tail(f.Stdout)
	list := d.read(stderr)
	switch {
	case list != nil && d.endsOtherwise(stdout):
		return nil
	case list == nil && !slices.ContainsFunc(stderr, complains) && !d.command.printing:
		list = d.read(stdout)
	}
	return list
}

// endsOtherwise reports whether standard output ends in a complaint about something else, as that
// of a test runner does. Which of the two streams was written to last is not known.
func (d *diagnosis) endsOtherwise(lines []string) bool {
	for i := len(lines) - 1; i >= 0; i-- {
		if line := lines[i]; !neutral(line) {
			return complains(line) && !wraps(line) && d.complaint(lines, i) == nil
		}
	}
	return false
}

// endedBySignal also stands for the launcher's own statuses.
func endedBySignal(status int) bool { return status > 128 && status <= 128+64 && status != 129 }

// A diagnosis is the reading of one failure.
type diagnosis struct {
	Failure
	home       string
	command    commandLine
	candidates int
}

func newDiagnosis(f Failure) *diagnosis {
	d := &diagnosis{Failure: f}
	if d.Host == nil {
		d.Host = sandbox.Host{}
	}
	if d.Directory == "" {
		d.Directory = f.Plan.WorkingDirectory
	}
	for _, v := range f.Plan.Environment {
		if v.Name == "HOME" && path.IsAbs(v.Value) {
			d.home = path.Clean(v.Value)
		}
	}
	d.command = parseCommand(f.Command)
	if dir := d.command.directory; dir != "" {
		d.Directory = d.absolute(dir)
	}
	return d
}

// read goes through the lines from the last to the first. The last complaint must be about
// something that was lacking; those right before it may be as well.
func (d *diagnosis) read(lines []string) []Missing {
	var list []Missing
	for i := len(lines) - 1; i >= 0 && len(list) < maxMissing; i-- {
		line := lines[i]
		if neutral(line) {
			continue
		}
		found := d.complaint(lines, i)
		switch {
		case len(found) > 0:
			for _, missing := range found {
				list = join(list, missing)
			}
		case list != nil: // what came before it did not end the command
			return list
		case !complains(line):
		case wraps(line), strings.HasPrefix(line, "  ") && saidIn(line) == nothingSaid: // the source below a message
		default:
			return list
		}
	}
	return list
}

// join adds what is not there yet; of one path, the most that was needed.
func join(list []Missing, missing Missing) []Missing {
	for i, l := range list {
		if l.Kind == missing.Kind && l.Path == missing.Path && l.Domain == missing.Domain {
			if l.Access < missing.Access {
				list[i] = missing
			}
			return list
		}
	}
	return append(list, missing)
}

// complaint is what one line says was lacking.
func (d *diagnosis) complaint(lines []string, i int) (list []Missing) {
	line := lines[i]
	if list := d.copied(line); list != nil {
		return list
	}
	if found := d.busy(lines, i); found != nil {
		return found
	}
	if found := d.domain(line); found != nil {
		return found
	}
	if found := d.outside(line); found != nil {
		return found
	}
	if found := d.device(line); found != nil {
		return found
	}
	if name := missingCommand(line); name != "" {
		return d.program(name)
	}
	said := saidIn(line)
	if strings.HasPrefix(line, "error: failed to push some refs to '") && slices.ContainsFunc(lines[max(i-6, 0):i], func(line string) bool {
		return strings.HasSuffix(line, "unable to create temporary object directory") // of a repository that git names only afterwards
	}) {
		said = readOnlyFileSystem
	}
	if d.command.disowns(line) {
		return nil
	}
	if said != nothingSaid {
		list = d.looked(lines, i, said)
	}
	if list == nil && saysNoPath.MatchString(line) {
		list = d.namedForWriting()
	}
	return list
}

// looked holds the paths that a line names against the plan.
func (d *diagnosis) looked(lines []string, i int, said saying) (list []Missing) {
	line := lines[i]
	for _, text := range d.paths(lines, i) {
		if strings.HasPrefix(text, "../") && (strings.HasPrefix(line, "error: failed to push ") && strings.Contains(d.command.still, " push") ||
			strings.Contains(line, "does not appear to be a git repository") && !d.command.moves) {
			text = path.Join(path.Dir(path.Dir(d.gitsLock())), text) // a remote's address: git goes to the top of the repository first
		}
		if missing, ok := d.look(text, said, line); ok {
			list = join(list, missing)
		}
	}
	// A directory and what is in it: go names both, and needs the directory.
	return slices.DeleteFunc(list, func(l Missing) bool {
		return slices.ContainsFunc(list, func(above Missing) bool {
			return above.Path != l.Path && profile.Within(l.Path, above.Path) && above.Access >= l.Access
		})
	})
}

// absolute is a path as the command meant it.
func (d *diagnosis) absolute(text string) string {
	switch {
	case path.IsAbs(text):
		return path.Clean(text)
	case (text == "~" || strings.HasPrefix(text, "~/")) && d.home != "":
		return path.Join(d.home, text[1:])
	}
	return path.Join(d.Directory, text)
}

// look holds one named path against the plan.
func (d *diagnosis) look(text string, said saying, line string) (Missing, bool) {
	if d.candidates++; d.candidates > maxCandidates || text == "" || len(text) > maxLine || strings.ContainsRune(text, 0) {
		return Missing{}, false
	}
	if !path.IsAbs(text) && strings.Contains("/"+text+"/", "/../") && !d.command.names(text) {
		return Missing{}, false // from a directory that is not known
	}
	asked := d.absolute(text)
	access := profile.ReadOnly
	if said == readOnlyFileSystem || writes(line) {
		access = profile.ReadWrite
	}
	status, wanted := d.Plan.Look(d.Host, asked), asked
	if access == profile.ReadWrite && !status.Visible && !status.OnHost {
		if said == noSuchFile && makesAbove(line) {
			said = readOnlyFileSystem
		}
		// It was to be made: what lacks is the directory; and where all above it was to be made as
		// well, the first that there is.
		for asked != "/" && !status.Visible && !status.OnHost && d.store(asked, status) == "" && (asked == wanted || said == readOnlyFileSystem) {
			asked = path.Dir(asked)
			status = d.Plan.Look(d.Host, asked)
		}
	}
	missing, ok := d.judge(asked, status, said, access)
	if ok && missing.about == aPlaceOfOurs {
		missing.wanted = d.directoryToMake(missing.Path, wanted, line)
		missing = missing.hinted()
	}
	return missing, ok
}

// directoryToMake is the directory on the way to what was to be made that a person can make and
// grant, where what is above it holds files of this program; empty if it was no directory.
func (d *diagnosis) directoryToMake(above, wanted, line string) string {
	if !profile.Within(wanted, above) || wanted == above {
		return ""
	}
	names := strings.Split(strings.TrimPrefix(strings.TrimPrefix(wanted, above), "/"), "/")
	if small := strings.ToLower(line); !strings.Contains(small, "directory") && !strings.Contains(small, "mkdir") && !strings.Contains(small, "work tree") {
		names = names[:len(names)-1]
	}
	for _, name := range names {
		if above = path.Join(above, name); !d.holdsOwn(above) {
			return above
		}
	}
	return ""
}

// judge says whether what a command met at a path is the sandbox's doing.
func (d *diagnosis) judge(asked string, status sandbox.PathStatus, said saying, access profile.Access) (Missing, bool) {
	target := asked
	if status.Resolved != "" && status.Resolved != asked {
		target = status.Resolved // a question about a link would be one about where it leads
	}
	if _, never := profile.NeverGrantable(target); never || d.own(target) || d.own(asked) {
		return Missing{}, false
	}
	missing := Missing{Kind: Path, Path: target, Access: access}
	if store := d.store(target, status); store != "" {
		// The same answer whether or not there is anything.
		missing.Path, missing.Why = store, Hidden
		if slices.Contains(d.Plan.ForGood, store) {
			missing.about = hiddenForGood
		}
		return missing.hinted(), said != readOnlyFileSystem || access == profile.ReadWrite
	}
	if root := d.repository(target); root != "" && access == profile.ReadWrite {
		missing.Path, missing.about = root, aRepository
	} else if d.home != "" && profile.Within(d.home, target) || d.holdsOwn(target) {
		missing.about = aPlaceOfOurs
	}
	step := status.Rule
	switch {
	case step != nil && (step.Kind == sandbox.Mask || step.Kind == sandbox.Empty || step.Kind == sandbox.Copy || step.Kind == sandbox.Proc ||
		step.Kind == sandbox.Dev || step.Kind == sandbox.Socket):
		return Missing{}, false // not a grant's matter
	case !status.Visible:
		if !status.OnHost || said == readOnlyFileSystem {
			return Missing{}, false
		}
		if step != nil && step.Kind == sandbox.Bind {
			return Missing{}, false // it has come since
		}
		if step != nil && step.Kind == sandbox.Private && step.Purpose != sandbox.OwnHome && !d.command.names(asked) {
			return Missing{}, false // the command's own /tmp, where the host has something of the same name
		}
		missing.Why = NotGranted
	case access == profile.ReadWrite && status.Access != profile.ReadWrite && said == readOnlyFileSystem:
		if step == nil && !status.OnHost || d.readOnlyAnyway(target) {
			return Missing{}, false
		}
		missing.Why = ReadOnly
		if step != nil && step.Purpose == sandbox.Protects {
			missing.Hint, missing.about = sandbox.Quote(missing.Path)+" is "+status.Why, aProtectedName
			if strings.Contains(missing.Path+"/", "/.husky/") { // npm install makes those hooks anew each time
				missing.Hint += "; to install without them: clai-sandbox run --env HUSKY=0 …"
			}
			return missing, true
		}
	default:
		return Missing{}, false
	}
	return missing.hinted(), true
}

// readOnlyAnyway reports whether the caller could not write there without a sandbox either.
func (d *diagnosis) readOnlyAnyway(target string) bool {
	_, real := d.Host.(sandbox.Host)
	return real && unix.Access(target, unix.W_OK) != nil
}

// holdsOwn reports whether files of this program are in a directory, so that it cannot be granted
// for writing.
func (d *diagnosis) holdsOwn(target string) bool {
	return slices.ContainsFunc(d.Own, func(dir string) bool { return profile.Within(dir, target) })
}

func (d *diagnosis) own(target string) bool {
	return slices.ContainsFunc(d.Own, func(dir string) bool { return profile.Within(target, dir) })
}

// store is the credential store that a path lies in, if this sandbox does not show it.
func (d *diagnosis) store(target string, status sandbox.PathStatus) string {
	if step := status.Rule; step != nil && step.Purpose == sandbox.Hides {
		return step.Path
	}
	if status.Visible {
		return ""
	}
	for _, hidden := range d.Plan.Hidden {
		if profile.Within(target, hidden) {
			return hidden
		}
	}
	if d.home == "" {
		return ""
	}
	for _, name := range profile.CredentialStores() {
		if store := path.Join(d.home, name); profile.Within(target, store) {
			if rule := status.Rule; rule != nil && rule.Kind == sandbox.Bind && profile.Within(rule.Path, store) {
				return "" // it is granted, and this is not in it
			}
			return store
		}
	}
	return ""
}

func (l Missing) hinted() Missing {
	name := sandbox.Quote(l.Path)
	ask := "ask for it with fs_request_grant (" + name + ", " + l.Access.String() + ")"
	switch {
	case l.Why == ReadOnly && l.about == aPlaceOfOurs:
		l.Hint = name + " is shown for reading only, and nobody grants all of it for writing; write in the workspace, or ask for a directory in it that is there with fs_request_grant (DIR, read_write)"
		if l.wanted != "" {
			l.Hint = name + " is shown for reading only, and nobody grants all of it for writing; write in the workspace, or have the person make " + sandbox.Quote(l.wanted) +
				" and ask for that with fs_request_grant (" + sandbox.Quote(l.wanted) + ", read_write)"
		}
	case l.Why == NotGranted:
		l.Hint = "nothing grants " + name + " to this sandbox; " + ask
	case l.Why == ReadOnly:
		l.Hint = name + " is shown for reading only; " + ask
	case l.about == hiddenForGood:
		l.Hint = name + " is hidden for good, by the administrator's file or the project's, and nobody can grant it"
	case l.Why == Hidden:
		l.Hint = name + " is a place for credentials, which this sandbox does not show, whether or not there are any; only if the task needs them, " + ask
	}
	return l
}

// program is about a command that was not found: a directory of PATH may be one that nothing shows.
func (d *diagnosis) program(name string) []Missing {
	if strings.Contains(name, "/") {
		if missing, ok := d.look(name, noSuchFile, ""); ok {
			return []Missing{missing}
		}
		return nil
	}
	for _, v := range d.Plan.Environment {
		if v.Name != "PATH" {
			continue
		}
		for _, dir := range strings.Split(v.Value, ":") {
			if !path.IsAbs(dir) {
				continue
			}
			file := path.Join(dir, name)
			if status := d.Plan.Look(d.Host, file); !status.Visible && status.OnHost {
				if missing, ok := d.judge(file, status, noSuchFile, profile.ReadOnly); ok {
					return []Missing{missing}
				}
			}
		}
	}
	return nil
}

// tail is the last of an output, in lines that can be read.
func tail(text []byte) []string {
	if len(text) > maxTail {
		text = text[len(text)-maxTail:]
	}
	lines := strings.FieldsFunc(plain(text), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) > maxLines {
		lines = lines[len(lines)-maxLines:]
	}
	for i, line := range lines {
		if len(line) > maxLine {
			lines[i] = line[len(line)-maxLine:]
		}
	}
	return lines
}

// plain leaves out what colours a terminal (ECMA-48's CSI sequences).
func plain(text []byte) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != 0x1b {
			b.WriteByte(text[i])
			continue
		}
		if i++; i < len(text) && text[i] == '[' {
			for i++; i < len(text) && (text[i] < 0x40 || text[i] > 0x7e); i++ {
			}
		}
	}
	return b.String()
}
