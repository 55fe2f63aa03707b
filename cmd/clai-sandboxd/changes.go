package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes/screen"
)

// statusLeft is the exit status where a change was left as it was.
const statusLeft = 1

// changesAction is what a command below changes does.
func changesAction(name string) cli.ActionFunc {
	do := map[string]func(context.Context, *cli.Context) error{
		"list": listLayers, "show": showChanges, "review": reviewChanges, "diff": diffChanges, "apply": applyChanges, "discard": discardChanges}[name]
	return func(c *cli.Context) error {
		if do == nil {
			if c.Args().Present() {
				return &misuse{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox changes --help lists the commands"}
			}
			return cli.ShowSubcommandHelp(c)
		}
		ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if name == "show" || name == "diff" { // whatever a command has made to be looked at
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()
		}
		return do(ctx, c)
	}
}

// A layerLine is one layer of list --json. docs/changes.schema.json is made from these types.
type layerLine struct {
	Agent     string        `json:"agent"`
	Name      string        `json:"name" jsonschema:"what LAYER stands for on a command line"`
	Path      string        `json:"path" jsonschema:"the directory that commands see copy on write"`
	Since     string        `json:"since" jsonschema:"when the layer was last empty"`
	Cache     bool          `json:"cache" jsonschema:"whether it is of a tool's cache"`
	Empty     bool          `json:"empty"`
	InUseBy   string        `json:"inUseBy,omitempty" jsonschema:"which process has it"`
	Directory string        `json:"directory" jsonschema:"where the layer is"`
	Proposal  *proposalLine `json:"proposal,omitempty" jsonschema:"what the agent wants looked at, as long as some of it waits"`
}

// A proposalLine is what an agent wants looked at.
type proposalLine struct {
	Message string   `json:"message" jsonschema:"the agent's words, escaped"`
	At      string   `json:"at"`
	Waiting []string `json:"waiting" jsonschema:"the paths about which nobody has decided"`
}

// proposalOf is the one of a layer, or nil.
func proposalOf(l changes.Layer) *proposalLine {
	p, err := l.Proposal()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+text.Line(err.Error()))
	}
	if p == nil {
		return nil
	}
	line := &proposalLine{text.Line(p.Message), time.UnixMilli(p.At).Format(time.RFC3339), []string{}}
	for _, o := range p.Paths {
		if o.State == changes.Waiting {
			line.Waiting = append(line.Waiting, text.Value(string(o.Path)))
		}
	}
	return line
}

// String is for a person: whose words these are must be plain.
func (p *proposalLine) String() string {
	words := fmt.Sprintf("the agent proposes %d of these", len(p.Waiting))
	if len(p.Waiting) == 1 {
		words = "the agent proposes " + p.Waiting[0]
	}
	if p.Message != "" {
		words += ", and says: " + p.Message
	}
	return words
}

func layers() ([]changes.Layer, profile.Caller, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return nil, caller, err
	}
	list, err := changes.List(caller.Directories().State)
	return list, caller, err
}

