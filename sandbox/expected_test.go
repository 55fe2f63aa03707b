package sandbox

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// allow adds a grant as a person's approval would: for the object that is there now.
func (h *host) allow(path string) {
	h.t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		h.t.Fatal(err)
	}
	file, err := descriptor.Pin(real)
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	object, err := profile.ObjectOf(int(file))
	if err != nil {
		h.t.Fatal(err)
	}
	h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: path, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginApproval, Source: "grant g1"},
		Expected: &profile.Expected{Path: real, Device: object.Device, Inode: object.Inode, Born: object.Born, Handle: object.Handle}})
}

func TestAnApprovalShowsTheObjectThatWasAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		before, between func(t *testing.T, path, other string)
		shown           bool
	}{
		"as it was": {shown: true},
		"a link elsewhere, before the plan": {before: func(t *testing.T, path, other string) {
			os.Rename(path, path+".old")
			os.Symlink(other, path)
		}},
		"a link elsewhere, after the plan": {between: func(t *testing.T, path, other string) {
			os.Rename(path, path+".old")
			os.Symlink(other, path)
		}},
		"another object, before the plan": {before: func(t *testing.T, path, other string) {
			os.Rename(path, path+".old")
			os.Rename(other, path)
		}},
		"another object, that got the number of its inode": {before: func(t *testing.T, path, other string) {
			inode := func() uint64 {
				var stat unix.Stat_t
				if err := unix.Stat(path, &stat); err != nil {
					t.Fatal(err)
				}
				return stat.Ino
			}
			allowed := inode()
			for range 100 { // ext4 gives the number out again, to whoever comes next
				os.RemoveAll(path)
				if err := os.Mkdir(path, 0o755); err != nil {
					t.Fatal(err)
				}
				if inode() == allowed {
					os.Rename(other+"/file", path+"/file")
					return
				}
			}
			t.Skip("this file system gives no number out again")
		}},
		"another object, after the plan": {between: func(t *testing.T, path, other string) {
			os.Rename(path, path+".old")
			os.Rename(other, path)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.profile.Grants = h.profile.Grants[1:] // without the home
			dir := newDirectory(t)
			h.write(dir+"/allowed/file", "allowed")
			h.write(dir+"/other/file", "secret")
			h.allow(dir + "/allowed")
			if c.before != nil {
				c.before(t, dir+"/allowed", dir+"/other")
			}
			plan := h.build()
			if c.between != nil {
				c.between(t, dir+"/allowed", dir+"/other")
			}
			r := h.runPlan(plan, "/bin/sh", "-c", "cat "+dir+"/allowed/file")
			if r.Failure != nil {
				t.Fatal(r.Failure)
			}
			if (r.Out == "allowed") != c.shown || strings.Contains(r.Out, "secret") {
				t.Errorf("%q, %q", r.Out, r.Err)
			}
			if notices := r.Notices; (len(notices) == 0) != c.shown {
				t.Errorf("%+v", notices)
			}
		})
	}
}

// What was allowed before it was there has no object yet, but a place.
func TestAnApprovalOfWhatWasNotThereFollowsNoLink(t *testing.T) {
	h := newHost(t)
	h.profile.Grants = h.profile.Grants[1:]
	dir := newDirectory(t)
	h.write(dir+"/other/file", "secret")
	h.symlink("other", dir+"/new")
	h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: dir + "/new", Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginApproval},
		Expected: &profile.Expected{Path: dir + "/new"}})
	r := h.run("/bin/sh", "-c", "cat "+dir+"/new/file "+dir+"/other/file 2>/dev/null; true")
	if r.Failure != nil || r.Out != "" || len(r.Notices) != 1 {
		t.Errorf("%q, %v, %+v", r.Out, r.Failure, r.Notices)
	}
}

// TestAnApprovalIsNeverRacedIntoAnotherObject swaps the directory that was allowed with another one
// and with a link, as fast as it can, while sandboxes start.
func TestAnApprovalIsNeverRacedIntoAnotherObject(t *testing.T) {
	h := newHost(t)
	h.profile.Grants = h.profile.Grants[1:]
	dir := newDirectory(t)
	h.write(dir+"/allowed/file", "allowed")
	h.write(dir+"/other/file", "secret")
	h.symlink("other", dir+"/link")
	h.allow(dir + "/allowed")
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		exchange := func(a, b string) { unix.Renameat2(unix.AT_FDCWD, dir+a, unix.AT_FDCWD, dir+b, unix.RENAME_EXCHANGE) }
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, with := range []string{"/other", "/link"} {
				exchange("/allowed", with)
				runtime.Gosched()
				exchange("/allowed", with)
				syscall.Getpid() // as long as it was away
			}
		}
	})
	defer swapping.Wait()
	defer close(stop)
	shown, failed := 0, 0
	for range 60 {
		plan, err := Build(h.profile, h.tree)
		if err != nil {
			t.Fatal(err)
		}
		r := h.runPlan(plan, "/bin/sh", "-c", "cat "+dir+"/allowed/file 2>/dev/null; cat "+dir+"/other/file 2>/dev/null; true")
		if r.Failure != nil { // bwrap gives up on a mount that moves under its hands, and nothing is run
			failed++
		}
		if strings.Contains(r.Out, "secret") {
			t.Fatalf("the sandbox shows what nobody allowed: %q", r.Out)
		}
		if r.Out == "allowed" {
			shown++
		}
	}
	t.Logf("of 60 runs %d showed it, %d were not made", shown, failed)
}
