package grants

import (
	"os"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func TestAGrantKnowsWhatBecameOfItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, path string)
		want   Condition
	}{
		"nothing":                     {func(*testing.T, string) {}, Intact},
		"other content":               {func(t *testing.T, path string) { os.WriteFile(path, []byte("other"), 0o600) }, Intact},
		"gone":                        {func(t *testing.T, path string) { os.Remove(path) }, Missing},
		"another file in its place":   {func(t *testing.T, path string) { write(t, path+".new", ""); os.Rename(path+".new", path) }, Changed},
		"a link in its place":         {func(t *testing.T, path string) { os.Remove(path); link(t, "/etc/passwd", path) }, Changed},
		"a link to nothing":           {func(t *testing.T, path string) { os.Remove(path); link(t, "nowhere", path) }, Changed},
		"a link that goes in circles": {func(t *testing.T, path string) { os.Remove(path); link(t, path, path) }, Missing},
	} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t)
			path := home + "/dir/file"
			write(t, path, "")
			place := ask(t, testRules(home), path, profile.ReadOnly).Place
			g := Grant{Path: place.Typed, Resolved: place.Resolved, Object: place.Object}
			c.change(t, path)
			if _, got, why := g.Check(); got != c.want || (why == "") != (got == Intact) {
				t.Errorf("%v (%s), want %v", got, why, c.want)
			}
		})
	}
}

// What was granted before it was there is the first that comes to stand there.
func TestAGrantOfWhatIsNotThereYet(t *testing.T) {
	home := newHome(t)
	path := home + "/new"
	place := ask(t, testRules(home), path, profile.ReadOnly).Place
	g := Grant{Path: place.Typed, Resolved: place.Resolved, Object: place.Object}
	if _, c, _ := g.Check(); c != Missing {
		t.Errorf("%v", c)
	}
	write(t, path, "")
	now, c, why := g.Check()
	if c != Intact {
		t.Errorf("%v: %s", c, why)
	}
	g.Object = now.Object
	write(t, path+".new", "")
	os.Rename(path+".new", path)
	if _, c, _ := g.Check(); c != Changed {
		t.Errorf("%v", c)
	}
}

func TestARunKnowsAnObjectAsItWasStored(t *testing.T) {
	for text, want := range map[string]Object{"7:8:09": {Inode: 7, Born: "8", Handle: "09"}, "7::": {Inode: 7}, "7": {Inode: 7}, "7:8:": {Inode: 7, Born: "8"}} {
		var o Object
		if err := parseInode(text, &o); err != nil || o != want {
			t.Errorf("%s: %+v, %v", text, o, err)
		}
		if again := inodeText(want); text != "7" && again != text {
			t.Errorf("%+v is written %s", want, again)
		}
	}
	uses := ParseUses("used g1 5 1 7:8:09\nused g2 5 1 7\n")
	if len(uses) != 2 || uses[0].Object != (Object{Device: 1, Inode: 7, Born: "8", Handle: "09"}) || uses[1].Object != (Object{Device: 1, Inode: 7}) {
		t.Errorf("%+v", uses)
	}
}
