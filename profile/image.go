package profile

import (
	"fmt"
	"path/filepath"
)

// HostImage is the word for no image: what the host has.
const HostImage = "host"

// CheckImage refuses a name that cannot be an image's: it stands in paths and on terminals.
func CheckImage(name string) error {
	err := CheckAgent(name)
	if err != nil || name[0] == '.' || name[0] == '-' || name == HostImage {
		return fmt.Errorf("image %s: a name is 1 to 64 of A-Z a-z 0-9 . _ -, begins with none of . and -, and is not %s", shorten(name), HostImage)
	}
	return nil
}

// Images is the directory of all that has to do with images.
func (d Directories) Images() string { return filepath.Join(d.State, "images") }
