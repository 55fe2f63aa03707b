package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/profile/text"
)

// auditAction is what a command below audit does.
func auditAction(name string) cli.ActionFunc {
	switch name {
	case "list":
		return auditList
	case "tail":
		return auditTail
	case "verify":
		return auditVerify
	case "checkpoint":
		return auditCheckpoint
	case "prove":
		return auditProve
	case "export":
		return auditExport
	}
	return noSubcommand("audit")
}

// auditDirectory is where the log is.
func auditDirectory() (string, error) {
	_, d, err := directories()
	return d.State, err
}

// recorded is what is shown of a line of the log: that of a path grant and that of a command have
// some members in common.
type recorded struct {
	Time      time.Time `json:"time"`
	Event     string    `json:"event"`
	User      string    `json:"user"`
	ID        string    `json:"runId"`
	Agent     string    `json:"agentId"`
	Session   string    `json:"sessionId"`
	Workspace string    `json:"workspaceId"`
	Project   string    `json:"project"`
	Branch    string    `json:"branch"`
	Command   string    `json:"command"`
	Verdict   string    `json:"verdict"`
	Pattern   string    `json:"pattern"`
	Domain    string    `json:"domain"`
	Rule      string    `json:"rule"`
	Count     int64     `json:"count"`
	Path      string    `json:"path"`
	Sender    string    `json:"sender"`
	Overrides *struct {
		Host, Security, Ask, Node string
		Elevated                  bool
	} `json:"overrides"`
	GrantID  string `json:"grantId"`
	Decision *struct {
		Kind   string `json:"kind"`
		Domain string `json:"domain"`
		Answer string `json:"answer"`
		Path   string `json:"path"`
		Access string `json:"access"`
		Reason string `json:"reason"`
		Via    string `json:"via"`
	} `json:"decision"`
	Request *struct {
		ID        string `json:"requestId"`
		Agent     string `json:"agentId"`
		Workspace string `json:"workspaceId"`
		Path      string `json:"requestedPath"`
		Access    string `json:"requestedAccess"`
	} `json:"request"`
	Grant *struct {
		ID     string `json:"id"`
		Agent  string `json:"agentId"`
		Path   string `json:"path"`
		Access string `json:"access"`
	} `json:"grant"`
	Outcome  string `json:"outcome"`
	Status   string `json:"status"`
	ExitCode *int   `json:"exitCode"`
	TookMs   int64  `json:"tookMs"`
	Reason   string `json:"reason"`
	Lines    int64  `json:"lines"`
}

// readRecorded reads a line; of one that is none of ours only the number is shown.
func readRecorded(line []byte) (r recorded) {
	if json.Unmarshal(line, &r) != nil {
		return recorded{Event: "unreadable"}
	}
	if r.Request != nil {
		r.ID, r.Agent, r.Workspace = r.Request.ID, r.Request.Agent, r.Request.Workspace
	}
	if r.Grant != nil && r.Agent == "" {
		r.Agent = r.Grant.Agent
	}
	return r
}

// title is what a line is about, in the words that people search for.
func (r *recorded) title() string {
	switch r.Event {
	case "command_requested":
		return "HOSTEXEC REQUEST"
	case "command_auto_approved":
		return "HOSTEXEC AUTO_APPROVE"
	case "command_decided":
		if r.Decision != nil && r.Decision.Kind != "deny" {
			return "HOSTEXEC APPROVE"
		}
		return "HOSTEXEC DENY"
	case "command_started":
		return "HOSTEXEC START"
	case "command_ended":
		switch {
		case r.ExitCode != nil:
			return "HOSTEXEC COMPLETE"
		case r.Status == "timeout":
			return "HOSTEXEC TIMEOUT"
		case r.Status == "denied":
			return "HOSTEXEC DENY"
		}
		return "HOSTEXEC ERROR"
	}
	return strings.ToUpper(strings.Replace(r.Event, "_", " ", 1))
}

