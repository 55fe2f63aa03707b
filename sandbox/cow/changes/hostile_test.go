package changes

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a command may have made is listed in bounded time, applied as far as it can be, and can
// always be discarded.
func TestHostileLayers(t *testing.T) {
	b := newBench(t).files("real/file", "target").begin()
	outside := b.state + "/outside"
	b.write(outside+"/secret", "secret\n")
	b.sh(b.upper, `ln -s loop loop; ln -s / root; ln -s ../../../outside real; mkfifo fifo; truncate -s 4G sparse; touch -- -rf
		printf x > "$(printf 'bad\377\033[2J')"; mkdir shut; echo x > shut/file; chmod 0 shut; echo x > unreadable; chmod 0 unreadable; touch .clai-sandbox-x`)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	here, _ := os.Getwd()
	os.Chdir(b.upper)
	unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"})
	os.Chdir(here)
	began := time.Now()
	said := words(b.review())
	for _, want := range []string{"added link loop", "added link root", "replaced link real", "added FIFO fifo never:", "added socket socket never:", "added file -rf", "added file bad\xff\x1b[2J", "added file sparse"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in\n%s", want, said)
		}
	}
	b.apply(Selection{})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%v", took)
	}
	if info, err := os.Lstat(b.host + "/real"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v %v", info, err)
	}
	var sparse unix.Stat_t
	if err := unix.Lstat(b.host+"/sparse", &sparse); err != nil || sparse.Size != 4<<30 || sparse.Blocks > 1000 {
		t.Errorf("%+v %v", sparse, err)
	}
	for _, name := range []string{"fifo", "socket", ".clai-sandbox-x"} {
		if _, err := os.Lstat(b.host + "/" + name); err == nil {
			t.Errorf("%s was applied", name)
		}
	}
	// The link is on the host now. What the layer has below its name is not written through it.
	b.sh(b.upper, "mkdir real; echo evil > real/secret")
	b.apply(Selection{Force: []string{"real/secret"}, Paths: []string{"real/secret"}})
	if text, _ := os.ReadFile(outside + "/secret"); string(text) != "secret\n" {
		t.Errorf("%q", text)
	}
	if _, err := b.layer().Discard(t.Context(), nil); err != nil {
		t.Error(err)
	}
	b.empty()
}

// A link that appears in the way while an apply is under way leads nowhere, neither out of the
// directory nor to another place in it.
func TestNoLinkIsFollowed(t *testing.T) {
	for where, link := range map[string]string{"outside": "../outside", "host/other": "other"} {
		b := newBench(t).files("dir/sub/file").begin()
		place := filepath.Dir(b.host) + "/" + where
		b.write(place+"/sub/file", "old dir/file\n")
		b.write(b.upper+"/dir/sub/file", "evil\n")
		b.write(b.upper+"/dir/sub/more", "evil\n")
		b.whiteout("dir/sub/gone")
		b.write(place+"/sub/gone", "")
		review := b.review()
		b.sh(b.host, "mv dir away; ln -s "+link+" dir")
		o, result, err := b.layer().take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a := newApplier(b.quick(), o, result)
		var chosen []*Change
		for i := range review.Changes {
			chosen = append(chosen, &review.Changes[i])
		}
		before := content(t, place)
		if err := a.all(chosen); err != nil {
			t.Error(err)
		}
		a.parents.close()
		o.close()
		if got := content(t, place); got != before {
			t.Errorf("%s", got)
		}
		if len(result.Applied) != 0 || len(result.Skipped) != 2 {
			t.Errorf("%+v", result)
		}
	}
}

// deep makes directories in one another, however many.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(at, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

var levels = flag.Int("levels", 8000, "make a layer so deep")

func TestADeepLayerIsListedAndDiscarded(t *testing.T) {
	b := newBench(t).begin()
	deep(t, b.upper, *levels)
	r := b.review()
	if len(r.Changes) < 1000 || len(r.Changes) > 2100 || len(r.Unseen) != 1 || !strings.Contains(r.Unseen[0], "too long") {
		t.Errorf("%d changes, %.300q", len(r.Changes), r.Unseen)
	}
	if _, err := b.layer().Discard(t.Context(), nil); err != nil {
		t.Error(err)
	}
	b.empty()
}

// The trash of a discard that was interrupted goes with the next one.
func TestAnInterruptedDiscardIsFinished(t *testing.T) {
	b := newBench(t).files("a").begin()
	b.write(b.upper+"/a", "new")
	b.write(filepath.Dir(b.upper)+"/trash/x/y", "")
	if _, err := b.layer().Discard(t.Context(), []string{"a"}); err != nil {
		t.Error(err)
	}
	b.empty()
}

func TestManyFilesAreListedAndDiscarded(t *testing.T) {
	b := newBench(t).begin()
	for i := range 5000 {
		if err := os.WriteFile(fmt.Sprintf("%s/f%d", b.upper, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := b.review(); len(r.Changes) != 5000 {
		t.Errorf("%d", len(r.Changes))
	}
	if _, err := b.layer().Discard(t.Context(), nil); err != nil {
		t.Error(err)
	}
	b.empty()
}
