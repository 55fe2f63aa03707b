package changes

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// found is what each path of a directory has, as far as it is a file.
func found(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrPermission) && strings.HasPrefix(d.Name(), ".clai-sandbox-") {
				return nil // one that is being made
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			all[strings.TrimPrefix(path, dir+"/")] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// whole checks that each file is as it was before or as it shall be.
func whole(t testing.TB, now, before, after map[string]string) {
	t.Helper()
	for name, text := range now {
		if strings.Contains(name, "/.clai-sandbox-") || strings.HasPrefix(name, ".clai-sandbox-") {
			continue
		}
		if old, had := before[name]; had && old == text {
			continue
		}
		if wanted, has := after[name]; !has || wanted != text {
			t.Errorf("%s has %.60q", name, text)
		}
	}
	for name, old := range before {
		if _, ok := now[name]; !ok && after[name] == old {
			t.Errorf("%s is gone", name)
		}
	}
}

type stop struct{}

// An apply that ends at any step is finished by the next one.
func TestAnApplyThatEndsAtAnyStepIsFinished(t *testing.T) {
	total := 0
	count := everything(t)
	before := found(t, count.host)
	ctx := context.WithValue(t.Context(), hooksKey{}, hooks{noSync: true, step: func() { total++ }})
	if _, err := count.layer().Apply(ctx, Selection{}); err != nil || total < 60 {
		t.Fatalf("%d steps: %v", total, err)
	}
	want, after := content(t, count.host), found(t, count.host)
	for at := 1; at <= total; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			b := everything(t)
			left := at
			ctx := context.WithValue(t.Context(), hooksKey{}, hooks{noSync: true, step: func() {
				if left--; left == 0 {
					panic(stop{})
				}
			}})
			func() {
				defer func() {
					if r := recover(); r != (stop{}) {
						t.Fatalf("it did not stop: %v", r)
					}
				}()
				_, _ = b.layer().Apply(ctx, Selection{})
			}()
			whole(t, found(t, b.host), before, after)
			if result := b.apply(Selection{}); len(result.Skipped) > 0 || len(result.Left) > 0 {
				t.Errorf("%+v", result)
			}
			if got := content(t, b.host); got != want {
				t.Errorf("the host has\n%.2000s\nand not\n%.2000s", got, want)
			}
			b.empty()
		})
	}
}

// many is a layer with a few hundred changes, made quickly.
func many(t testing.TB, n int) (b *bench, before, after map[string]string) {
	b = newBench(t)
	for i := range n {
		b.write(fmt.Sprintf("%s/d%d/f%d", b.host, i%7, i), strings.Repeat("old ", 2000))
	}
	before = found(t, b.host)
	b.begin()
	after = map[string]string{}
	for i := range n {
		name := fmt.Sprintf("d%d/f%d", i%7, i)
		switch i % 3 {
		case 0:
			b.write(b.upper+"/"+name, strings.Repeat("new ", 3000))
			after[name] = strings.Repeat("new ", 3000)
		case 1:
			b.whiteout(name)
			b.write(b.upper+"/new/"+name, strings.Repeat("new ", 1000))
			after["new/"+name] = strings.Repeat("new ", 1000)
		default:
			after[name] = before[name]
		}
	}
	return b, before, after
}

var kills = flag.Int("kills", 60, "kill an apply so many times")

func TestAnApplyThatIsKilledIsFinished(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killed, unfinished := 0, 0
	for range *kills {
		b, before, after := many(t, 60)
		command := exec.Command(self)
		command.Env = append(os.Environ(), applyVariable+"="+b.state)
		command.Stderr = os.Stderr
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(rand.N(60 * time.Millisecond)); time.Now().Before(until); {
		}
		_ = command.Process.Kill()
		if command.Wait() != nil {
			killed++
		}
		if _, err := os.Lstat(b.dir + "/journal"); err == nil {
			unfinished++
		}
		whole(t, found(t, b.host), before, after)
		b.apply(Selection{})
		now := found(t, b.host)
		whole(t, now, after, after)
		if len(now) != len(after) {
			t.Errorf("%d files, not %d", len(now), len(after))
		}
		b.empty()
		os.RemoveAll(filepath.Dir(b.host))
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d were killed before their end, %d in the middle of a batch", killed, *kills, unfinished)
	if unfinished < *kills/20 {
		t.Errorf("only %d", unfinished)
	}
}

// A person does one thing at one step of an apply, for each of both. What the person wrote is there
// afterwards.
func TestAPersonsChangeAtAnyStepStays(t *testing.T) {
	paths := []string{"changed", "gone", "dir/inner", "added", "link", "tolink"}
	acts := map[string]func(string, string) error{
		"writes": func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) },
		"replaces": func(path, text string) error {
			if err := os.WriteFile(path+".swp", []byte(text), 0o644); err != nil {
				return err
			}
			return os.Rename(path+".swp", path)
		},
		"writes unseen": func(path, text string) error { // with the old time, as rsync does
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		},
	}
	for name, act := range acts {
		for _, path := range paths {
			t.Run(name+" "+path, func(t *testing.T) {
				for at, more := 1, true; more; at++ {
					more = personAt(t, at, path, act)
				}
			})
		}
	}
}