func listLayers(_ context.Context, c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{fmt.Sprintf("list takes no argument %q", c.Args().First()), "clai-sandbox changes show LAYER shows one"}
	}
	all, _, err := layers()
	if err != nil {
		return err
	}
	lines := []layerLine{}
	for _, l := range all {
		if c.Bool("all") || !l.Empty && !l.Cache {
			lines = append(lines, layerLine{l.Agent, l.Name, l.Path, time.Unix(0, l.Since).Format(time.RFC3339), l.Cache, l.Empty, l.Holder, l.Dir, proposalOf(l)})
		}
	}
	if c.Bool("json") {
		return printJSON(lines)
	}
	if len(lines) == 0 {
		fmt.Println("nothing was changed copy on write")
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AGENT\tLAYER\tDIRECTORY\tSINCE\t")
	for _, l := range lines {
		note := ""
		for _, n := range []struct {
			is   bool
			word string
		}{{l.Cache, "a cache"}, {l.Empty, "empty"}, {l.InUseBy != "", "in use by " + l.InUseBy}} {
			if n.is {
				note += " " + n.word
			}
		}
		if l.Proposal != nil {
			note += fmt.Sprintf(" the agent proposes %d", len(l.Proposal.Waiting))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", text.Value(l.Agent), text.Value(l.Name), text.Value(l.Path), l.Since, note)
	}
	return table.Flush()
}

// layerFrom is the layer that the first word names, and the paths that the others are.
func layerFrom(c *cli.Context) (changes.Layer, []string, error) {
	all, caller, err := layers()
	if err != nil {
		return changes.Layer{}, nil, err
	}
	word := c.Args().First()
	if word == "" {
		word = "."
	}
	dir := word
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(caller.WorkingDirectory, dir)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	var best *changes.Layer
	inOne := false
	for i := range all {
		l := &all[i]
		own := l.Agent == c.String("agent") && !l.Cache
		switch {
		case l.Name == word && l.Agent == c.String("agent"), l.Agent+"/"+l.Name == word, own && l.Path == dir && word != ".":
			best = l
		case own && word == "." && within(dir, l.Path) && (best == nil || len(l.Path) > len(best.Path)):
			best = l
		case own && word != "." && within(dir, l.Path):
			inOne = true
		}
	}
	if best == nil && inOne { // or a forgotten LAYER would be all of it
		return changes.Layer{}, nil, &misuse{word + " is no layer, but a path in one", "a PATH stands behind LAYER: clai-sandbox changes " + c.Command.Name + " . " + word}
	}
	if best == nil {
		return changes.Layer{}, nil, &misuse{fmt.Sprintf("nothing was changed copy on write in %s by agent %s", word, c.String("agent")), "clai-sandbox changes list shows the layers"}
	}
	if c.Command.Name != "discard" {
		if best.Rules, best.Leads, err = rulesOf(caller, *best); err != nil {
			return changes.Layer{}, nil, err
		}
	}
	paths := []string{}
	tail := c.Args().Tail()
	if len(tail) > 0 && tail[0] == "--" { // there are no options behind LAYER, so that it ends nothing; a file of that name is ./--
		tail = tail[1:]
	}
	for _, word := range tail {
		path, err := pathIn(*best, caller.WorkingDirectory, word)
		if err != nil {
			return changes.Layer{}, nil, err
		}
		paths = append(paths, path)
	}
	return *best, paths, nil
}

// rulesOf are those of the configuration, and what else is executed outside. A configuration that
// cannot be read may have rules.
func rulesOf(caller profile.Caller, l changes.Layer) (*profile.ChangeRules, func(changes.Change) string, error) {
	config, err := profile.Load(caller.Directories())
	if err != nil {
		return nil, nil, err
	}
	rules, err := config.ChangeRules(l.Agent)
	if err != nil {
		return nil, nil, err
	}
	caller.WorkingDirectory = l.Path
	p, err := profile.Resolve(config, caller, profile.Request{Agent: l.Agent, Workspace: l.Path, Image: profile.HostImage})
	if err != nil {
		return rules, func(changes.Change) string {
			return "it cannot be worked out whether something outside executes it: " + text.Value(err.Error())
		}, nil
	}
	return rules, sandbox.ExecutedIn(p, l.Path, sandbox.Host{}), nil
}

// within reports whether a path is a directory, or in it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// pathIn is a path as it is in the directory of a layer. It was typed as from the working directory
// if that is in it.
func pathIn(l changes.Layer, cwd, word string) (string, error) {
	path := filepath.Clean(word)
	if real, err := filepath.EvalSymlinks(cwd); err == nil && !filepath.IsAbs(path) && within(real, l.Path) {
		path = filepath.Join(real, path)
	}
	if filepath.IsAbs(path) {
		var err error
		if path, err = filepath.Rel(l.Path, path); err != nil {
			return "", err
		}
	}
	if word == "" || path == ".." || strings.HasPrefix(path, "../") {
		return "", &misuse{fmt.Sprintf("%q is not in %s", word, l.Path), "a path is as in the directory of the layer"}
	}
	return path, nil
}

// A changeLine is one change of show --json.
type changeLine struct {
	Path     string       `json:"path" jsonschema:"below the directory; quoted and escaped where it is not plain text"`
	Raw      []byte       `json:"rawPath,omitempty" jsonschema:"its bytes in base64, where path is escaped"`
	Kind     changes.Kind `json:"kind" jsonschema:"what was done to it"`
	Type     string       `json:"type" jsonschema:"file, directory, link, FIFO, socket or device; of what was deleted, what it was"`
	Was      string       `json:"was,omitempty" jsonschema:"of replaced: the type before"`
	Mode     string       `json:"mode,omitempty" jsonschema:"octal"`
	OldMode  string       `json:"oldMode,omitempty" jsonschema:"octal, on the host"`
	Size     int64        `json:"size"`
	Entries  int          `json:"entries,omitempty" jsonschema:"of a deleted directory: how many are in it"`
	Target   string       `json:"target,omitempty" jsonschema:"of a link"`
	From     string       `json:"renamedFrom,omitempty" jsonschema:"a deleted file with the same content"`
	Note     string       `json:"note,omitempty" jsonschema:"who executes it, or obeys it"`
	Conflict string       `json:"conflict,omitempty" jsonschema:"why it is applied with --force alone"`
	Merged   bool         `json:"merged,omitempty" jsonschema:"whether the host changed it, too, in other lines, so that apply brings both together"`
	Never    string       `json:"notApplicable,omitempty" jsonschema:"why it cannot be applied at all"`
	Verdict  string       `json:"verdict,omitempty" jsonschema:"of the configuration's rules, where there are any: apply, ask or never"`
	Rule     string       `json:"rule,omitempty" jsonschema:"which rule that is, or why none applies it"`
}

func octal(mode uint32) string {
	if mode == 0 {
		return ""
	}
	return fmt.Sprintf("%04o", mode)
}

func lineOf(c changes.Change) changeLine {
	l := changeLine{Path: text.Value(c.Path), Kind: c.Kind, Type: c.Type, Was: c.Was, Mode: octal(c.Mode), OldMode: octal(c.OldMode), Size: c.Size, Entries: c.Entries,
		Note: c.Note, Conflict: c.Conflict, Merged: c.Merged, Never: c.Never, Rule: c.Rule}
	if c.Rule != "" {
		l.Verdict = map[profile.Verdict]string{profile.VerdictAsk: "ask", profile.VerdictApply: "apply", profile.VerdictNever: "never"}[c.Verdict]
	}
	if l.Path != c.Path {
		l.Raw = []byte(c.Path)
	}
	for _, v := range []struct {
		to   *string
		from string
	}{{&l.Target, c.Target}, {&l.From, c.From}} {
		if v.from != "" {
			*v.to = text.Value(v.from)
		}
	}
	return l
}

// rule is what a person should know of the rules: which changes need nobody, and which cannot be
// applied.
func (l changeLine) rule() string {
	switch l.Verdict {
	case "apply":
		return "applied without asking: " + l.Rule
	case "never":
		return "never applied: " + l.Rule
	}
	return ""
}

// Words of a change for a person.
func (l changeLine) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-8s %s", l.Kind, l.Path)
	if l.Type != "file" {
		fmt.Fprintf(&out, " (%s)", l.Type)
	}
	if l.Was != "" {
		fmt.Fprintf(&out, ", was a %s", l.Was)
	}
	if l.Target != "" {
		fmt.Fprintf(&out, " -> %s", l.Target)
	}
	if l.Entries > 0 {
		fmt.Fprintf(&out, ", with %d entries", l.Entries)
	}
	if l.Kind != changes.Deleted && l.OldMode != "" && l.Mode != "" && l.OldMode != l.Mode {
		fmt.Fprintf(&out, ", %s, was %s", l.Mode, l.OldMode)
	}
	if l.From != "" {
		fmt.Fprintf(&out, ", has the content of %s, which is deleted", l.From)
	}
	merged := ""
	if l.Merged {
		merged = "the original was changed on the host meanwhile, in other lines: apply brings both together"
	}
	for _, note := range []struct{ word, text string }{{"note", l.Note}, {"conflict", l.Conflict}, {"merged", merged}, {"not applicable", l.Never}, {"by rule", l.rule()}} {
		if note.text != "" {
			fmt.Fprintf(&out, "\n         %s: %s", note.word, text.Line(note.text))
		}
	}
	return out.String()
}

