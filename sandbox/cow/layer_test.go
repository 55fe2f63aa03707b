package cow

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// Since goes on as long as nothing was changed, and stays from then on. Which directory it is of is
// noted at the same times.
func TestALayerBeginsWhenItIsLastOpenedEmpty(t *testing.T) {
	host, dir := t.TempDir(), filepath.Join(shuttest.Directory(t), "layers/main/x")
	open := func() int64 {
		t.Helper()
		time.Sleep(10 * time.Millisecond) // the kernel's clock goes in steps of up to 10 ms
		l, err := Open(dir, About{Path: host}, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := Take(dir); !errors.Is(err, ErrInUse) {
			t.Errorf("%v", err)
		}
		since, err := Since(dir)
		if err != nil {
			t.Fatal(err)
		}
		return since
	}
	object := func() Object {
		t.Helper()
		about, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		return about.Object
	}
	first, before := open(), object()
	if second := open(); second <= first || !object().Is(before) {
		t.Errorf("%d, then %d; %+v, then %+v", first, second, before, object())
	}
	changed := shuttest.Reach(t, shut.In(dir)+"/upper/x")
	if err := os.WriteFile(changed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	third := open()
	os.Rename(host, host+"-old")
	os.Mkdir(host, 0o755)
	if again := open(); third != again || !object().Is(before) {
		t.Errorf("%d, then %d", third, again)
	}
	os.Remove(changed)
	if last := open(); last <= third || object().Is(before) {
		t.Errorf("%d, then %d; %+v", third, last, object())
	}
}
