package profile

import (
	"fmt"
	"path/filepath"
	"strings"
)

// HostImage is the word for no image: the host's own system.
const HostImage = "host"

// CheckImage refuses a name that cannot be an image's: it stands in paths and on terminals.
func CheckImage(name string) error {
	err := CheckAgent(name)
	if err != nil || name[0] == '.' || name[0] == '-' || name == HostImage {
		return fmt.Errorf("image %s: a name is 1 to 64 of A-Z a-z 0-9 . _ -, begins with none of . and -, and is not %s", shorten(name), HostImage)
	}
	return nil
}

// imageChoice is an image that CheckImage takes, with ":cow" behind it or not, or HostImage.
type imageChoice struct {
	name string
	cow  bool
}

func (c *imageChoice) UnmarshalText(text []byte) error {
	c.name, c.cow = strings.CutSuffix(string(text), ":cow")
	if !c.cow {
		c.name = strings.TrimSuffix(c.name, ":ro")
	}
	if string(text) == HostImage {
		return nil
	}
	return CheckImage(c.name)
}

// Images is the directory of all that has to do with images.
func (d Directories) Images() string { return filepath.Join(d.State, "images") }

// resolveImage says what stands in place of the host's system.
func (p *Profile) resolveImage(settings executionConfig, caller Caller, r Request) error {
	var choice imageChoice
	if s := settings.Sandbox.Image; s != nil {
		choice = *s
	}
	if r.Image != "" {
		if err := choice.UnmarshalText([]byte(r.Image)); err != nil {
			return fmt.Errorf("--image: %w", err)
		}
	}
	if choice.name != "" && choice.name != HostImage {
		p.Image, p.ImageAccess, p.Images = choice.name, ReadOnly, caller.Directories().Images()
		if choice.cow {
			p.ImageAccess = CopyOnWrite
		}
	}
	return nil
}
