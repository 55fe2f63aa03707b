package profile

import "testing"

func TestSomeTreesAreNeverGranted(t *testing.T) {
	for path, want := range map[string]bool{"/": true, "/proc": true, "/proc/1": true, "/sys": true, "/dev": true, "/dev/shm": true, "/run": true,
		"/run/user/1000": true, "/procedures": false, "/home": false, "/etc": false, "/runner": false, "/tmp": false} {
		why, never := NeverGrantable(path)
		if never != want || never != (why != "") {
			t.Errorf("%s: %v %q", path, never, why)
		}
	}
}