// A shownLayer is what show prints with --json.
type shownLayer struct {
	Agent    string        `json:"agent"`
	Name     string        `json:"name"`
	Path     string        `json:"path"`
	Changes  []changeLine  `json:"changes" jsonschema:"what is executed elsewhere comes first"`
	Unseen   []string      `json:"unseen" jsonschema:"what was not looked at, and why"`
	Proposal *proposalLine `json:"proposal,omitempty"`
}

func showChanges(ctx context.Context, c *cli.Context) error {
	layer, paths, err := layerFrom(c)
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		return &misuse{"show takes one LAYER", "clai-sandbox changes diff LAYER PATH shows the lines of a path"}
	}
	review, err := layer.Review(ctx)
	if err != nil {
		return err
	}
	lines := []changeLine{}
	for _, change := range review.Changes {
		lines = append(lines, lineOf(change))
	}
	unseen := []string{}
	for _, line := range review.Unseen {
		unseen = append(unseen, text.Line(line))
	}
	if c.Bool("json") {
		return printJSON(shownLayer{layer.Agent, layer.Name, layer.Path, lines, unseen, proposalOf(layer)})
	}
	if p := proposalOf(layer); p != nil {
		fmt.Println(p)
	}
	for _, line := range lines {
		fmt.Println(line)
	}
	for _, line := range unseen {
		fmt.Fprintln(os.Stderr, "clai-sandbox: not looked at: "+line)
	}
	if len(lines) == 0 && len(unseen) == 0 {
		fmt.Println("nothing was changed")
	}
	return nil
}

