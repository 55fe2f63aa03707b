package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/written"
)

// A link that another agent's command made, in a directory that this one never writes, leads this
// one nowhere.
func TestALinkThatAnyCommandCouldMakeLeadsNoGrantAnywhere(t *testing.T) {
	for name, prepare := range map[string]func(h *host, other string) string{
		"in its workspace": func(h *host, other string) string { return other + "/data" },
		"in a directory below": func(h *host, other string) string {
			return other + "/a/b/data"
		},
		"above what is granted": func(h *host, other string) string { return other + "/data/keys" },
		"in a workspace that was renamed": func(h *host, other string) string {
			if err := os.Rename(other, other+"-renamed"); err != nil {
				h.t.Fatal(err)
			}
			return other + "-renamed/data"
		},
		"in one that was made again": func(h *host, other string) string {
			if err := os.Rename(other, other+"-gone"); err != nil {
				h.t.Fatal(err)
			}
			h.symlink(h.profile.Home+"/.ssh", h.mkdir(other)+"/data")
			return other + "/data"
		},
		"in one that was copied on write": func(h *host, other string) string { return other + "-cow/data" },
		"in one that was granted live":    func(h *host, other string) string { return other + "-live/data" },
		"where the list cannot be read": func(h *host, other string) string {
			h.write(h.profile.Written, "what is this\n")
			return other + "/data"
		},
	} {
		t.Run(name, func(t *testing.T) {
			needMounts(t)
			t.Parallel()
			h := newHost(t)
			secret := h.mkdir(h.profile.Home + "/.ssh")
			h.write(secret+"/keys/id", "secret\n")
			h.profile.Hidden = []profile.HiddenPath{{Path: secret}}
			other := h.mkdir(h.outside() + "/other")
			mine := h.profile

			h.profile.Agent, h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Layers = "other", other, other, h.profile.Home+"/.local/state/clai-sandbox/layers/other"
			h.profile.Grants = []profile.Grant{
				{Path: other, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}},
				{Path: h.mkdir(other + "-cow"), Access: profile.CopyOnWrite, Origin: profile.Origin{Kind: profile.OriginConfig}},
			}
			h.run("/bin/sh", "-c", "mkdir -p a/b; ln -s "+secret+" data; ln -s "+secret+" a/b/data")
			h.symlink(secret, other+"-cow/data") // as "changes apply" does it
			if name == "in one that was granted live" {
				s := h.liveShell()
				h.grant(h.mkdir(other+"-live"), profile.ReadWrite)
				s.show()
				s.expect("ln -s "+secret+" "+other+"-live/data; echo", "")
				s.in.Close()
			}
			path := prepare(h, other)

			h.profile = mine
			for _, access := range []profile.Access{profile.ReadOnly, profile.ReadWrite} {
				h.profile.Grants = append(slices.Clone(mine.Grants), profile.Grant{Path: path, Access: access, Origin: profile.Origin{Kind: profile.OriginConfig}})
				plan := h.build()
				if got := plan.access(secret); got != profile.NoAccess {
					t.Errorf("%s is %v", secret, got)
				}
				want := "is a symbolic link where commands could write, so one of them may have made it; if it is yours, grant what it leads to: " + secret
				if text := fmt.Sprint(plan.Notices); !strings.Contains(text, want) {
					t.Errorf("%s\nwants %s", text, want)
				}
			}
		})
	}
}

// The person's own links, where no command could write, lead where they lead.
func TestThePersonsLinksLeadWhereTheyLead(t *testing.T) {
	h := newHost(t)
	h.run("/bin/true") // in the workspace
	real := h.mkdir(h.outside() + "/real")
	h.symlink(real, h.profile.Home+"/link")
	h.grant(h.profile.Home+"/link", profile.ReadWrite)
	plan := h.build()
	if got := plan.access(real); got != profile.ReadWrite {
		t.Errorf("%v", got)
	}
}

func TestManyDirectoriesThatCouldBeWrittenBecomeFewer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", profile.WrittenName)
	base := t.TempDir()
	var many, some []string
	for i := range 3 * maxWritten {
		many = append(many, fmt.Sprintf("%s/many/%d", base, i))
	}
	some = append(some, base+"/some/1", base+"/some/2")
	for _, dir := range append(many, some...) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := addWritten(file, append(many, some...)); err != nil {
		t.Fatal(err)
	}
	list, err := written.Read(file)
	if err != nil || len(list) != 3 {
		t.Fatalf("%v %d", err, len(list))
	}
	for path, want := range map[string]bool{many[5]: true, some[0] + "/x": true, base + "/some": false, base + "/else": false} {
		if got := list.Holds(path, written.OnDisk); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// A command that makes very long paths keeps nobody from running.
func TestTheListOfWhatCouldBeWrittenStaysShort(t *testing.T) {
	var list written.List
	for i := range maxWritten {
		list = append(list, written.Directory{Device: 1, Inode: uint64(i), Path: "/w/" + strings.Repeat("\xe9", 2000) + fmt.Sprintf("/%d", i)})
	}
	if text := fewer(list).Text(); len(text) > written.MaxSize/2 {
		t.Errorf("%d bytes", len(text))
	}
	h := gitHost(t)
	h.repository(h.profile.Workspace + "/a/b/c")
	h.run("/bin/true")
	if text, err := os.ReadFile(h.profile.Written); err != nil || strings.Contains(string(text), "/a") {
		t.Errorf("it names what lies in the workspace: %v %s", err, text)
	}
}
