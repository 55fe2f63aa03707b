package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lies are shell functions that put another content in the place of an object: git does not look
// when it reads one. O is the object's name, V the other content's, P the first one's path in
// .git/objects.
const lies = `path() { echo .git/objects/$(echo $1 | sed 's,..,&/,'); }
O=$(git rev-parse HEAD:file); P=$(path $O); V=$(echo evil | git hash-object -w --stdin); L=$(path $V)
packed() { git cat-file blob $O > /tmp/f; git repack -adq; git prune-packed; test ! -e $P; }
lyingPack() { python3 -c 'import sys, struct, zlib, hashlib
name, to = bytes.fromhex(sys.argv[1]), sys.argv[2]
pack = b"PACK" + struct.pack(">II", 2, 1) + bytes([3 << 4 | 5]) + zlib.compress(b"evil\n")
end = hashlib.sha1(pack).digest()
index = b"\xfftOc" + struct.pack(">I", 2) + b"".join(struct.pack(">I", int(i >= name[0])) for i in range(256)) + name + b"\0" * 4 + struct.pack(">I", 12) + end
open(to + ".pack", "wb").write(pack + end); open(to + ".idx", "wb").write(index + hashlib.sha1(index).digest())' $O $1; }
`

// git shows and takes what is in a file for what the file's name says: a commit that the person
// knows would bring what a command wrote.
func TestObjectsThatAreNotWhatTheirNamesSayAreSetAside(t *testing.T) {
	needProgram(t, "python3")
	for name, c := range map[string]struct{ inside, told string }{
		"a loose object":               {`cp -f $L $P`, "/objects/"},
		"one written in its place":     {`chmod 644 $P; cat $L > $P; touch -d 2001-01-01 $P`, "/objects/"},
		"one that is mapped":           {`chmod 644 $P; python3 -c 'import mmap, os, sys; t = open(sys.argv[1], "rb").read(); f = open(sys.argv[2], "r+b"); f.truncate(len(t)); mmap.mmap(f.fileno(), 0)[:] = t' $L $P`, "/objects/"},
		"one with another name":        {`ln $P .git/x; chmod 644 .git/x; cat $L > .git/x`, "/objects/"},
		"one whose directory moves":    {`mkdir -p o/${O%??????????????????????????????????????}; cp $L o/${P#.git/objects/}; mv $(dirname $P) old; mv $(dirname o/${P#.git/objects/}) .git/objects`, "/objects/"},
		"a pack beside the object":     {`rm -f $P; lyingPack .git/objects/pack/pack-x`, "/objects/pack/"},
		"a pack with dots":             {`rm -f $P; lyingPack .git/objects/pack/a.b`, "/objects/pack/"},
		"another index of the pack":    {`lyingPack /tmp/x; packed; for p in .git/objects/pack/*.pack; do cp -f /tmp/x.idx ${p%.pack}.idx; cp -f /tmp/x.pack $p; done`, "/objects/pack/"},
		"an offset in the index":       {`rm -f $P; lyingPack .git/objects/pack/pack-x; python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(1032); f.write(bytes.fromhex(sys.argv[2]))' .git/objects/pack/pack-x.idx $O`, "/objects/pack/"},
		"objects elsewhere":            {`rm -f $P; mkdir lies lies/pack; lyingPack lies/pack/pack-x; echo $PWD/lies > .git/objects/info/alternates`, "alternates"},
		"objects elsewhere, by path":   {`rm -f $P; mkdir -p objects/pack; lyingPack objects/pack/pack-x; echo ../../objects > .git/objects/info/alternates`, "/objects/pack/"},
		"objects elsewhere, quoted":    {`rm -f $P; mkdir -p evil/pack; lyingPack evil/pack/pack-x; printf '"%s"/../%s../objects\n' $PWD/evil $(echo $PWD/evil | sed 's,[^/]*,..,g;s,^../,,')/ > .git/objects/info/alternates`, "alternates"},
		"objects of another workspace": {`echo $HOME/other/objects > .git/objects/info/alternates`, "alternates"},
		"objects beyond a link":        {`rm -f $P; mkdir -p x/y x/objects d evil/pack; ln -s ../x/y d/l; ln -s objects x/s; ln -s ../evil d/s; lyingPack evil/pack/pack-x; echo $PWD/d/l/../s > .git/objects/info/alternates`, "alternates"},
		"a large file of git-lfs":      {`f=.git/lfs/objects/aa/bb/aabb$(printf %060d 0); mkdir -p $(dirname $f); echo evil > $f; h=$(sha256sum < file | cut -c1-64); g=.git/lfs/objects/$(echo $h | sed 's,\(..\)\(..\).*,\1/\2,')/$h; mkdir -p $(dirname $g); cp file $g`, "/lfs/objects/aa/bb/"},
		"git replace, behind a tab":    {`printf '%s\trefs/replace/%s\n' $V $O >> .git/packed-refs`, "refs/replace"},
		"git replace":                  {`git replace $O $V || test ! -e .git/refs/replace/$O`, "refs/replace"},
		"git replace, in packed-refs":  {`git replace $O $V || true; echo "$V refs/replace/$O" >> .git/packed-refs`, "refs/replace"},
		"another filter":               {`echo '* !filter' > .git/info/attributes`, "info/attributes"},
		"a parent of a commit":         {`git commit -q --allow-empty -m x; git rev-parse HEAD > .git/info/grafts`, "grafts"},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				work := h.profile.Workspace
				if err := addWritten(h.profile.Written, []string{h.mkdir(h.profile.Home + "/other/objects")}); err != nil {
					t.Fatal(err)
				}
				r := h.run("/bin/sh", "-ec", lies+c.inside)
				if r.Failure != nil || r.ExitCode != 0 || !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Path+n.Text, c.told) && n.Kind == NoticeProtected }) {
					t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
				}
				if kept, _ := filepath.Glob(work + "/.git/lfs/objects/*/*/*"); strings.Contains(name, "lfs") && len(kept) != 1 {
					t.Errorf("of git-lfs's, there are %q", kept)
				}
				cmd := exec.Command("git", "show", "HEAD:file", "HEAD")
				cmd.Dir, cmd.Env = work, h.gitEnvironment()
				if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "evil") {
					t.Errorf("git shows what the command wrote: %s", out)
				}
			})
		}
	}
}

