package descriptor

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPinningByStepsIsPinning(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/a/b/file", dir + "/a/link", dir + "/up"} {
		target := map[string]string{dir + "/a/link": "b", dir + "/up": dir + "/a"}[path]
		var err error
		if target == "" {
			err = os.WriteFile(path, nil, 0o644)
		} else {
			err = os.Symlink(target, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/", "/usr", dir, dir + "/a/b", dir + "/a/b/file", dir + "/a/link", dir + "/a/link/file", dir + "/up/b", dir + "/none", dir + "/a/b/file/x", "/proc/self/cwd"} {
		want, wantErr := Pin(path)
		got, err := pinBySteps(path)
		if err != wantErr {
			t.Errorf("%s: %v, want %v", path, err, wantErr)
		}
		if err == nil {
			var first, second unix.Stat_t
			if unix.Fstat(int(want), &first) != nil || unix.Fstat(int(got), &second) != nil || first.Ino != second.Ino || first.Dev != second.Dev {
				t.Errorf("%s: another object", path)
			}
			got.Close()
			want.Close()
		}
	}
}
