package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
)

// The man pages are made here and not by the command: a generator would be linked into every start.
// What the definitions do not say stands in packaging/man/*.in.

func TestManPagesAreUpToDate(t *testing.T) {
	for page, data := range manData(t) {
		path := "../../packaging/man/" + page
		var text strings.Builder
		source := template.Must(template.New(filepath.Base(path) + ".in").Funcs(roffFunctions).ParseFiles(path + ".in"))
		if err := source.Execute(&text, data); err != nil {
			t.Fatal(err)
		}
		checkGenerated(t, path, []byte(text.String()))
		lintPage(t, path)
	}
}

func lintPage(t *testing.T, path string) {
	t.Helper()
	for _, lint := range [][]string{{"mandoc", "-Tlint", "-Wwarning"}, {"groff", "-man", "-Tutf8", "-ww", "-z"}} {
		if _, err := exec.LookPath(lint[0]); err != nil {
			continue
		}
		if out, err := exec.Command(lint[0], append(lint[1:], path)...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", lint, err, out)
		}
	}
}

func manData(t *testing.T) map[string]any {
	app := newApp()
	top, keys := configKeys(t)
	made := func(from string) string { return "Made by make generate from " + from + "; edit that." }
	return map[string]any{
		"clai-sandbox.1": map[string]any{
			"Made": made("the command line and clai-sandbox.1.in"),
			"App":  app, "Options": optionGroups(app), "BwrapVariable": profile.BwrapVariable, "DaemonVariable": daemonVariable, "StateVariable": profile.StateVariable,
			"TimedOut": statusTimeout, "NoSandbox": statusNoSandbox, "NotExecutable": statusNotExecutable, "NotFound": statusNotFound,
		},
		"clai-sandbox-config.5": map[string]any{
			"Made": made("the configuration's schema, docs/config.md and clai-sandbox-config.5.in"),
			"Top":  top, "Keys": keys, "DefaultAgent": profile.DefaultAgent,
			"Example":   fromManual(t, "```jsonc\n", "\n```"),
			"Variables": strings.Split("Every command gets"+fromManual(t, "\nEvery command gets", "\n\nSome are refused"), "\n\n"),
			"Refused":   "Some are refused" + fromManual(t, "\nSome are refused", "\n\n"),
		},
	}
}

// A manEntry is one option or key.
type manEntry struct{ Synopsis, Help string }

type optionGroup struct {
	Of    string // the commands that have them
	Flags []manEntry
}

// optionGroups lists each option once, under all the commands that have it.
func optionGroups(app *cli.App) []optionGroup {
	var entries []manEntry
	commands := map[manEntry][]string{}
	var collect func(above string, list []*cli.Command)
	collect = func(above string, list []*cli.Command) {
		for _, command := range list {
			for _, flag := range command.Flags {
				entry := manEntryOf(flag.(cli.DocGenerationFlag), flag.Names()[0])
				if commands[entry] == nil {
					entries = append(entries, entry)
				}
				commands[entry] = append(commands[entry], above+command.Name)
			}
			collect(above+command.Name+" ", command.Subcommands)
		}
	}
	collect("", app.Commands)
	var groups []optionGroup
	for _, entry := range entries {
		of := strings.Join(commands[entry], " and ")
		i := slices.IndexFunc(groups, func(g optionGroup) bool { return g.Of == of })
		if i < 0 {
			i, groups = len(groups), append(groups, optionGroup{Of: of})
		}
		groups[i].Flags = append(groups[i].Flags, entry)
	}
	return groups
}

// placeholder is the name of an option's value in its help, with what may follow it.
var placeholder = regexp.MustCompile("`([^`]*)`((?:\\[[^]]*\\])*)")

func manEntryOf(flag cli.DocGenerationFlag, name string) manEntry {
	e := manEntry{"--" + name, strings.ReplaceAll(flag.GetUsage(), "`", "")}
	if !flag.TakesValue() {
		return e
	}
	if found := placeholder.FindStringSubmatch(flag.GetUsage()); found != nil {
		e.Synopsis += " " + found[1] + found[2]
	}
	if text := strings.Trim(flag.GetDefaultText(), `"`); text != "" {
		e.Help += " (default: " + text + ")"
	}
	return e
}

