package delegated

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestOptionsMayStandBehindOtherWords(t *testing.T) {
	app := &cli.App{Commands: []*cli.Command{{Name: "grants", Subcommands: []*cli.Command{{Name: "allow",
		Flags: []cli.Flag{&cli.StringFlag{Name: "path"}, &cli.BoolFlag{Name: "once"}}}}}, {Name: "run"}}}
	for line, want := range map[string]string{
		"p grants allow ID --path /x --once": "p grants allow --path /x --once ID",
		"p grants allow ID --path=/x more":   "p grants allow --path=/x ID more",
		"p grants allow --once ID":           "p grants allow --once ID",
		"p grants allow ID -- --path":        "p grants allow ID -- --path",
		"p grants allow ID --path":           "p grants allow --path ID",
		"p grants allow - --once":            "p grants allow --once -",
		"p grants other ID --once":           "p grants other ID --once",
		"p run cmd --once":                   "p run cmd --once",
		"p":                                  "p",
	} {
		words := strings.Fields(line)
		before := slices.Clone(words)
		if got := strings.Join(OptionsFirst(app, words, "grants"), " "); got != want || !slices.Equal(words, before) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
