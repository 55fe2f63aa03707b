package protect

import "testing"

func TestWhichRefsStandInTheWayOfAnObject(t *testing.T) {
	const id = "1a2b3c4d5e6f70819293a4b5c6d7e8f901234567"
	other := "f" + id[1:]
	for _, c := range []struct {
		path, text   string
		there, stray bool
	}{
		{"/r/.git/refs/heads/1a2b3c4", other, false, true},
		{"/r/.git/refs/heads/1a2b3c4", id, true, false},
		{"/r/.git/refs/heads/1A2B3C4", other, false, true},
		{"/r/.git/refs/tags/v1-3-g1a2b3c4", other, false, true},
		{"/r/.git/refs/tags/v1-3-g1a2b3c4", id, false, false},
		{"/r/.git/refs/remotes/1a2b3c4/HEAD", other, false, true},
		{"/r/.git/refs/remotes/1a2b3c4/main", other, true, false},
		{"/r/.git/refs/heads/x/1a2b3c4", other, true, false},
		{"/r/.git/refs/heads/1a2b", other, true, true},
		{"/r/.git/refs/heads/1a2b", other, false, false},
		{"/r/.git/refs/heads/cafe", other, true, false},
		{"/r/.git/refs/heads/2024", other, true, false},
		{"/r/.git/refs/heads/20241123", other, false, false},
		{"/r/.git/refs/heads/20241123", other, true, true},
		{"/r/.git/refs/heads/abc", other, true, false},
		{"/r/.git/refs/heads/1a2b3c4.lock", other, true, false},
		{"/r/.git/refs/heads/" + id, other, true, false}, // git takes the object
		{"/r/.git/main", other, false, true},
		{"/r/.git/main", "ref: refs/heads/x", false, true},
		{"/r/.git/main", "a text", false, false},
		{"/r/.git/ORIG_HEAD", other, true, false},
		{"/r/.git/opencode", other, false, false},
		{"/r/.git/opencode", other, true, true}, // a branch is called so
		{"/r/.git/opencode", "ref: refs/heads/x", false, true},
		{"/r/.git/refs/opencode", other, false, true},
		{"/r/.git/shallow_aB3x9Z", other, true, false},
		{"/r/.git/shallow_branch", other, true, false},
		{"/r/.git/shallow_branches", other, true, true},
		{"/r/.git/modules/a/b/main", other, false, true},
		{"/r/.git/modules/a/b/logs/main", other, false, false},
		{"/r/.git/worktrees/w/main", other, false, true},
		{"/r/x.git/main", other, false, true},
		{"/r/.git/refs/stash", other, false, false},
		{"/r/.git/refs/main", other, false, true},
		{"/r/.git/logs/refs/main", other, false, false},
		{"/r/src/main", other, true, false},
	} {
		if is := StrayRef(c.path, c.text+"\n", func(string) bool { return c.there }, func(string) bool { return c.there }) != ""; is != c.stray {
			t.Errorf("%s %s: %v", c.path, c.text, is)
		}
	}
}