// configKeys are the keys of the configuration file: those at its top, and those of an agent's
// execution.
func configKeys(t *testing.T) (top, keys []manEntry) {
	t.Helper()
	text, err := os.ReadFile("../../profile/config.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	walkKeys(&schema, "", func(e manEntry) { top = append(top, e) })
	execution := schema.Defs["agent"].Properties["execution"]
	walkKeys(execution, "", func(e manEntry) { keys = append(keys, e) })
	if len(top) < 3 || len(keys) < 5 {
		t.Fatalf("%d and %d keys in the schema", len(top), len(keys))
	}
	return top, keys
}

// walkKeys calls add for each key that is not only a place for others, in the order of the
// alphabet.
func walkKeys(s *jsonschema.Schema, above string, add func(manEntry)) {
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		key := s.Properties[name]
		if key.Properties != nil {
			walkKeys(key, above+name+".", add)
			continue
		}
		help := key.Description
		if key.Items != nil && key.Items.Properties != nil {
			walkKeys(key.Items, "", func(e manEntry) {
				help += "; " + strings.Fields(e.Synopsis)[0] + " is " + e.Help
			})
		}
		add(manEntry{above + name + " " + typeOf(key), help})
	}
}

// typeOf tells in a few words what may stand behind a key.
func typeOf(s *jsonschema.Schema) string {
	switch {
	case s.Enum != nil:
		return strings.Trim(strings.ReplaceAll(fmt.Sprintf("%q", s.Enum), " ", "|"), "[]")
	case s.Ref != "":
		return "AGENT"
	case s.Type == "boolean":
		return "true|false"
	case s.Type == "integer":
		return "NUMBER"
	case s.Type == "array" && s.Items.Properties != nil:
		var parts []string
		for name, part := range s.Items.Properties {
			parts = append(parts, fmt.Sprintf("%q: %s", name, typeOf(part)))
		}
		slices.Sort(parts)
		return "[{" + strings.Join(parts, ", ") + "}, …]"
	case s.Type == "array":
		return "[" + typeOf(s.Items) + ", …]"
	case s.Type == "object":
		return `{"NAME": ` + typeOf(s.AdditionalProperties) + ", …}"
	}
	return `"TEXT"`
}

// fromManual is a part of docs/config.md, which the profile's tests hold against what is true.
func fromManual(t *testing.T, from, to string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), from)
	part, _, found := strings.Cut(rest, to)
	if !found {
		t.Fatalf("nothing from %q to %q in docs/config.md", from, to)
	}
	return strings.ReplaceAll(part, "`", "")
}

var roffFunctions = template.FuncMap{
	"roff": roff, "mark": mark, "synopsis": synopsis, "sentence": sentence, "literal": literal,
	"usage": func(c *cli.Command) string {
		text := c.ArgsUsage
		if len(c.Flags) > 0 {
			text = "[options] " + text
		}
		return roff(strings.TrimSpace(text))
	},
}

// roff escapes text. No line of it is taken for a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// sentence makes a help text one.
func sentence(text string) string { return roff(strings.ToUpper(text[:1]) + text[1:] + ".") }

// literal keeps lines, the empty ones too, which mandoc would have us not write.
func literal(text string) string { return strings.ReplaceAll(roff(text), "\n\n", "\n\\&\n") }

// words of a synopsis: what to replace is in capitals, and all the rest is as typed.
var manWords = regexp.MustCompile(`[A-Z]{2,}|\bN\b|[^][|{}, A-Z…]+|[A-Z]`)

// mark sets a synopsis in bold and italics.
func mark(text string) string {
	text = strings.TrimSpace(text)
	return roffFonts(manWords.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ToUpper(word) == word && strings.ToLower(word) != word || word == "options" {
			return "\x01" + word + "\x03"
		}
		return "\x02" + word + "\x03"
	}))
}

// roffFonts escapes text in which font changes are control characters. A line may end between
// quoted words.
func roffFonts(text string) string {
	return strings.NewReplacer("\x03|\x02\"", `\fR|\:\fB"`, "\x01", `\fI`, "\x02", `\fB`, "\x03", `\fR`).Replace(roff(text))
}

func synopsis(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, mark(line))
	}
	return strings.Join(lines, "\n.br\n")
}

// Each example of the page is a command line that is understood.
func TestTheExamplesOfTheManPageAreUnderstood(t *testing.T) {
	page, err := os.ReadFile("../../packaging/man/clai-sandbox.1")
	if err != nil {
		t.Fatal(err)
	}
	_, examples, _ := strings.Cut(string(page), ".SH EXAMPLES")
	lines := regexp.MustCompile(`(?m)^    clai\\-sandbox (.*)$`).FindAllStringSubmatch(examples, -1)
	if len(lines) < 4 {
		t.Fatalf("%d examples", len(lines))
	}
	for _, line := range lines {
		understood := false
		app := newApp()
		app.Writer = io.Discard
		var replace func(list []*cli.Command)
		replace = func(list []*cli.Command) {
			for _, command := range list {
				command.Action = func(*cli.Context) error { understood = true; return nil }
				replace(command.Subcommands)
			}
		}
		replace(app.Commands)
		words := strings.Fields(strings.ReplaceAll(line[1], `\-`, "-"))
		if err := app.Run(append([]string{"clai-sandbox"}, words...)); err != nil || !understood {
			t.Errorf("%q: %v", words, err)
		}
	}
}
