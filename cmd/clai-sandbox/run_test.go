package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/urfave/cli/v2"
)

// forgetFlags takes the flags' other names and their environment variables out of the library's
// sight.
func TestAnOptionOfRunHasOneNameAndNoVariable(t *testing.T) {
	for _, flag := range runCommand().Flags {
		of := reflect.ValueOf(flag).Elem()
		if variables := of.FieldByName("EnvVars"); len(flag.Names()) != 1 || variables.Len() != 0 {
			t.Errorf("%v is also read from %v: whether it was used, nobody would know", flag.Names(), variables)
		}
	}
}

func TestAfterTheWordsWereReadEveryOptionIsKnown(t *testing.T) {
	app := newApp()
	var used []string
	app.Command("run").Action = func(c *cli.Context) error {
		for _, flag := range runCommand().Flags {
			if name := flag.Names()[0]; c.IsSet(name) {
				used = append(used, name)
			}
		}
		used = append(used, c.String("agent"), c.String("home"), c.StringSlice("grant")[1])
		return nil
	}
	if err := app.Run([]string{"clai-sandbox", "run", "--grant", "/a", "--home=", "--live=false", "--grant=/b,c", "--", "x", "--agent=y"}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"home", "grant", "live", "main", "", "/b,c"}; !slices.Equal(used, want) {
		t.Errorf("%q, want %q", used, want)
	}
}
