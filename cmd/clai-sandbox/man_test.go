package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

//go:generate go test -run TestManPageIsMadeFromTheCommandLine|TestWhatIsPrintedAsJSONIsPublished . -update

// The man page is made here and not in the command: a generator would be linked into every start.

func TestManPageIsMadeFromTheCommandLine(t *testing.T) {
	page := manPage(newApp())
	checkGenerated(t, "../../packaging/man/clai-sandbox.1", []byte(page))
	for _, lint := range [][]string{{"mandoc", "-Tlint", "-Wwarning"}, {"groff", "-man", "-Tutf8", "-ww", "-z"}} {
		if _, err := exec.LookPath(lint[0]); err != nil {
			continue
		}
		cmd := exec.Command(lint[0], lint[1:]...)
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", lint[0], err, out)
		}
	}
}

// roff escapes text for a man page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "", "…", `\[u2026]`).Replace(text)
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func manPage(app *cli.App) string {
	var page strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&page, format+"\n", args...) }
	p(`.TH CLAI\-SANDBOX 1 2026-11-20`)
	p(".SH NAME\nclai\\-sandbox \\- %s", roff(app.Usage))
	p(".SH SYNOPSIS")
	for i, line := range strings.Split(app.UsageText, "\n") {
		if i > 0 {
			p(".br")
		}
		p("%s", roff(line))
	}
	p(".SH COMMANDS")
	for _, command := range app.Commands {
		p(".SS clai\\-sandbox %s %s", command.Name, roff(command.ArgsUsage))
		p("%s.", roff(strings.ToUpper(command.Usage[:1])+command.Usage[1:]))
		if command.Description != "" {
			p(".PP\n%s", roff(command.Description))
		}
		for _, flag := range command.Flags {
			value, help := "", flag.(cli.DocGenerationFlag).GetUsage()
			if flag.(cli.DocGenerationFlag).TakesValue() {
				if value = "VALUE"; strings.Count(help, "`") == 2 {
					value = strings.Split(help, "`")[1]
				}
			}
			p(".TP\n.B \\-\\-%s \\fI%s\\fR\n%s", roff(flag.Names()[0]), roff(value), roff(help))
		}
	}
	p(".SH EXIT STATUS")
	for _, status := range []struct{ code, text string }{
		{"0 to 255", "the command's own; 128+N if signal N ended it"},
		{fmt.Sprint(statusTimeout), "the command was ended by --timeout"},
		{fmt.Sprint(statusNoSandbox), "nothing was run: bad options, bad configuration, or a sandbox that cannot be set up"},
		{fmt.Sprint(statusNotExecutable), "the command is there, but cannot be executed"},
		{fmt.Sprint(statusNotFound), "the command was not found"},
	} {
		p(".TP\n.B %s\n%s", status.code, roff(status.text))
	}
	p("doctor exits with 1 if this host cannot sandbox.")
	p(".SH ENVIRONMENT\n.TP\n.B %s\n%s", roff(bwrapVariable), roff("the bwrap to use in place of the system's"))
	p(".SH FILES")
	for _, file := range []struct{ path, text string }{
		{"$XDG_CONFIG_HOME/clai-sandbox/config.json", "the configuration, below ~/.config if the variable is not set"},
		{"/etc/clai-sandbox/config.json", "the administrator's, below it"},
		{"$XDG_STATE_HOME/clai-sandbox", "what is remembered between runs, below ~/.local/state if the variable is not set"},
	} {
		p(".TP\n.I %s\n%s", roff(file.path), roff(file.text))
	}
	p("No sandbox can see into these directories.")
	p(".SH EXAMPLES\n.nf")
	p("%s\n.fi", roff("clai-sandbox run -- make test\nclai-sandbox run --network disabled --grant ~/data:ro -- python3 analyse.py\n"+
		"clai-sandbox explain --path ~/.ssh/config\nclai-sandbox doctor"))
	p(".SH SEE ALSO\n.BR bwrap (1)")
	return page.String()
}
