package delegated

import (
	"time"

	"github.com/urfave/cli/v2"
)

// DefaultImageTime is how long an import may take where nobody says.
const DefaultImageTime = 30 * time.Minute

// Image is the command that keeps the images of run --image.
func Image(do Actions, usageError cli.OnUsageErrorFunc) *cli.Command {
	sub := func(name, usage, arguments, description string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags,
			OnUsageError: usageError, HideHelpCommand: true, Action: do(name)}
	}
	bounds := []cli.Flag{
		&cli.StringFlag{Name: "max-size", Value: "8GiB", DefaultText: "8GiB", Usage: "take at most `SIZE` of files, and of what archives are when they are unpacked"},
		&cli.IntFlag{Name: "max-entries", Value: 1_000_000, DefaultText: "1000000", Usage: "take at most `N` files and directories"},
		&cli.DurationFlag{Name: "timeout", Value: DefaultImageTime, DefaultText: DefaultImageTime.String(), Usage: "give up after `DURATION`"},
	}
	return &cli.Command{
		Name:  "image",
		Usage: "keep images: root file systems for run --image, in place of the host's",
		Description: "An image is imported from an archive of a root file system (tar, also compressed by gzip, zstd or bzip2), an OCI image layout,\n" +
			"or a directory. All its files belong to whoever imports it; setuid and setgid bits, capabilities and devices are left out.\n" +
			"An import that does not come to its end leaves nothing.",
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          do(""),
		Subcommands: []*cli.Command{
			sub("import", "make an image of an archive, an OCI layout or a directory", "SOURCE NAME", "", append(bounds, jsonFlag())...),
			sub("build-base", "make an image of a Debian system, by mmdebstrap or debootstrap", "NAME",
				"One of the two programs has to be installed; debootstrap works for root alone.",
				append([]cli.Flag{
					&cli.StringFlag{Name: "suite", Value: "bookworm", DefaultText: "bookworm", Usage: "of the release `SUITE`"},
					&cli.StringFlag{Name: "mirror", Value: "http://deb.debian.org/debian", DefaultText: "http://deb.debian.org/debian", Usage: "from the archive at `URL`"},
					&cli.StringSliceFlag{Name: "include", KeepSpace: true, Usage: "with `PACKAGE`; may be repeated"},
				}, append(bounds, jsonFlag())...)...),
			sub("list", "list the images", "", "", jsonFlag()),
			sub("show", "show what an image is, and what was left out of it", "NAME", "", jsonFlag()),
			sub("remove", "remove an image, with the layers that no other has", "NAME", "An image that a sandbox uses is not removed."),
		},
	}
}
