package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
)

// configAction is what a command below config does.
func configAction(name string) cli.ActionFunc {
	switch name {
	case "get":
		return configGet
	case "set":
		return configSet
	case "patch":
		return configPatch
	}
	return noSubcommand("config")
}

// noSubcommand is for a command that does nothing by itself.
func noSubcommand(name string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Args().Present() {
			return &misuse{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox " + name + " --help lists the commands"}
		}
		return cli.ShowSubcommandHelp(c)
	}
}

// shownConfig is what config get prints.
type shownConfig struct {
	Path   string          `json:"path"`
	Exists bool            `json:"exists"`
	Hash   string          `json:"hash"`
	File   json.RawMessage `json:"file"`
}

func directories() (profile.Caller, profile.Directories, error) {
	caller, err := profile.CurrentCaller()
	return caller, caller.Directories(), err
}

func configGet(c *cli.Context) error {
	if c.NArg() > 1 {
		return &misuse{"get takes one key", "without one it prints the whole file"}
	}
	_, d, err := directories()
	if err != nil {
		return err
	}
	now, err := profile.ReadConfigText(d)
	if err != nil {
		return err
	}
	var key []string
	if c.NArg() == 1 {
		if key, err = profile.SplitKey(c.Args().First()); err != nil {
			return err
		}
	}
	value, err := now.Value(key)
	switch {
	case err != nil:
		return err
	case key == nil:
		return printJSON(shownConfig{now.Path, now.Exists, now.Hash, value})
	case value == nil:
		return exit(1)
	}
	return printJSON(json.RawMessage(value))
}

func configSet(c *cli.Context) error {
	if c.NArg() != 2 {
		return &misuse{"set wants a key and a value", "for example clai-sandbox config set agents.main.execution.sandbox.network filtered"}
	}
	key, err := profile.SplitKey(c.Args().First())
	if err != nil {
		return err
	}
	value := []byte(c.Args().Get(1))
	if !json.Valid(value) {
		if value, err = json.Marshal(c.Args().Get(1)); err != nil {
			return err
		}
	}
	return changeConfig(c, profile.Nested(key, value))
}

// maxPatch bounds a change, in bytes: no configuration is larger.
const maxPatch = 1 << 20

func configPatch(c *cli.Context) error {
	if c.NArg() > 1 {
		return &misuse{"patch takes one file", "or none, for standard input"}
	}
	in := io.Reader(os.Stdin)
	if name := c.Args().First(); name != "" && name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	patch, err := io.ReadAll(io.LimitReader(in, maxPatch+1))
	if err != nil {
		return err
	}
	return changeConfig(c, patch)
}

func changeConfig(c *cli.Context, patch []byte) error {
	_, d, err := directories()
	if err != nil {
		return err
	}
	now, err := profile.ChangeConfig(d, c.String("base-hash"), func(text []byte) ([]byte, error) { return profile.MergeConfig("config.json", text, patch) })
	if err != nil {
		return err
	}
	value, err := now.Value(nil)
	if err != nil {
		return err
	}
	return printJSON(shownConfig{now.Path, now.Exists, now.Hash, value})
}