// line is a line for people: what it is about, and then its members, each quoted where it has
// blanks.
func (r *recorded) line() string {
	words := []string{r.Time.Local().Format("2006-01-02T15:04:05.000Z07:00"), r.title()}
	add := func(name, value string) {
		if value != "" {
			if value = text.Line(value); strings.ContainsAny(value, " \"=") {
				value = strconv.Quote(value)
			}
			words = append(words, name+"="+value)
		}
	}
	add("id", r.ID)
	add("agent", r.Agent)
	add("project", cmp.Or(r.Project, r.Workspace))
	add("branch", r.Branch)
	if strings.HasPrefix(r.Event, "question_") {
		add("question", r.Command)
	} else {
		add("cmd", r.Command)
	}
	add("domain", r.Domain)
	if r.Decision == nil {
		add("rule", r.Rule)
	}
	add("path", r.Path)
	if r.Count > 1 {
		add("count", strconv.FormatInt(r.Count, 10))
	}
	if o := r.Overrides; o != nil {
		add("host", o.Host)
		add("security", o.Security)
		add("ask", o.Ask)
		add("node", o.Node)
		if o.Elevated {
			add("elevated", "on")
		}
	}
	add("sender", r.Sender)
	add("grant", r.GrantID)
	add("verdict", r.Verdict)
	add("pattern", r.Pattern)
	if q := r.Request; q != nil {
		add("path", q.Path)
		add("access", q.Access)
	}
	if g := r.Grant; g != nil {
		add("grant", g.ID)
		add("path", g.Path)
		add("access", g.Access)
	}
	if d := r.Decision; d != nil {
		add("user", r.User)
		add("decision", d.Kind)
		add("rule", d.Domain)
		add("answer", d.Answer)
		add("via", d.Via)
		add("reason", d.Reason)
	}
	add("outcome", r.Outcome)
	if r.ExitCode != nil {
		add("exit", strconv.Itoa(*r.ExitCode))
	}
	if r.TookMs > 0 {
		add("duration", (time.Duration(r.TookMs) * time.Millisecond).String())
	}
	if r.Lines > 0 {
		add("lines", strconv.FormatInt(r.Lines, 10))
	}
	add("reason", r.Reason)
	return strings.Join(words, " ")
}

// own reports whether a line is about the log itself, and not worth a person's look.
func (r *recorded) own() bool { return r.Event == "checkpoint" || r.Event == "segment" }

// eachRecorded goes through the log, as the options of a command want it.
func eachRecorded(c *cli.Context, do func(number int64, line []byte, r *recorded) error) error {
	if c.Args().Present() {
		return &misuse{fmt.Sprintf("%s takes no argument %q", c.Command.Name, c.Args().First()), "clai-sandbox audit --help lists the commands"}
	}
	if c.Duration("since") < 0 {
		return &misuse{"--since must not be less than 0", "as --since 24h"}
	}
	dir, err := auditDirectory()
	if err != nil {
		return err
	}
	begin := time.Time{}
	if c.IsSet("since") {
		begin = time.Now().Add(-c.Duration("since"))
	}
	return audit.Each(dir, 0, func(number int64, line []byte) error {
		r := readRecorded(line)
		if r.Time.Before(begin) && r.Event != "unreadable" || c.IsSet("agent") && r.Agent != c.String("agent") {
			return nil
		}
		return do(number, line, &r)
	})
}

func auditList(c *cli.Context) error {
	out := bufio.NewWriter(os.Stdout)
	err := eachRecorded(c, func(number int64, line []byte, r *recorded) (err error) {
		switch {
		case c.Bool("json"):
			_, err = fmt.Fprintf(out, "%s\n", text.PlainJSON(line))
		case !r.own():
			_, err = fmt.Fprintf(out, "%6d %s\n", number, r.line())
		}
		return err
	})
	return errors.Join(err, out.Flush())
}