// What git makes of objects it believes, too, and makes again.
func TestWhatGitMakesOfObjectsIsRemoved(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	objects := work + "/.git/objects"
	h.git(work, "repack", "-adqb")
	h.git(work, "commit-graph", "write")
	h.git(work, "multi-pack-index", "write", "--bitmap")
	made := func() (list []string) {
		for _, pattern := range []string{"info/commit-graph", "pack/multi-pack-index", "pack/*.bitmap"} {
			found, _ := filepath.Glob(objects + "/" + pattern)
			list = append(list, found...)
		}
		return list
	}
	waitUntil(t, "the clock has moved on", func() bool {
		var stat unix.Stat_t
		return unix.Stat(objects+"/pack/multi-pack-index", &stat) == nil && time.Since(time.Unix(stat.Ctim.Unix())) > 50*time.Millisecond
	})
	h.sh("git status; git cat-file -p HEAD; echo a > a; git add a; git commit -qm a")
	if before := made(); len(before) != 4 {
		t.Errorf("%q are left of what nobody changed", before)
	}
	h.sh("for f in .git/objects/info/commit-graph .git/objects/pack/multi-pack-index* .git/objects/pack/*.bitmap; do cp $f x; mv -f x $f; done")
	if after := made(); len(after) > 0 {
		t.Errorf("left: %q", after)
	}
	const lists = "/pack/multi-pack-index.d"
	h.sh("mkdir .git/objects" + lists + "; echo x > .git/objects" + lists + "/multi-pack-index-chain; echo x > .git/objects" + lists + "/multi-pack-index-" + strings.Repeat("0", 40) + ".midx")
	if left, _ := filepath.Glob(objects + lists + "/*"); len(left) > 0 {
		t.Errorf("left of lists that are made of others: %q", left)
	}
	h.write(objects+lists+"/multi-pack-index-chain", "x") // one of the person's
	h.git(work, "multi-pack-index", "write")
	h.sh("for f in .git/objects/pack/*.pack; do cp $f x; mv -f x $f; done")
	if left, _ := filepath.Glob(objects + lists + "/*"); len(made())+len(left) > 0 {
		t.Errorf("left beside another pack: %q %q", made(), left)
	}
	h.git(work, "fsck", "--strict")
}

