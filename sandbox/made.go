package sandbox

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/whole"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// A repository that a command made is the commands' own until a person, or anything else outside,
// uses it for something that git writes down. Until then the next command may do with it what the
// first one could, as to remove it: the watch looks after it as after any that comes into being.
// From then on its settings and hooks are the person's, and read-only.

const (
	madeName    = "repositories" // beside the account of what could be written
	maxMadeFile = 64 << 10
	madeLength  = 64
)

// madeBefore are the repositories that commands made, as they were when those had ended.
func (b *builder) madeBefore() map[string]bool {
	switch b.host().(type) {
	case Host, *Lookout:
	default:
		return nil
	}
	if b.profile.Written == "" || b.profile.ProtectMode == profile.ProtectStrict {
		return nil
	}
	made := map[string]bool{}
	for _, is := range readMade(filepath.Dir(b.profile.Written)) {
		made[is] = true
	}
	return made
}

func readMade(state string) []string {
	text, err := readUpTo(filepath.Join(state, madeName), maxMadeFile)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(text), func(is string) bool { return len(is) != madeLength })
}

// isMade reports whether a repository is as a command left it.
func (b *builder) isMade(path string) bool {
	if b.again != nil {
		return b.again.made[path]
	}
	if len(b.made) == 0 || !b.made[protect.Made(path)] {
		return false
	}
	b.protection.made[path] = true
	return true
}

// rememberMade adds to them. The oldest go. What is lost is protected as the person's.
func rememberMade(state string, made []string) {
	if state == "" || len(made) == 0 {
		return
	}
	list := readMade(state)
	list = append(slices.DeleteFunc(list, func(is string) bool { return slices.Contains(made, is) }), made...)
	list = list[max(0, len(list)-maxMadeFile/(madeLength+1)):]
	whole.Write(filepath.Join(state, madeName), madeName, []byte(strings.Join(list, "\n")+"\n"))
}
