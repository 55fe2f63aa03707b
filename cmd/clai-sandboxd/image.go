package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/image"
	"github.com/clairun/clai-sandbox/sandbox/image/store"
	"github.com/clairun/clai-sandbox/sandbox/image/unpack"
)

// imageAction is what a command below image does.
func imageAction(name string) cli.ActionFunc {
	do := map[string]func(context.Context, *cli.Context, string) error{
		"import": importImage, "build-base": buildImage, "list": listImages, "show": showImage, "remove": removeImage}[name]
	return func(c *cli.Context) error {
		if do == nil {
			if c.Args().Present() {
				return &misuse{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox image --help lists the commands"}
			}
			return cli.ShowSubcommandHelp(c)
		}
		syscall.Umask(0o022) // what is an image's has the modes of the image; what is ours is closed to others by its own
		caller, err := profile.CurrentCaller()
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if c.IsSet("timeout") && c.Duration("timeout") <= 0 {
			return &misuse{"--timeout must be longer than 0", "for example --timeout 1h"}
		}
		if d := c.Duration("timeout"); d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, d, &store.Error{Why: "it takes longer than " + d.String(), Hint: "let it take longer: --timeout"})
			defer cancel()
		}
		return do(ctx, c, caller.Directories().Images())
	}
}

func budgetFrom(c *cli.Context) (unpack.Budget, error) {
	size, err := profile.ParseSize(c.String("max-size"))
	if err != nil || size < 1 {
		return unpack.Budget{}, &misuse{fmt.Sprintf("--max-size %s is no size", text.Value(c.String("max-size"))), "for example --max-size 20GiB"}
	}
	if c.Int("max-entries") < 1 {
		return unpack.Budget{}, &misuse{"--max-entries must be at least 1", "for example --max-entries 5000000"}
	}
	return unpack.Budget{Bytes: size, Entries: c.Int("max-entries")}, nil
}

func importImage(ctx context.Context, c *cli.Context, dir string) error {
	if c.NArg() != 2 || c.Args().First() == "" {
		return &misuse{"import takes what is imported, and a name", "clai-sandbox image import SOURCE NAME"}
	}
	return makeImage(ctx, c, dir, func(s *store.Store, budget unpack.Budget) (*image.Image, error) {
		return s.Import(ctx, c.Args().First(), c.Args().Get(1), budget)
	})
}

func buildImage(ctx context.Context, c *cli.Context, dir string) error {
	name, err := oneArgument(c, "NAME")
	if err != nil {
		return err
	}
	base := store.Base{Suite: c.String("suite"), Mirror: c.String("mirror"), Include: c.StringSlice("include"), Progress: os.Stderr}
	return makeImage(ctx, c, dir, func(s *store.Store, budget unpack.Budget) (*image.Image, error) {
		return s.Build(ctx, base, name, budget)
	})
}

func makeImage(ctx context.Context, c *cli.Context, dir string, do func(*store.Store, unpack.Budget) (*image.Image, error)) error {
	budget, err := budgetFrom(c)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Close()
	made, err := do(s, budget)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(made)
	}
	describeImage(made, dir)
	return nil
}

func listImages(ctx context.Context, c *cli.Context, dir string) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if err := store.Recover(ctx, dir); err != nil {
		return err
	}
	list, err := image.List(dir)
	if err != nil {
		return err
	}
	type line struct {
		*image.Image
		Name    string `json:"name"`
		InUse   bool   `json:"inUse"`
		Problem string `json:"problem,omitempty"`
	}
	lines := []line{}
	for _, l := range list {
		n := line{l.Image, l.Name, l.InUse, ""}
		if l.Err != nil {
			n.Problem = l.Err.Error()
		}
		lines = append(lines, n)
	}
	if c.Bool("json") {
		return printJSON(lines)
	}
	if len(lines) == 0 {
		fmt.Println("there are no images: clai-sandbox image import makes one")
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tENTRIES\tSIZE\tIMPORTED\tFROM\t")
	for _, l := range lines {
		switch {
		case l.Problem != "":
			fmt.Fprintf(table, "%s\t\t\t\tcannot be used: %s\n", l.Name, text.Line(l.Problem))
		default:
			note := ""
			if l.InUse {
				note = "in use"
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", l.Name, l.Entries, sizeOf(l.Bytes), time.UnixMilli(l.Made).Format(time.DateOnly), text.Value(l.Source), note)
		}
	}
	return table.Flush()
}

// sizeOf is a size for people.
func sizeOf(bytes int64) string {
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

func showImage(ctx context.Context, c *cli.Context, dir string) error {
	name, err := oneArgument(c, "NAME")
	if err != nil {
		return err
	}
	if err := store.Recover(ctx, dir); err != nil {
		return err
	}
	found, hold, err := image.Use(dir, name)
	if err != nil {
		return imageProblem(err)
	}
	defer hold.Close()
	if c.Bool("json") {
		return printJSON(struct {
			*image.Image
			Root string `json:"root"`
		}{found, found.Root(dir)})
	}
	describeImage(found, dir)
	return nil
}

// imageProblem adds what mends it.
func imageProblem(err error) error {
	if errors.As(err, new(*image.MissingError)) {
		return &misuse{err.Error(), "clai-sandbox image list lists them"}
	}
	return err
}

func describeImage(i *image.Image, dir string) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(what, format string, values ...any) { fmt.Fprintf(table, what+"\t"+format+"\n", values...) }
	row("image", "%s", i.Name)
	row("from", "%s", text.Value(i.Source))
	if i.Digest != "" {
		row("digest", "%s", text.Value(i.Digest))
	}
	row("imported", "%s", time.UnixMilli(i.Made).Format(time.RFC3339))
	row("entries", "%d, %s, in %d layers", i.Entries, sizeOf(i.Bytes), len(i.Layers))
	if i.Architecture != "" {
		row("for", "%s", text.Value(i.Architecture))
	}
	if i.Path != "" {
		row("$PATH", "%s", text.Value(i.Path))
	}
	row("owners", "not kept: all files are of user %d", os.Getuid())
	rights(table, "rights taken off", i.Privileged, "setuid, setgid or capabilities")
	rights(table, "left out", i.LeftOut, "devices and FIFOs")
	row("directory", "%s", text.Value(i.Root(dir)))
	table.Flush()
}

func rights(table *tabwriter.Writer, what string, some image.Some, kind string) {
	if some.Count == 0 {
		return
	}
	names := strings.Join(some.First, " ")
	if some.Count > len(some.First) {
		names += " …"
	}
	fmt.Fprintf(table, "%s\t%d (%s): %s\n", what, some.Count, kind, names)
}

func removeImage(ctx context.Context, c *cli.Context, dir string) error {
	name, err := oneArgument(c, "NAME")
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Close()
	return imageProblem(s.Remove(name))
}