// personAt lets a person act at one step, and reports whether there was such a step.
func personAt(t *testing.T, at int, name string, act func(string, string) error) bool {
	t.Helper()
	b := newBench(t).files("changed", "gone", "dir/inner", "tolink")
	os.Symlink("changed", b.host+"/link")
	b.begin()
	b.write(b.upper+"/changed", "agent's\n")
	b.write(b.upper+"/added", "agent's\n")
	b.whiteout("gone")
	b.whiteout("dir")
	os.Symlink("gone", b.upper+"/link")
	os.Symlink("gone", b.upper+"/tolink")
	step := 0
	done := make(chan error, 1)
	ctx := context.WithValue(t.Context(), hooksKey{}, hooks{noSync: true, step: func() {
		if step++; step != at {
			return
		}
		go func() { done <- act(b.host+"/"+name, "person's\n") }()
		select { // one that waits for a lease goes on when that is given back
		case err := <-done:
			done <- err
		case <-time.After(20 * time.Millisecond):
		}
	}})
	if _, err := b.layer().Apply(ctx, Selection{}); err != nil {
		t.Error(err)
	}
	if step < at {
		return false
	}
	if <-done != nil {
		return true // the directory was gone, or in no state to be written
	}
	for _, text := range found(t, b.host) {
		if text == "person's\n" {
			return true
		}
	}
	t.Errorf("at step %d what the person wrote is lost:\n%s", at, content(t, b.host))
	return true
}

// A person works on the host while changes are applied, and in between. What the person wrote last
// stays, wherever it was written.
func TestNoChangeOfAPersonsIsOverwritten(t *testing.T) {
	const files = 40
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		b, _, _ := many(t, files)
		var mu sync.Mutex
		wrote := map[string]string{}
		done := make(chan struct{})
		var person sync.WaitGroup
		for p := range 2 {
			person.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					n := rand.IntN(files)
					if n%2 != p { // each has files of its own, so that the last write is known
						continue
					}
					name := fmt.Sprintf("d%d/f%d", n%7, n)
					text := fmt.Sprintf("person %d %d %d\n", p, i, n)
					act(b.host, name, text, rand.IntN(4), &mu, wrote)
				}
			})
		}
		for range 3 {
			b.apply(Selection{})
		}
		close(done)
		person.Wait()
		result := b.apply(Selection{})
		now := found(t, b.host)
		for name, text := range wrote {
			if text != "" && !strings.HasSuffix(now[name], text) && !isLeft(now, result, text) {
				t.Errorf("%s: the person wrote %q, and it has %.60q", name, text, now[name])
			}
		}
		os.RemoveAll(filepath.Dir(b.host))
		if t.Failed() {
			return
		}
	}
}

func isLeft(now map[string]string, _ *Result, text string) bool {
	for name, content := range now {
		if strings.Contains(name, ".clai-sandbox-") && strings.HasSuffix(content, text) {
			return true
		}
	}
	return false
}

// act changes a file of the host's as programs do. What it wrote is in the record; a file that it
// removed is there as "".
func act(dir, name, text string, how int, mu *sync.Mutex, wrote map[string]string) {
	path := dir + "/" + name
	did := text
	switch how {
	case 0: // as a shell
		if os.WriteFile(path, []byte(text), 0o644) != nil {
			return
		}
	case 1: // as an editor
		if os.WriteFile(path+".swp", []byte(text), 0o644) != nil || os.Rename(path+".swp", path) != nil {
			return
		}
	case 2: // as a log
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return
		}
		_, err = file.WriteString(text)
		if file.Close(); err != nil {
			return
		}
	default:
		if os.Remove(path) != nil {
			return
		}
		did = ""
	}
	mu.Lock()
	wrote[name] = did
	mu.Unlock()
}