func reviewChanges(ctx context.Context, c *cli.Context) error {
	layer, paths, err := layerFrom(c)
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		return &misuse{"review takes one LAYER", "clai-sandbox changes apply LAYER PATH applies a path"}
	}
	describe := func(change changes.Change) string { return lineOf(change).String() }
	said := ""
	if p := proposalOf(layer); p != nil {
		said = p.String()
	}
	return screen.Run(ctx, layer, said, describe, differenceText, os.Stdin, os.Stdout)
}

// maxShown is how many bytes of differences are printed.
const maxShown = 16 << 20

func diffChanges(ctx context.Context, c *cli.Context) error {
	layer, paths, err := layerFrom(c)
	if err != nil {
		return err
	}
	review, err := layer.Review(ctx)
	if err != nil {
		return err
	}
	bytes, shown := 0, changes.Shown{}
	err = layer.Diffs(ctx, review, paths, func(change changes.Change, d changes.Difference) bool {
		out := differenceText(change, d)
		if bytes += len(out); bytes > maxShown {
			fmt.Println("the rest is left out: name a path")
			return false
		}
		fmt.Print(out)
		shown.Add(&change, d)
		return true
	})
	if err != nil || len(shown) == 0 {
		return err
	}
	digest, err := layer.KeepShown(shown)
	if err != nil {
		return fmt.Errorf("what was shown cannot be kept, so that apply could be held to it: %w", err)
	}
	fmt.Fprintf(os.Stderr, "clai-sandbox: to apply this, and nothing that was changed since: clai-sandbox changes apply --shown %s %s\n", digest, layer.Agent+"/"+layer.Name)
	return nil
}

func differenceText(change changes.Change, d changes.Difference) string {
	var out strings.Builder
	fmt.Fprintln(&out, lineOf(change))
	if d.Note != "" {
		fmt.Fprintf(&out, "         not compared: %s\n", text.Line(d.Note))
	}
	for i, hunk := range d.Hunks {
		fmt.Fprintf(&out, "%s part %d\n", hunk.Header, i+1)
		for _, line := range hunk.Lines {
			out.WriteString(shownLine(line) + "\n")
		}
	}
	for _, clash := range d.Clashes {
		for _, side := range []struct {
			head  string
			lines []string
		}{{fmt.Sprintf("<<<<<<< the host, where line %d was", clash.Line), clash.Host}, {"||||||| the original", clash.Original}, {"======= the commands", clash.Layer}} {
			out.WriteString(side.head + "\n")
			for _, line := range side.lines {
				out.WriteString(shownLine(line) + "\n")
			}
		}
		out.WriteString(">>>>>>>\n")
	}
	if len(d.Clashes) > 0 {
		path := "PATH"
		if text.Value(change.Path) == change.Path {
			path = sandbox.Quote(change.Path)
		}
		fmt.Fprintf(&out, "to take the commands': clai-sandbox changes apply --force %s LAYER %s; to keep the host's: clai-sandbox changes discard LAYER %s\n", path, path, path)
	}
	return out.String()
}

// shownLine is a line of a file. Tabs stand as they are.
func shownLine(line string) string {
	parts := strings.Split(line, "\t")
	for i, part := range parts {
		parts[i] = text.Line(part)
	}
	return strings.Join(parts, "\t")
}