func auditExport(c *cli.Context) error {
	print := map[string]func(line []byte, r *recorded) ([]byte, error){
		"jsonl": func(line []byte, _ *recorded) ([]byte, error) { return text.PlainJSON(line), nil },
		"text":  func(_ []byte, r *recorded) ([]byte, error) { return []byte(r.line()), nil },
		"ocsf":  func(line []byte, r *recorded) ([]byte, error) { return r.ocsf(line) },
	}[c.String("format")]
	if print == nil {
		return &misuse{fmt.Sprintf("--format %q is not known", c.String("format")), "it is jsonl, ocsf or text"}
	}
	out := bufio.NewWriter(os.Stdout)
	err := eachRecorded(c, func(_ int64, line []byte, r *recorded) error {
		if r.own() && c.String("format") != "jsonl" {
			return nil
		}
		printed, err := print(line, r)
		if err == nil {
			_, err = out.Write(append(printed, '\n'))
		}
		return err
	})
	return errors.Join(err, out.Flush())
}

// ocsf is the line as an event of the Open Cybersecurity Schema Framework: a process that is
// launched or ends, or an answer to a request.
func (r *recorded) ocsf(line []byte) ([]byte, error) {
	class, activity, severity := 6003, 99, 1 // API Activity, Other, Informational
	switch r.Event {
	case "command_started":
		class, activity = 1007, 1 // Process Activity: Launch
	case "command_ended":
		if r.ExitCode != nil {
			class, activity = 1007, 2 // Terminate
		}
	case "grant_requested", "command_requested", "grant_added":
		activity = 1 // Create
	case "audit_changed":
		severity = 4 // High
	}
	event := map[string]any{
		"class_uid": class, "category_uid": class / 1000, "activity_id": activity, "type_uid": class*100 + activity, "severity_id": severity,
		"time": r.Time.UnixMilli(), "message": r.line(), "unmapped": json.RawMessage(line),
		"metadata": map[string]any{"version": "1.3.0", "product": map[string]any{"name": "clai-sandbox", "version": version}},
		"actor":    map[string]any{"user": map[string]any{"name": r.User}, "app_name": r.Agent},
	}
	if class == 1007 {
		event["process"] = map[string]any{"cmd_line": r.Command, "uid": r.ID}
		if r.ExitCode != nil {
			event["exit_code"] = *r.ExitCode
		}
	} else {
		event["api"] = map[string]any{"operation": r.Event, "request": map[string]any{"uid": r.ID}}
	}
	if r.TookMs > 0 {
		event["duration"] = r.TookMs
	}
	if !json.Valid(line) {
		event["unmapped"] = map[string]any{"line": string(line)}
	}
	printed, err := json.Marshal(event)
	return text.PlainJSON(printed), err
}

func auditTail(c *cli.Context) error {
	if c.Args().Present() || c.Int("lines") < 0 || c.Int("lines") > 100_000 {
		return &misuse{"tail takes --lines from 0 to 100000, and no argument", "as clai-sandbox audit tail --lines 20 --follow"}
	}
	dir, err := auditDirectory()
	if err != nil {
		return err
	}
	var last []string
	shown, from, next := c.Int("lines"), int64(0), int64(0)
	look := func(number int64, line []byte) error {
		next = number + 1
		if r := readRecorded(line); !r.own() {
			if last = append(last, fmt.Sprintf("%6d %s", number, r.line())); from == 0 && len(last) > 2*shown {
				last = last[len(last)-shown:]
			}
		}
		return nil
	}
	for ; ; from = next {
		if err := audit.Each(dir, next, look); err != nil {
			return err
		}
		if from == 0 && len(last) > shown {
			last = last[len(last)-shown:]
		}
		for _, line := range last {
			if _, err := fmt.Println(line); err != nil {
				return err
			}
		}
		if last = nil; !c.Bool("follow") {
			return nil
		}
		select {
		case <-c.Context.Done():
			return nil
		case <-time.After(followPause):
		}
	}
}

// followPause is how often what follows the log looks for more.
const followPause = 250 * time.Millisecond