func TestGitGoesOnWithItsObjects(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict=%v", strict), func(t *testing.T) {
			needMounts(t)
			t.Parallel()
			h := gitHost(t)
			if strict {
				h.strict()
			}
			r := h.run("/bin/sh", "-ec", `seq 20000 > big; git add big; git commit -qm big; for i in 1 2 3; do echo $i >> big; git commit -qam $i; done; git gc -q; git repack -adfq --depth=20
git clone -q --no-hardlinks . a; git clone -q . b; git clone -q --shared . c; git clone -q --reference . --mirror . d.git; git clone -q --depth 1 file://$PWD e; git -C e fetch -q --unshallow
git bundle create -q f HEAD; git clone -q f g; git -C a -c pack.indexVersion=1 repack -adq; rm -f a/.git/objects/pack/*.rev
git init -q --object-format=sha256 h; cd h; cp ../big .; git add big; git commit -qm x; echo y >> big; git commit -qam y; git gc -q; git pack-refs --all; cd ..
git -c uploadpack.allowFilter=true clone -q --filter=blob:none file://$PWD i; git commit-graph write; git multi-pack-index write; git worktree add -q wt; git -C wt commit -q --allow-empty -m wt; rm -rf g`)
			if r.Failure != nil || r.ExitCode != 0 || slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Path, "/objects") }) {
				t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
			}
			t.Logf("told: %v", r.Notices)
			for _, repository := range []string{".", "a", "b", "c", "d.git", "e", "h", "wt"} {
				h.git(h.profile.Workspace+"/"+repository, "fsck", "--strict")
			}
		})
	}
}

// "git merge origin/main" takes a tag, or a branch, that is called so.
func TestBranchesAndTagsThatAreCalledAsARemotesAreSetAside(t *testing.T) {
	for name, inside := range map[string]string{
		"a tag":               "git tag origin/main",
		"a branch":            "git branch origin/main; git branch mine/main",
		"both, packed":        "git tag origin/main; git branch origin/main; git branch mine/x; git pack-refs --all",
		"one that is written": `rm -f .git/refs/remotes/origin/*; printf '%s refs/heads/origin/main\n%s refs/tags/origin/main\n^%s\n' $(git rev-parse main main main) >> .git/packed-refs`,
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				work := h.profile.Workspace
				h.git(work, "update-ref", "refs/remotes/origin/main", "HEAD")
				h.git(work, "pack-refs", "--all")
				h.git(work, "update-ref", "refs/remotes/origin/HEAD", "HEAD")
				h.git(work, "branch", "ours/x")
				h.git(work, "commit", "-q", "--allow-empty", "-m", "ours")
				r := h.run("/bin/sh", "-ec", "git branch -f ours/x; git tag v1; git commit -q --allow-empty -m evil; "+inside)
				if r.Failure != nil || r.ExitCode != 0 || !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "origin") }) {
					t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
				}
				if is, want := h.git(work, "rev-parse", "origin/main"), h.git(work, "rev-parse", "main~2"); is != want {
					t.Errorf("origin/main is %s, not %s", is, want)
				}
				if refs := h.git(work, "for-each-ref", "--format=%(refname)", "refs/heads/ours", "refs/heads/mine", "refs/tags/v1"); strings.Contains(inside, "mine") != strings.Contains(refs, "mine/") || !strings.Contains(refs, "v1") || !strings.Contains(refs, "ours/x") {
					t.Errorf("of the others, there are %s", refs)
				}
			})
		}
	}
}

