package written

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAnAccountIsReadAsAWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "account")
	if list, err := Read(file); err != nil || len(list) != 0 {
		t.Errorf("none: %v %v", list, err)
	}
	want := List{{1, 2, "/a b\n"}, {3, 4, "/c"}}
	for text, good := range map[string]bool{
		want.Text(): true, "": true, "1 2\n": false, "1 2 /unquoted\n": false, want.Text() + "x y \"/d\"\n": false, strings.Repeat("1 2 \"/a\"\n", MaxSize/8): false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := Read(file)
		if good != (err == nil) || text == want.Text() && (len(list) != 2 || list[0] != want[0]) {
			t.Errorf("%.40q: %v %v", text, list, err)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{pipe, dir} {
		if _, err := Read(other); err == nil {
			t.Errorf("%s counts for an empty account", other)
		}
	}
}