// auditKey is what checks signatures.
func auditKey(c *cli.Context, dir string) (string, error) {
	if c.IsSet("key") {
		return c.String("key"), nil
	}
	key, err := audit.Key(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &misuse{"there is no audit log yet: no gateway has run", "clai-sandbox gateway begins one; with --key KEY, a proof is checked without a log"}
	}
	return key, err
}

func auditVerify(c *cli.Context) error {
	dir, err := auditDirectory()
	if err != nil {
		return err
	}
	key, err := auditKey(c, dir)
	if err != nil {
		return err
	}
	var kept []string
	for i, name := range c.Args().Slice() {
		content, err := readBounded(name)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(strings.TrimSpace(content), "{") {
			kept = append(kept, content)
			continue
		}
		var proof audit.Proof
		if err := json.Unmarshal([]byte(content), &proof); err != nil {
			return fmt.Errorf("%s: %w", text.Line(name), err)
		}
		if err := proof.Check(key); err != nil {
			return fmt.Errorf("%s: %w", text.Line(name), err)
		}
		fmt.Println(text.Line(name) + ": it proves what it says")
		if proof.Line != nil {
			fmt.Println(text.Line(proof.Text))
		}
		if i == c.NArg()-1 && len(kept) == 0 {
			return nil
		}
	}
	report, err := audit.Verify(dir, key, kept...)
	if err != nil {
		return err
	}
	if report.First > 0 && !c.Bool("partial") {
		report.Problems = append(report.Problems, fmt.Sprintf("lines 0 to %d are not here; --partial takes it that they were put elsewhere", report.First-1))
	}
	if c.Bool("json") {
		err = printJSON(report)
	} else {
		for _, problem := range report.Problems {
			fmt.Println(text.Line(problem))
		}
		if len(report.Problems) == 0 {
			fmt.Printf("%d lines are what was signed", report.Lines-report.First-report.Unsigned)
			if report.Unsigned > 0 {
				fmt.Printf("; %d at the end are not signed yet", report.Unsigned)
			}
			fmt.Println()
		}
	}
	if err == nil && len(report.Problems) > 0 {
		return exit(1)
	}
	return err
}

func auditCheckpoint(c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{fmt.Sprintf("checkpoint takes no argument %q", c.Args().First()), "clai-sandbox audit checkpoint >FILE keeps it"}
	}
	dir, err := auditDirectory()
	if err != nil {
		return err
	}
	key, err := auditKey(c, dir)
	if err != nil {
		return err
	}
	head, err := audit.Head(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &misuse{"nothing was signed yet", "it is as soon as something was asked or granted"}
	}
	if err == nil {
		_, err = audit.OpenCheckpoint(head, key)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "key: "+text.Line(key))
	_, err = os.Stdout.WriteString(head)
	return err
}

func auditProve(c *cli.Context) error {
	if c.NArg() != 1 {
		return &misuse{"prove takes the number of a line, or a file with a checkpoint", "clai-sandbox audit list shows the numbers"}
	}
	dir, err := auditDirectory()
	if err != nil {
		return err
	}
	key, err := auditKey(c, dir)
	if err != nil {
		return err
	}
	var proof *audit.Proof
	if line, failed := strconv.ParseInt(c.Args().First(), 10, 64); failed == nil {
		proof, err = audit.Prove(dir, key, line)
	} else {
		var signed string
		if signed, err = readBounded(c.Args().First()); err == nil {
			proof, err = audit.ProveSince(dir, key, signed)
		}
	}
	if err != nil {
		return err
	}
	return printJSON(proof)
}

// readBounded reads a file that a person names, or standard input.
func readBounded(name string) (string, error) {
	file := os.Stdin
	if name != "-" {
		var err error
		if file, err = os.Open(name); err != nil {
			return "", err
		}
		defer file.Close()
	}
	const most = 8 << 20
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && len(content) > most {
		err = fmt.Errorf("%s has more than %d bytes", text.Line(name), most)
	}
	return string(content), err
}