func TestObjectsOfAKilledLaunchersCommandAreSetAsideByTheNextRun(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	cmd := h.launch("/bin/sh", "-c", "echo ready; sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	name := strings.TrimSpace(h.git(work, "rev-parse", "HEAD:file"))
	path := filepath.Join(work, ".git/objects", name[:2], name[2:])
	other := strings.TrimSpace(h.git(work, "rev-parse", "HEAD"))
	text, _ := os.ReadFile(filepath.Join(work, ".git/objects", other[:2], other[2:]))
	os.Chmod(path, 0o644)
	h.write(path, string(text))
	if notices := Sweep(h.launcher.State); !slices.ContainsFunc(notices, func(n Notice) bool { return n.Path == path }) {
		t.Errorf("it is not told: %v", notices)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("it is still there")
	}
}

// In a session they are looked through when a call has ended, and again if another one writes them
// later.
func TestASessionSetsObjectsAsideThatAreNotWhatTheirNamesSay(t *testing.T) {
	needProgram(t, "python3")
	h := gitHost(t)
	s := h.openSession()
	object := h.git(h.profile.Workspace, "rev-parse", "HEAD:file")
	path := filepath.Join(h.profile.Workspace, ".git/objects", object[:2], strings.TrimSpace(object[2:]))
	for range 2 {
		if out, r := s.sh(t, "git hash-object -w file; "+strings.Replace(lies, "HEAD:file", strings.TrimSpace(object), 1)+"cp -f $L $P; git cat-file blob $O"); r.ExitCode != 0 || !strings.Contains(out, "evil") {
			t.Fatalf("%d %s", r.ExitCode, out)
		}
		s.Settle()
		if notices := s.News(); !slices.ContainsFunc(notices, func(n Notice) bool { return n.Path == path }) {
			t.Errorf("it is not told: %v", notices)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("it is still there")
		}
	}
	s.Close()
}

// A line that does not change leads elsewhere when a link on its way does.
func TestALinkLeadsToNoObjectsThatAnotherCommandWrote(t *testing.T) {
	needProgram(t, "python3")
	for name, c := range map[string]struct{ first, then string }{
		"another link":     {"mkdir -p d/objects; ln -s d l; echo $PWD/l/objects > .git/objects/info/alternates", "ln -sfn ../other l"},
		"a link of a link": {"mkdir -p d/objects e; ln -s ../d e/l; ln -s e l; echo ../../l/l/objects > .git/objects/info/alternates", "mkdir f; ln -s ../../other f/l; ln -sfn f l"},
	} {
		t.Run(name, func(t *testing.T) {
			needMounts(t)
			t.Parallel()
			h := gitHost(t)
			work, other := h.profile.Workspace, h.mkdir(h.profile.Home+"/other")
			if err := addWritten(h.profile.Written, []string{other}); err != nil {
				t.Fatal(err)
			}
			h.sh(c.first)
			cmd := exec.Command("sh", "-ec", lies+"mkdir -p "+other+"/store/pack; ln -s store "+other+"/objects; lyingPack "+other+"/store/pack/pack-x") // another workspace's command
			cmd.Dir, cmd.Env = work, h.gitEnvironment()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			r := h.run("/bin/sh", "-ec", "O=$(git rev-parse HEAD:file); rm -f .git/objects/$(echo $O | sed 's,..,&/,'); "+c.then)
			if r.Failure != nil || r.ExitCode != 0 {
				t.Errorf("%v %d %s", r.Failure, r.ExitCode, r.Err)
			}
			cmd = exec.Command("git", "show", "HEAD:file", "HEAD")
			cmd.Dir, cmd.Env = work, h.gitEnvironment()
			if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "evil") {
				t.Errorf("git shows what the command wrote: %s %v", out, r.Notices)
			}
		})
	}
}

// A clone that shares the objects of a repository that no command could write goes on, inside and
// outside.
func TestACloneThatSharesObjectsGoesOn(t *testing.T) {
	for _, strict := range []bool{false, true} {
		h := gitHost(t)
		h.repository(h.profile.Home + "/o")
		if strict {
			h.strict()
		}
		r := h.run("/bin/sh", "-ec", "git clone -qs $HOME/o c; git -C c log -1; echo x > c/x; git -C c add x; git -C c commit -qm x")
		if r.Failure != nil || r.ExitCode != 0 || len(r.Notices) > 0 {
			t.Errorf("%v %s %v", r.Failure, r.Err, r.Notices)
		}
		h.git(h.profile.Workspace+"/c", "fsck", "--strict")
	}
}