// A changesResult is what apply and discard print with --json.
type changesResult struct {
	DryRun  bool       `json:"dryRun,omitempty" jsonschema:"nothing was done"`
	Applied []string   `json:"done" jsonschema:"what was applied, or thrown away"`
	Skipped []skipLine `json:"skipped" jsonschema:"what was left as it was"`
	Left    []string   `json:"left" jsonschema:"where files of the host's are that somebody changed at that very moment"`
}

type skipLine struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// tell says what became of each change.
func tell(c *cli.Context, word string, r *changes.Result) error {
	result := changesResult{DryRun: c.Bool("dry-run"), Applied: []string{}, Skipped: []skipLine{}, Left: []string{}}
	for _, path := range r.Applied {
		result.Applied = append(result.Applied, text.Value(path))
	}
	for _, s := range r.Skipped {
		result.Skipped = append(result.Skipped, skipLine{text.Value(s.Path), text.Line(s.Why)})
	}
	for _, path := range r.Left {
		result.Left = append(result.Left, text.Value(path))
	}
	if c.Bool("json") {
		if err := printJSON(result); err != nil {
			return err
		}
	} else {
		for _, path := range result.Applied {
			fmt.Println(word, path)
		}
		for _, s := range result.Skipped {
			fmt.Fprintf(os.Stderr, "clai-sandbox: left as it was: %s: %s\n", s.Path, s.Why)
		}
		for _, path := range result.Left {
			fmt.Fprintf(os.Stderr, "clai-sandbox: somebody changed a file at the same moment; what was there is kept as %s\n", path)
		}
		if len(result.Applied) == 0 && len(result.Skipped) == 0 {
			fmt.Println("nothing was changed")
		}
	}
	if len(r.Skipped) > 0 || len(r.Left) > 0 {
		return exit(statusLeft)
	}
	return nil
}

func applyChanges(ctx context.Context, c *cli.Context) error {
	layer, paths, err := layerFrom(c)
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	s := changes.Selection{Paths: paths, DryRun: c.Bool("dry-run"), ByRules: c.Bool("by-rules")}
	if c.IsSet("shown") {
		s.Seen, err = layer.FindShown(c.String("shown"))
		if e := (*changes.ShownError)(nil); errors.As(err, &e) {
			return &misuse{err.Error(), "clai-sandbox changes diff prints the digest of what it shows"}
		} else if err != nil {
			return err
		}
	}
	for _, name := range []string{"force", "part", "shown"} {
		if s.ByRules && c.IsSet(name) {
			return &misuse{"--" + name + " is a person's, and says nothing with --by-rules", "leave one of them out"}
		}
	}
	if s.ByRules && layer.Rules == nil {
		return &misuse{"agent " + layer.Agent + " has no rules for changes, so that a person is asked about all of them", "clai-sandbox changes review looks through them; rules are written in config.json as \"changes\": {\"apply\": [\"src/**\"]}"}
	}
	for _, word := range c.StringSlice("force") {
		path, err := pathIn(layer, cwd, word)
		if err != nil {
			return err
		}
		s.Force = append(s.Force, path)
	}
	for _, word := range c.StringSlice("part") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || len(paths) != 1 {
			return &misuse{fmt.Sprintf("--part %q: it is the number of a part of one PATH", word), "clai-sandbox changes diff LAYER PATH counts them"}
		}
		s.Hunks = append(s.Hunks, n)
	}
	return finish(c, "applied", func() (*changes.Result, error) { return layer.Apply(ctx, s) })
}

func discardChanges(ctx context.Context, c *cli.Context) error {
	layer, paths, err := layerFrom(c)
	if err != nil {
		return err
	}
	return finish(c, "discarded", func() (*changes.Result, error) { return layer.Discard(ctx, paths) }) // "." is all of it
}

// finish tells what was done also where it could not be done to its end.
func finish(c *cli.Context, word string, do func() (*changes.Result, error)) error {
	result, err := do()
	var (
		inUse   *changes.InUseError
		strange *changes.StrangeError
	)
	switch {
	case errors.As(err, &inUse):
		return &misuse{err.Error(), "wait until that has ended"}
	case errors.As(err, &strange):
		return &misuse{err.Error(), "what was changed there can be looked at in the layer's directory, which changes list --json names, and thrown away by changes discard"}
	case result == nil:
		return err
	}
	if c.Bool("dry-run") {
		word = "would be " + word
	}
	if told := tell(c, word, result); err == nil {
		return told
	}
	return err
}
